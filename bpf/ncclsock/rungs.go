//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// The rungs, best first.
const (
	// RungProcess walks the open files of the owners alone (Linux 6.1, f0d74c4da1f0).
	RungProcess = "iter/task_file:pid"
	// RungHost walks the open files of the host and looks each owner up.
	RungHost = "iter/task_file"
	// RungSnapshot is RungHost without changes.
	RungSnapshot = "iter/task_file:snapshot"
	// RungDiag asks sock_diag in each network namespace of an owner, without
	// changes. It needs no BPF.
	RungDiag = "sock_diag"
)

// Rungs returns the rungs, best first.
func Rungs() []string { return []string{RungProcess, RungHost, RungSnapshot, RungDiag} }

func rungs(opts Options) []ladder.Rung[source] {
	rung := func(id string, open func() (source, error)) ladder.Rung[source] {
		return ladder.Rung[source]{ID: id, Try: func() (source, bool, error) {
			if err := initialPIDNamespace(); err != nil {
				return nil, false, err
			}
			src, err := open()
			if err != nil {
				return nil, false, err
			}
			fired, err := selfTest(src, id == RungProcess || id == RungHost)
			if err != nil {
				return nil, false, errors.Join(err, src.close())
			}
			return src, fired, nil
		}}
	}
	return []ladder.Rung[source]{
		rung(RungProcess, func() (source, error) { return openIterator(opts, true, true) }),
		rung(RungHost, func() (source, error) { return openIterator(opts, false, true) }),
		rung(RungSnapshot, func() (source, error) { return openIterator(opts, false, false) }),
		rung(RungDiag, func() (source, error) { return openDiag(opts) }),
	}
}

// initialPIDNamespaceInode is PROC_PID_INIT_INO (include/linux/proc_ns.h).
const initialPIDNamespaceInode = 0xEFFFFFFC

// initialPIDNamespace tells why owners could not be found: iterators and /proc show
// the processes of the reader's own pid namespace.
func initialPIDNamespace() error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return fmt.Errorf("look at the own pid namespace: %w", err)
	}
	if st.Ino == initialPIDNamespaceInode {
		return nil
	}
	return &ladder.Problem{
		Outcome: probe.Denied,
		Reason:  fmt.Sprintf("process %d runs in a pid namespace of its own and sees no other process", os.Getpid()),
		Hint:    "share the host's pid namespace: in Kubernetes, hostPID: true",
	}
}
