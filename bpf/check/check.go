// Package check says what this machine allows: facts about the kernel and the
// process, and for each probe the rung it got, seen to fire.
package check

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Status is the verdict on a machine.
type Status string

// The statuses.
const (
	OK       Status = "ok"       // every feature is there
	Degraded Status = "degraded" // some are
	Unusable Status = "unusable" // no fault can be seen
)

// Feature is something that a probe delivers where it works.
type Feature string

// The features.
const (
	KernelLog Feature = "kernel_log"       // records of drivers in the kernel log
	Origins   Feature = "kernel_origins"   // which driver wrote such a record: without, it is a claim
	OOMKills  Feature = "oom_kills"        // OOM kills
	Identity  Feature = "process_identity" // which rank of which job in which pod a process is
	Exits     Feature = "process_exits"    // how a rank's process ended

	FUSEStalls   Feature = "fuse_stalls"   // what hangs on a FUSE file system
	SocketStalls Feature = "socket_stalls" // sockets between ranks that do not move

	GPUMemory Feature = "gpu_memory" // allocations that the GPU driver refuses

	CollectiveCalls Feature = "collective_calls" // which rank called which collective of NCCL

	RankStacks Feature = "rank_stacks" // where in its code a rank stands still

	Exceptions Feature = "exceptions" // what ended a rank's Python
)

// Features lists all of them.
func Features() []Feature {
	return []Feature{KernelLog, Origins, OOMKills, Identity, Exits, FUSEStalls, SocketStalls, GPUMemory, CollectiveCalls, RankStacks, Exceptions}
}

// faults are the features that see something go wrong; the others say to whom.
func faults() []Feature {
	return []Feature{KernelLog, OOMKills, Exits, FUSEStalls, SocketStalls, GPUMemory, CollectiveCalls}
}

// Probe is what one probe found: its own report, and whether the whole way from
// the kernel to its reader was seen to work.
type Probe struct {
	probe.Report
	Sees     string    `json:"sees"`     // in plain words
	Offers   []Feature `json:"offers"`   // at its best
	Delivers []Feature `json:"delivers"` // with the hook it has
	// Fired: a harmless cause was made and its event was read.
	Fired bool   `json:"fired"`
	Error string `json:"error,omitempty"`
}

// Works reports whether the probe delivers: it is open, and nothing that was
// tried since failed.
func (p Probe) Works() bool { return p.Rung != "" && p.Error == "" }

// fireTimeout bounds the wait for the event of a cause. A virtual machine under
// software emulation needs seconds to start a child process.
const fireTimeout = 30 * time.Second

// subject is one probe as check sees it.
type subject struct {
	name string
	sees string
	// offers are its features on its best rung.
	offers []Feature
	open   func() (handle, error)
	// lacks are those of them that an open probe does not deliver; nil where all do.
	lacks func(probe.Report) []Feature
}

// delivers are the features that come with an open probe.
func (s subject) delivers(r probe.Report) []Feature {
	there := slices.Clone(s.offers)
	if s.lacks == nil {
		return there
	}
	return slices.DeleteFunc(there, func(f Feature) bool { return slices.Contains(s.lacks(r), f) })
}

// handle is a probe that is open.
type handle interface {
	Report() probe.Report
	// Fire makes a harmless cause and returns when its event was read. It does
	// nothing where Open has done that.
	Fire(ctx context.Context) error
	Close() error
}

// Run opens every probe the way the receivers do, fires it and closes it.
func Run(ctx context.Context) []Probe { return run(ctx, subjects(), true) }

// Survey opens every probe and closes it again without a cause of its own.
func Survey() []Probe { return run(context.Background(), subjects(), false) }

func run(ctx context.Context, list []subject, fire bool) []Probe {
	out := make([]Probe, len(list))
	for i, s := range list {
		out[i] = s.check(ctx, fire)
	}
	return out
}

func (s subject) check(ctx context.Context, fire bool) Probe {
	p := Probe{Report: probe.Report{Probe: s.name, Attempts: []probe.Attempt{}}, Sees: s.sees, Offers: slices.Clone(s.offers), Delivers: []Feature{}}
	h, err := s.open()
	if err != nil {
		p.Attempts = append(p.Attempts, attemptsOf(err)...)
		p.Error = err.Error()
		return p
	}
	if fire {
		err = fireAndNote(ctx, h, &p)
	} else {
		p.Report = h.Report()
	}
	p.Fired = slices.ContainsFunc(p.Attempts, func(a probe.Attempt) bool { return a.Rung == p.Rung && a.Fired })
	if err = errors.Join(err, h.Close()); err != nil {
		p.Error = err.Error()
		return p
	}
	p.Delivers = s.delivers(p.Report)
	return p
}

// fireAndNote fires a probe. Where the cause could not be made, as on a node
// whose cgroups are read-only, the hook keeps its outcome and a hint says so: the
// receiver will use it all the same.
func fireAndNote(ctx context.Context, h handle, p *Probe) error {
	ctx, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	err := h.Fire(ctx)
	p.Report = h.Report()
	for i, a := range p.Attempts {
		if err != nil && a.Rung == p.Rung && a.Outcome == probe.OK {
			p.Attempts[i].Hint = "it could not be fired: " + err.Error()
			return nil
		}
	}
	return err
}

// Delivered are the features that probes deliver together.
func Delivered(probes []Probe) map[Feature]bool {
	there := map[Feature]bool{}
	for _, p := range probes {
		for _, f := range p.Delivers {
			there[f] = true
		}
	}
	return there
}

// StatusOf sums the probes up. Who a process is helps nobody where no fault can
// be seen.
func StatusOf(probes []Probe) Status {
	there := Delivered(probes)
	switch {
	case !slices.ContainsFunc(faults(), func(f Feature) bool { return there[f] }):
		return Unusable
	case len(there) < len(Features()):
		return Degraded
	}
	return OK
}

// What each probe sees, in plain words.
const (
	seesKmsg     = "GPU, NVLink, network and PCIe faults that drivers write to the kernel log"
	seesOOMKill  = "processes that the kernel kills for want of memory"
	seesIdentity = "which rank, job, pod and container a process is, and how it ended"
	seesFUSE     = "requests and page faults that hang on FUSE file systems"
	seesSockets  = "sockets between ranks that do not move, and on whose side"
	seesCUDA     = "GPU memory that the CUDA driver refuses to a process"
	seesCalls    = "which rank called which collective of NCCL, and which stopped calling"
	seesRaised   = "exceptions that end a Python program, with message and line"
	seesStacks   = "where in its code, and in the kernel, a rank stands still"
)

// What each probe offers at its best.
func offersKmsg() []Feature     { return []Feature{KernelLog, Origins} }
func offersOOMKill() []Feature  { return []Feature{OOMKills} }
func offersIdentity() []Feature { return []Feature{Identity, Exits} }
func offersFUSE() []Feature     { return []Feature{FUSEStalls} }
func offersSockets() []Feature  { return []Feature{SocketStalls} }
func offersCUDA() []Feature     { return []Feature{GPUMemory} }
func offersCalls() []Feature    { return []Feature{CollectiveCalls} }
func offersRaised() []Feature   { return []Feature{Exceptions} }
func offersStacks() []Feature   { return []Feature{RankStacks} }
