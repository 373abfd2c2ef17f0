//go:build linux && (amd64 || arm64)

// Package oomkill reports each process that the kernel kills for want of memory:
// who, how much of which memory it held, whose limit was hit, who triggered it.
package oomkill

//go:generate go tool bpf2go -go-package oomkill -tags linux -target amd64,arm64 -type event -type path_state bpf oomkill.bpf.c

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/pin"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Name of the probe in reports.
const Name = "oomkill"

// Options of the probe; the zero value is right for production.
type Options struct {
	Rung      string // use this rung and no other
	RingBytes uint32 // size of the ring, a power of two and at least a page; 0: 256 KiB, 90 kills
	// Pin is the folder in a BPF file system (pin.Root) where what the probe has in the kernel
	// outlives this process, so that the next one knows what happened in between; "": nowhere.
	Pin string
}

// Probe reports OOM kills from the moment it is open.
type Probe struct {
	hooks  *hooks
	code   kernelCode
	record ringbuf.Record // reused by Read
	kept   *pin.Kept      // nil where nothing is pinned
	late   []Event        // of the time before Open, for Read
	since  uint64         // boot clock: what was before is in late

	events, invalid atomic.Uint64

	mu          sync.Mutex // guards what follows
	report      probe.Report
	closed      bool
	lastDropped uint64 // of the closed ring
}

// Open attaches the best rung that this kernel allows. It makes no OOM kill to
// see it fire: Fire does.
func Open(opts Options) (*Probe, error) {
	kernel := learnKernel()
	hooks, report, err := ladder.Climb(Name, opts.Rung, rungs(kernel, opts))
	if err != nil {
		return nil, err
	}
	p := &Probe{hooks: hooks, code: kernel.code, report: report}
	if report.Rung == RungVictim {
		p.code.cgroupOOM = nil // forced: it promises no constraint
	}
	if opts.Pin != "" {
		p.inherit(opts.Pin)
	}
	return p, nil
}

// Read waits for the next OOM kill. It returns probe.ErrClosed after Close. One
// goroutine reads at a time.
func (p *Probe) Read(e *Event) error {
	if len(p.late) > 0 {
		*e, p.late = p.late[0], p.late[1:]
		p.events.Add(1)
		return nil
	}
	for {
		if err := p.hooks.reader.ReadInto(&p.record); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				return probe.ErrClosed
			}
			return fmt.Errorf("read oomkill: %w", err)
		}
		offset, err := bootclock.Offset()
		if err != nil {
			return fmt.Errorf("read oomkill: %w", err)
		}
		switch err := decode(p.record.RawSample, p.code, offset, e); {
		case err == nil && e.Time.Before(bootclock.Time(p.since, offset)): // it was in late
		case err == nil:
			p.events.Add(1)
			return nil
		case !errors.Is(err, errDying):
			p.invalid.Add(1)
		}
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
	if n, err := counter.Sum(p.hooks.objects.Dropped, 0); err == nil {
		p.lastDropped = n
		_ = p.kept.Seen(n) // an older note makes a gap look longer, no more
	}
	return p.lastDropped
}

// Report says which rung is in use and why not a better one.
func (p *Probe) Report() probe.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report.Clone()
}

// Close detaches the probe and unblocks Read. Closing twice is fine.
func (p *Probe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.dropped()
	p.closed = true
	if err := errors.Join(p.hooks.Close(), p.kept.Close()); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close oomkill: %w", err)
	}
	return nil
}
