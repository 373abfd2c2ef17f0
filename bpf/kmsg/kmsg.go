//go:build linux && (amd64 || arm64)

// Package kmsg delivers kernel-log records that tell of accelerator and host
// faults, at the moment the kernel stores them.
package kmsg

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

//go:generate go tool bpf2go -go-package kmsg -tags linux -target amd64,arm64 bpf kmsg.bpf.c

// Name of the probe in reports.
const Name = "kmsg"

// DefaultRingBytes holds some 40,000 records of ordinary length: over half a
// second of the worst storm, for a reader that gets no CPU. More would cost the
// agent's memory budget: a ring's pages count twice in the RSS of its reader,
// since the ring is mapped twice in a row (kernel/bpf/ringbuf.c).
const DefaultRingBytes = 16 << 20

// Options choose what the probe delivers and how.
type Options struct {
	// Words make a record worth delivering when one of them stands in its first
	// 256 bytes. Nil means DefaultWords.
	Words []string
	// Rung forces one rung of the ladder (see Rungs); "" takes the best.
	Rung string
	// RingBytes is the size of the ring, a power of two of at least a page. 0
	// means DefaultRingBytes.
	RingBytes int
}

// Probe is an open probe. Read is for one goroutine; the other methods are safe
// beside it.
type Probe struct {
	*attached
	report  probe.Report
	pending []Event // read while the self-test waited for its marker
	lost    uint64  // read then, and too many to keep
	marker  string
	// For ReadBack: where the log is, which records are of interest, when the marker was seen.
	device    string
	automaton *automaton
	markedNS  int64
	record    ringbuf.Record

	events  atomic.Uint64
	invalid atomic.Uint64

	mu     sync.Mutex // guards closed and last
	closed bool
	last   probe.Stats
}

// Open loads the best rung that works on this kernel. When none does, the error
// says why for each; Try returns that as a report.
func Open(opts Options) (*Probe, error) {
	p, _, err := Try(opts)
	return p, err
}

// Try is Open that returns the report also when no rung works.
func Try(opts Options) (*Probe, probe.Report, error) {
	t, err := newTrial(opts)
	if err != nil {
		return nil, probe.Report{Probe: Name}, fmt.Errorf("open %s: %w", Name, err)
	}
	return t.open(opts.Rung)
}

func (t *trial) open(only string) (*Probe, probe.Report, error) {
	a, report, err := ladder.Climb(Name, only, t.rungs())
	if err != nil {
		return nil, report, err
	}
	report.Attempts[len(report.Attempts)-1].Hint, report.Unproven = t.limit, t.unproven
	p := &Probe{attached: a, report: report, pending: t.seen, lost: t.lost, marker: t.marker, device: t.device, automaton: t.automaton, markedNS: t.markedNS}
	p.invalid.Store(t.invalid)
	return p, report, nil
}

// Read blocks until the next record and stores it in e. It returns
// probe.ErrClosed after Close. Records that cannot be decoded are counted and
// passed over.
func (p *Probe) Read(e *Event) error {
	if len(p.pending) > 0 && !p.isClosed() {
		*e, p.pending = p.pending[0], p.pending[1:]
		p.events.Add(1)
		return nil
	}
	for {
		err := p.next(&p.record, e)
		switch {
		case err == nil && e.Text == p.marker:
			// A second copy of the self-test, such as a console's.
		case err == nil:
			p.events.Add(1)
			return nil
		case errors.Is(err, errInvalid):
			p.invalid.Add(1)
		case errors.Is(err, os.ErrClosed):
			return probe.ErrClosed
		default:
			return fmt.Errorf("read %s: %w", Name, err)
		}
	}
}

// Stats returns the counters; after Close, their last values.
func (p *Probe) Stats() probe.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count()
	p.last.Events, p.last.Invalid = p.events.Load(), p.invalid.Load()
	return p.last
}

// count takes the kernel side's counter while there is one.
func (p *Probe) count() {
	if !p.closed {
		p.last.Dropped = p.lost + p.dropped(p.last.Dropped-min(p.lost, p.last.Dropped))
	}
}

// Report says which rung is in use and why not a better one.
func (p *Probe) Report() probe.Report { return p.report }

// Close detaches the probe and unblocks Read. Closing twice is fine.
func (p *Probe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.count()
	p.closed = true
	return p.attached.close()
}

func (p *Probe) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// errInvalid marks a record that decode refused.
var errInvalid = errors.New("invalid record")

// next reads and decodes one event, and the names that come before it.
func (a *attached) next(record *ringbuf.Record, e *Event) error {
	for {
		if err := a.reader.ReadInto(record); err != nil {
			return err
		}
		offset, err := bootclock.Offset()
		if err != nil {
			return err
		}
		switch whole, err := decode(record.RawSample, offset, &a.names, e); {
		case err != nil:
			return fmt.Errorf("%w: %w", errInvalid, err)
		case whole:
			return nil
		}
	}
}
