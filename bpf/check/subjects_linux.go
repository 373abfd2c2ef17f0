//go:build linux && (amd64 || arm64)

package check

import (
	"context"
	"errors"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/bpf/taskstack"
)

// subjects are the probes of tracecore, opened as the receivers open them.
func subjects() []subject {
	return []subject{
		{name: "kmsg", sees: seesKmsg, offers: offersKmsg(), lacks: kmsgLacks, open: openKmsg},
		{name: "oomkill", sees: seesOOMKill, offers: offersOOMKill(), open: openOOMKill},
		{name: "identity", sees: seesIdentity, offers: offersIdentity(), lacks: identityLacks, open: openIdentity},
		{name: "fusefault", sees: seesFUSE, offers: offersFUSE(), open: openFUSE},
		{name: "ncclsock", sees: seesSockets, offers: offersSockets(), open: openSockets},
		{name: "cudaoom", sees: seesCUDA, offers: offersCUDA(), open: openCUDA},
		{name: "ncclcall", sees: seesCalls, offers: offersCalls(), open: openCalls},
		{name: "pyexception", sees: seesRaised, offers: offersRaised(), open: openRaised},
		{name: "taskstack", sees: seesStacks, offers: offersStacks(), open: openStacks},
	}
}

// attemptsOf returns what a ladder on which nothing worked says about its rungs.
func attemptsOf(err error) []probe.Attempt {
	var none *ladder.NoRung
	if errors.As(err, &none) {
		return none.Report.Attempts
	}
	return nil
}

// kmsgLacks: where nothing shows who wrote a record, every process may have.
func kmsgLacks(r probe.Report) []Feature {
	if r.Unproven == "" {
		return nil
	}
	return []Feature{Origins}
}

type kmsgHandle struct{ *kmsg.Probe }

func openKmsg() (handle, error) {
	p, err := kmsg.Open(kmsg.Options{})
	if err != nil {
		return nil, err
	}
	return kmsgHandle{p}, nil
}

// Fire has nothing left to do: Open wrote a marker line to the kernel log and
// took no hook on which it did not arrive.
func (kmsgHandle) Fire(context.Context) error { return nil }

type oomkillHandle struct{ *oomkill.Probe }

func openOOMKill() (handle, error) {
	p, err := oomkill.Open(oomkill.Options{})
	if err != nil {
		return nil, err
	}
	return oomkillHandle{p}, nil
}

// Fire has the kernel kill a child of ours in a throw-away memory cgroup.
func (h oomkillHandle) Fire(ctx context.Context) error {
	_, err := h.Probe.Fire(ctx)
	return err
}

type identityHandle struct{ *identity.Tracker }

// identityLacks: without BTF the kernel tells when a process starts and not how it
// ends, and /proc tells neither.
func identityLacks(r probe.Report) []Feature {
	if identity.SeesEnds(r.Rung) {
		return nil
	}
	return []Feature{Exits}
}

func openIdentity() (handle, error) {
	t, err := identity.Open(identity.Options{})
	if err != nil {
		return nil, err
	}
	return identityHandle{t}, nil
}

// Fire has nothing left to do: Open started a child, ended it, and took no hook
// on which its start and its end did not arrive.
func (identityHandle) Fire(context.Context) error { return nil }

func openFUSE() (handle, error) {
	p, err := fusefault.Open(fusefault.Options{})
	if err != nil {
		return nil, err
	}
	return p, nil // Fire hangs a child of ours on a file system that only it sees
}

func openSockets() (handle, error) {
	p, err := ncclsock.Open(ncclsock.Options{})
	if err != nil {
		return nil, err
	}
	return p, nil // Fire leaves bytes unread on a loopback connection of ours
}

type cudaoomHandle struct{ *cudaoom.Probe }

func openCUDA() (handle, error) {
	p, err := cudaoom.Open(cudaoom.Options{})
	if err != nil {
		return nil, err
	}
	return cudaoomHandle{p}, nil
}

// Fire has nothing left to do: Open called a function of this program that looks
// like the driver's, here and in a child under a seccomp filter, and took no hook on
// which a refusal did not arrive or the child did not live on.
func (cudaoomHandle) Fire(context.Context) error { return nil }

type ncclcallHandle struct{ *ncclcall.Probe }

func openCalls() (handle, error) {
	p, err := ncclcall.Open(ncclcall.Options{})
	if err != nil {
		return nil, err
	}
	return ncclcallHandle{p}, nil
}

// Fire has nothing left to do: Open called a function of this program that begins as
// NCCL's do, and took no hook on which the call was not counted.
func (ncclcallHandle) Fire(context.Context) error { return nil }

func openStacks() (handle, error) {
	p, err := taskstack.Open(taskstack.Options{})
	if err != nil {
		return nil, err
	}
	return p, nil // Fire looks at a thread of ours that sleeps in a read
}

type pyexceptionHandle struct{ *pyexception.Probe }

func openRaised() (handle, error) {
	p, err := pyexception.Open(pyexception.Options{})
	if err != nil {
		return nil, err
	}
	return pyexceptionHandle{p}, nil
}

// Fire has nothing left to do: Open called a function of this program as an interpreter
// calls PyErr_Display, and took no hook on which the exception was not read.
func (pyexceptionHandle) Fire(context.Context) error { return nil }
