//go:build linux && (amd64 || arm64)

// Package ncclsock shows, without touching a byte on its way, where the TCP
// connections of chosen processes stand: what is unread, unsent and
// unacknowledged in each socket, when it last moved, and the rare events of its
// life. It sees every network namespace.
package ncclsock

//go:generate go tool bpf2go -go-package ncclsock -tags linux -target bpfel -type socket_record -type change -type endpoints bpf ncclsock.bpf.c

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Name of the probe in reports.
const Name = "ncclsock"

// Limits of one snapshot. Eight ranks with 32 channels of 4 sockets each way hold
// 2,048 sockets.
const (
	DefaultMaxSockets = 16384
	DefaultMaxOwners  = 1024
)

// Options of the probe; the zero value is right for production.
type Options struct {
	Rung       string // use this rung and no other (see Rungs)
	MaxSockets uint32 // in one snapshot, 0: DefaultMaxSockets
	MaxOwners  uint32 // processes looked at, 0: DefaultMaxOwners
	RingBytes  uint32 // size of the ring of changes, a power of two and at least a page; 0: 256 KiB, 2,300 changes

	pages *pageVariables // learned by Try when nil
}

func (o Options) withDefaults() Options {
	if o.MaxSockets == 0 {
		o.MaxSockets = DefaultMaxSockets
	}
	if o.MaxOwners == 0 {
		o.MaxOwners = DefaultMaxOwners
	}
	return o
}

// source is one rung, in use.
type source interface {
	// snapshot fills s, whose Time is set and which is empty otherwise, for owners,
	// which are sorted, unique and not too many.
	snapshot(owners []uint32, s *Snapshot) error
	// readChange returns errInvalid for a record that cannot be.
	readChange(*Change) error
	setDeadline(time.Time)
	// forget drops every owner, socket and change that the self-test left.
	forget() error
	lost() (dropped uint64, crowded room.Crowded, err error)
	close() error
}

// Probe looks at sockets from the moment it is open. Snapshot is for one goroutine
// and ReadChange for one other; the remaining methods are safe beside them.
type Probe struct {
	source source
	opts   Options
	owners []uint32 // reused by Snapshot

	events, invalid atomic.Uint64

	mu      sync.Mutex // guards what follows
	report  probe.Report
	closed  bool
	dropped uint64 // at the last look
	crowded room.Crowded

	reading sync.RWMutex // held by Snapshot, so that Close waits for it
}

// Open takes the best rung that works on this kernel and was seen to fire: a
// connection over the loopback interface must show its unread bytes, and a refused
// one its error. When none does, the error says why for each.
func Open(opts Options) (*Probe, error) {
	p, _, err := Try(opts)
	return p, err
}

// Try is Open that returns the report also when no rung works.
func Try(opts Options) (*Probe, probe.Report, error) {
	opts = opts.withDefaults()
	if opts.pages == nil {
		opts.pages = learnPageVariables()
	}
	src, report, err := ladder.Climb(Name, opts.Rung, rungs(opts))
	if err != nil {
		return nil, report, err
	}
	if last := len(report.Attempts) - 1; !report.Attempts[last].Fired {
		report.Attempts[last].Hint = "the self-test needs a loopback interface that is up"
	}
	return &Probe{source: src, opts: opts, report: report}, report, nil
}

// Snapshot fills s with the TCP sockets that owners hold now: thread group ids in
// the initial pid namespace. A process that is gone holds none. The slices of s
// are reused, so a Socket is good until the next call with the same s.
func (p *Probe) Snapshot(owners []uint32, s *Snapshot) error {
	p.reading.RLock()
	defer p.reading.RUnlock()
	if p.isClosed() {
		return probe.ErrClosed
	}
	var over int
	p.owners, over = chosen(p.owners[:0], owners, p.opts.MaxOwners)
	*s = Snapshot{Time: time.Now(), Sockets: s.Sockets[:0], Unreadable: over}
	if err := p.source.snapshot(p.owners, s); err != nil {
		return fmt.Errorf("snapshot %s: %w", Name, err)
	}
	return nil
}

// Stats returns the counters of changes since Open; they stay readable after Close.
func (p *Probe) Stats() probe.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count()
	return probe.Stats{Events: p.events.Load(), Dropped: p.dropped, Invalid: p.invalid.Load(), Crowded: p.crowded.Records, Crowder: p.crowded.User}
}

// count takes the kernel side's counter while there is one.
func (p *Probe) count() {
	if p.closed {
		return
	}
	if dropped, crowded, err := p.source.lost(); err == nil {
		p.dropped, p.crowded = dropped, crowded
	}
}

// Report says which rung is in use and why not a better one.
func (p *Probe) Report() probe.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report.Clone()
}

// Close detaches the probe, waits for a Snapshot under way and unblocks
// ReadChange. Closing twice is fine.
func (p *Probe) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.count()
	p.closed = true
	p.mu.Unlock()
	p.reading.Lock()
	defer p.reading.Unlock()
	if err := p.source.close(); err != nil {
		return fmt.Errorf("close %s: %w", Name, err)
	}
	return nil
}

func (p *Probe) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}
