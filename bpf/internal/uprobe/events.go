//go:build linux

package uprobe

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Source is what the events of a probe come from.
type Source[E any] struct {
	Name   string // of the probe
	Report probe.Report
	Reader *ringbuf.Reader
	// Decode reads a record; clockOffset turns its boot clock into wall time. Of an error
	// other than ErrUnwanted the record is invalid.
	Decode  func(raw []byte, clockOffset int64, e *E) error
	Dropped func() (uint64, error)       // what the kernel could not deliver so far
	Crowded func() (room.Crowded, error) // of that, what was refused to who floods the ring
	Close   func() error                 // detaches, closes Reader and the maps
}

// ErrUnwanted is returned by Source.Decode for a record that nobody asked for.
var ErrUnwanted = errors.New("unwanted record")

// Events is the life of a probe whose events come by a ring: each Probe has one embedded.
type Events[E any] struct {
	source Source[E]
	record ringbuf.Record // reused by Read

	events, invalid atomic.Uint64

	mu          sync.Mutex // guards what follows, and the maps while they are read
	closed      bool
	lastDropped uint64
	lastCrowded room.Crowded
}

// Begin says what the events come from. It is called once, before all else.
func (v *Events[E]) Begin(source Source[E]) { v.source = source }

// Read waits for the next event. It returns probe.ErrClosed after Close.
func (v *Events[E]) Read(e *E) error {
	for {
		if err := v.source.Reader.ReadInto(&v.record); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				return probe.ErrClosed
			}
			return fmt.Errorf("read %s: %w", v.source.Name, err)
		}
		offset, err := bootclock.Offset()
		if err != nil {
			return fmt.Errorf("read %s: %w", v.source.Name, err)
		}
		switch err := v.source.Decode(v.record.RawSample, offset, e); {
		case err == nil:
			v.events.Add(1)
			return nil
		case !errors.Is(err, ErrUnwanted):
			v.invalid.Add(1)
		}
	}
}

// Stats returns the counters since Open; they stay readable after Close.
func (v *Events[E]) Stats() probe.Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	dropped := v.dropped()
	return probe.Stats{
		Events: v.events.Load(), Dropped: dropped, Invalid: v.invalid.Load(), Crowded: v.lastCrowded.Records, Crowder: v.lastCrowded.User,
	}
}

// dropped is called with mu held.
func (v *Events[E]) dropped() uint64 {
	if v.closed {
		return v.lastDropped
	}
	if n, err := v.source.Dropped(); err == nil {
		v.lastDropped = n
	}
	if v.source.Crowded != nil {
		if c, err := v.source.Crowded(); err == nil {
			v.lastCrowded = c
		}
	}
	return v.lastDropped
}

// Report says which rung is in use.
func (v *Events[E]) Report() probe.Report { return v.source.Report.Clone() }

// Await reads a ring until got takes a record, which a self-test has caused; others come from
// self-tests of other processes of this program. It returns ladder.ErrSilent where none comes.
func Await[E any](reader *ringbuf.Reader, patience time.Duration, decode func(raw []byte, clockOffset int64, e *E) error, got func(*E) (bool, error)) error {
	reader.SetDeadline(time.Now().Add(patience))
	defer reader.SetDeadline(time.Time{})
	for {
		record, err := reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ladder.ErrSilent
		}
		if err != nil {
			return fmt.Errorf("read the event of the self-test: %w", err)
		}
		offset, err := bootclock.Offset()
		if err != nil {
			return fmt.Errorf("read the event of the self-test: %w", err)
		}
		var e E
		if err := decode(record.RawSample, offset, &e); err != nil {
			return err
		}
		if done, err := got(&e); done || err != nil {
			return err
		}
	}
}

// WhileOpen calls read, which may use the maps, or returns probe.ErrClosed after Close.
func (v *Events[E]) WhileOpen(read func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return probe.ErrClosed
	}
	return read()
}

// Close detaches the probe from every file and unblocks Read. Closing twice is fine. A
// Watch under way detaches what it attaches.
func (v *Events[E]) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil
	}
	v.dropped()
	v.closed = true
	if err := v.source.Close(); err != nil {
		return fmt.Errorf("close %s: %w", v.source.Name, err)
	}
	return nil
}
