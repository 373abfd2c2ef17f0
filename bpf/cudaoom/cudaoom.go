//go:build linux && (amd64 || arm64)

// Package cudaoom reports each allocation of GPU memory that the CUDA driver
// refuses for want of memory: who asked, for how much, by which call.
package cudaoom

//go:generate go tool bpf2go -go-package cudaoom -tags linux -target amd64,arm64 -type event -type function -type outcome -type owner bpf cudaoom.bpf.c

import (
	"cmp"
	"errors"
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Name of the probe in reports.
const Name = "cudaoom"

// DefaultMaxLibraries bounds how many files are attached at a time. A node has one,
// and one more for each image that brings its own.
const DefaultMaxLibraries = 16

// Options of the probe; the zero value is right for production.
type Options struct {
	Rung         string // use this rung and no other
	RingBytes    uint32 // size of the ring, a power of two and at least a page; 0: 64 KiB, 1,000 refusals
	ProcRoot     string // where the host's /proc is mounted; "": HOST_PROC from the environment, else /proc
	MaxLibraries int    // attached at a time, 0: DefaultMaxLibraries

	threads uint32 // in a call or refused at a time; 0: what the C file says
}

// Probe reports refusals in the libraries that Watch found. Read is for one
// goroutine and Watch for one other; the remaining methods are safe beside them.
type Probe struct {
	uprobe.Events[Event]

	hooks  *hooks
	proc   *procfs.FS
	watch  *uprobe.Watcher
	tidied time.Time // only Watch uses it
}

// Open loads the probe and has it fire on a function of this program. It is
// attached to nothing until Watch.
func Open(opts Options) (*Probe, error) { return openConfined(opts, standin.Confined) }

// openConfined lets a test say what becomes of a process under a seccomp filter.
func openConfined(opts Options, confined func(size uint64) (survived bool, err error)) (*Probe, error) {
	try := func() (*hooks, bool, error) {
		closed, err := selfTest(confined)
		if err != nil {
			return nil, false, err
		}
		h, err := openHooks(sizes{ringBytes: opts.RingBytes, threads: opts.threads})
		if err != nil {
			return nil, false, errors.Join(err, <-closed)
		}
		h.selfTest = closed
		return h, true, nil
	}
	hooks, report, err := ladder.Climb(Name, opts.Rung, []ladder.Rung[*hooks]{{ID: RungUprobe, Try: try}})
	if err != nil {
		return nil, err
	}
	proc := procfs.Open(opts.ProcRoot)
	p := &Probe{hooks: hooks, proc: proc, watch: uprobe.NewWatcher(proc, uprobe.Libraries{
		Names: []string{"libcuda.so"}, Max: cmp.Or(opts.MaxLibraries, DefaultMaxLibraries), Attach: hooks.attachTo,
	})}
	p.Begin(uprobe.Source[Event]{
		Name: Name, Report: report, Reader: hooks.reader, Decode: decode,
		Dropped: func() (uint64, error) { return counter.Sum(hooks.collection.Maps[bpfMapDropped], 0) },
		Crowded: func() (room.Crowded, error) { return room.ReadCrowded(hooks.collection.Maps[bpfMapCrowded]) },
		Close:   func() error { return errors.Join(p.watch.Close(), hooks.close()) },
	})
	return p, nil
}

// Watch attaches the probe to the libcuda that these processes have mapped, each file
// once, and detaches it from files that none of them has any more. A uprobe belongs to a
// file: other processes that map it are seen too, also those that begin to. Call it again
// now and then: it also forgets threads that have ended, where there are many.
func (p *Probe) Watch(processes []probe.Process) (probe.Watched, error) {
	watched, err := p.watch.Watch(processes)
	if now := time.Now(); err == nil && now.Sub(p.tidied) >= tidying {
		p.tidied = now
		err = p.WhileOpen(func() error { return p.hooks.tidy(p.ended) })
	}
	return watched, err
}
