//go:build linux && (amd64 || arm64)

// Package cudaoom reports each allocation of GPU memory that the CUDA driver
// refuses for want of memory: who asked, for how much, by which call.
package cudaoom

//go:generate go tool bpf2go -go-package cudaoom -tags linux -target amd64,arm64 -type event -type function -type outcome bpf cudaoom.bpf.c

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
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
}

// Probe reports refusals in the libraries that Watch found. Read is for one
// goroutine and Watch for one other; the remaining methods are safe beside them.
type Probe struct {
	hooks  *hooks
	proc   *procfs.FS
	max    int
	report probe.Report
	record ringbuf.Record // reused by Read

	events, invalid atomic.Uint64

	processes map[uint32]*looked // what Watch knows of processes
	round     int                // calls of Watch

	mu          sync.Mutex // guards what follows
	libraries   map[library]*attached
	closed      bool
	lastDropped uint64
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
		h, err := openHooks(opts.RingBytes)
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
	p := &Probe{
		hooks: hooks, proc: procfs.Open(opts.ProcRoot), max: opts.MaxLibraries, report: report,
		processes: map[uint32]*looked{}, libraries: map[library]*attached{},
	}
	if p.max == 0 {
		p.max = DefaultMaxLibraries
	}
	return p, nil
}

// Read waits for the next event. It returns probe.ErrClosed after Close.
func (p *Probe) Read(e *Event) error {
	for {
		if err := p.hooks.reader.ReadInto(&p.record); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				return probe.ErrClosed
			}
			return fmt.Errorf("read %s: %w", Name, err)
		}
		offset, err := bootclock.Offset()
		if err != nil {
			return fmt.Errorf("read %s: %w", Name, err)
		}
		if decode(p.record.RawSample, offset, e) == nil {
			p.events.Add(1)
			return nil
		}
		p.invalid.Add(1)
	}
}

// Stats returns the counters since Open; they stay readable after Close.
func (p *Probe) Stats() probe.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return probe.Stats{Events: p.events.Load(), Dropped: p.dropped(), Invalid: p.invalid.Load()}
}

// dropped is called with mu held.
func (p *Probe) dropped() uint64 {
	if p.closed {
		return p.lastDropped
	}
	if n, err := counter.Sum(p.hooks.collection.Maps[bpfMapDropped], 0); err == nil {
		p.lastDropped = n
	}
	return p.lastDropped
}

// Report says which rung is in use.
func (p *Probe) Report() probe.Report {
	report := p.report
	report.Attempts = append([]probe.Attempt(nil), p.report.Attempts...)
	return report
}

// Close detaches the probe from every library and unblocks Read. Closing twice is
// fine. A Watch under way detaches what it attaches.
func (p *Probe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.dropped()
	p.closed = true
	var errs []error
	for _, l := range p.libraries {
		errs = append(errs, detach(l.links))
	}
	if err := errors.Join(append(errs, p.hooks.close())...); err != nil {
		return fmt.Errorf("close %s: %w", Name, err)
	}
	return nil
}
