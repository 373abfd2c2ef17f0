// Package probereceivertest is the bench on which receivers over a probe are tested:
// fakes of all that surrounds them, and the tests that each of them must pass.
package probereceivertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// Start is when the events of a test happen, long ago.
var Start = time.Unix(1_700_000_000, 0)

// soon is how long a test waits for what must come.
const soon = hosttest.Patience

// Probe has what every probe has: counters, a rung, an end.
type Probe struct {
	Closed   chan struct{}
	Unproven string // as in its report; set before it is given away
	Away     probe.Away
	Crowded  atomic.Uint64 // records of user 1000 that it refused
	once     sync.Once
}

// NewProbe makes an open one.
func NewProbe() *Probe { return &Probe{Closed: make(chan struct{})} }

// Stats has a number of its own for each counter.
func (p *Probe) Stats() probe.Stats {
	return probe.Stats{Events: 1, Dropped: 2, Invalid: 3, Crowded: p.Crowded.Load(), Crowder: 1000}
}

// Report names the rung "fake".
func (p *Probe) Report() probe.Report {
	return probe.Report{Rung: "fake", Unproven: p.Unproven, Away: p.Away}
}

// Close closes it.
func (p *Probe) Close() error {
	p.once.Do(func() { close(p.Closed) })
	return nil
}

// EventSource is a probe whose events a test gives.
type EventSource[E any] struct {
	*Probe
	Events chan E
	Broken chan error
}

// NewEventSource makes an open one.
func NewEventSource[E any]() *EventSource[E] {
	return &EventSource[E]{Probe: NewProbe(), Events: make(chan E), Broken: make(chan error)}
}

// Read waits for an event, for what breaks the probe, or for its end.
func (s *EventSource[E]) Read(event *E) error {
	select {
	case *event = <-s.Events:
		return nil
	case err := <-s.Broken:
		return err
	case <-s.Closed:
		return probe.ErrClosed
	}
}

// Storage is a storage extension in memory, with one client for all who ask.
type Storage struct {
	component.StartFunc
	component.ShutdownFunc
	storage.Client
}

// NewStorage makes an empty one.
func NewStorage() *Storage { return &Storage{Client: &kept{values: map[string][]byte{}}} }

// Killed is a storage with what this one has kept by now, as the next process finds it after a SIGKILL.
func (s *Storage) Killed() *Storage {
	k := s.Client.(*kept)
	k.mu.Lock()
	defer k.mu.Unlock()
	return &Storage{Client: &kept{values: maps.Clone(k.values)}}
}

// GetClient returns the client.
func (s *Storage) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return s.Client, nil
}

// kept is what a storage keeps. Who closes it may be followed by another.
type kept struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (k *kept) Get(_ context.Context, key string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.values[key], nil
}

func (k *kept) Set(_ context.Context, key string, value []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.values[key] = value
	return nil
}

func (k *kept) Delete(ctx context.Context, key string) error { return k.Set(ctx, key, nil) }

// Batch sets values; nobody asks it for more.
func (k *kept) Batch(ctx context.Context, all ...*storage.Operation) error {
	for _, one := range all {
		if one.Type != storage.Set {
			return errors.ErrUnsupported
		}
		_ = k.Set(ctx, one.Key, one.Value)
	}
	return nil
}

func (k *kept) Close(context.Context) error { return nil }

// Resolver knows the processes that a test tells it.
type Resolver struct {
	component.StartFunc
	component.ShutdownFunc

	mu        sync.Mutex // guards what follows
	processes []identity.Process
	asked     []identity.Asked
	lookups   int
	listener  func(identity.Exit)
}

// Know makes these the processes known.
func (r *Resolver) Know(processes ...identity.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = processes
}

// Lookup falls back to the parent, as the identity extension does.
func (r *Resolver) Lookup(pid, parentPID uint32, _ time.Time) (identity.Process, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookups++
	for _, wanted := range []uint32{pid, parentPID} {
		for _, p := range r.processes {
			if p.PID == wanted {
				p.Inherited = p.Inherited || wanted != pid
				return p, true
			}
		}
	}
	return identity.Process{}, false
}

// Ask makes these the ranks that were asked to end.
func (r *Resolver) Ask(asked ...identity.Asked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = asked
}

// Asked returns them.
func (r *Resolver) Asked() []identity.Asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// Lookups counts the calls of Lookup.
func (r *Resolver) Lookups() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookups
}

// Ranks returns all processes.
func (r *Resolver) Ranks() []identity.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.processes)
}

// EndedUnseen reports whether a process is none of those known.
func (r *Resolver) EndedUnseen(p identity.Born) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.processes, func(o identity.Process) bool { return o.Born() == p })
}

// Exits takes one listener.
func (r *Resolver) Exits(fn func(identity.Exit)) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener = fn
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.listener = nil
	}
}

// Exit tells of the end of a process, as soon as somebody listens.
func (r *Resolver) Exit(t testing.TB, exit identity.Exit) {
	if !r.Watched() {
		require.Eventually(t, r.Watched, soon, time.Millisecond, "nobody listens to exits")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		r.listener(exit)
	}
}

// Watched reports whether anybody listens to exits.
func (r *Resolver) Watched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listener != nil
}

// Host has extensions and hears component status.
type Host struct {
	Extensions map[component.ID]component.Component
	Statuses   chan *componentstatus.Event
}

// NewHost makes one without extensions.
func NewHost() *Host {
	return &Host{Extensions: map[component.ID]component.Component{}, Statuses: make(chan *componentstatus.Event, 100)}
}

// GetExtensions is component.Host's.
func (h *Host) GetExtensions() map[component.ID]component.Component { return h.Extensions }

// Report is componentstatus.Reporter's.
func (h *Host) Report(event *componentstatus.Event) { h.Statuses <- event }

// Status waits for the next status.
func (h *Host) Status(t testing.TB) *componentstatus.Event {
	return next(t, h.Statuses, "no status was reported")
}

// Sink hands on what comes, record by record.
type Sink struct {
	consumertest.Consumer
	Records chan plog.LogRecord
	Metrics chan pmetric.Metrics
	// Wants, if set, is which records it takes.
	Wants func(plog.LogRecord) bool
}

// NewSink makes an empty one.
func NewSink() *Sink {
	return &Sink{Consumer: consumertest.NewNop(), Records: make(chan plog.LogRecord, 100_000), Metrics: make(chan pmetric.Metrics, 10_000)}
}

// ConsumeLogs is consumer.Logs'.
func (s *Sink) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	EachRecord(logs, func(r plog.LogRecord) {
		if s.Wants == nil || s.Wants(r) {
			s.Records <- r
		}
	})
	return nil
}

// ConsumeMetrics is consumer.Metrics'.
func (s *Sink) ConsumeMetrics(_ context.Context, metrics pmetric.Metrics) error {
	s.Metrics <- metrics
	return nil
}

// Next waits for the next record.
func (s *Sink) Next(t testing.TB) plog.LogRecord { return next(t, s.Records, "no record came") }

// NextMetrics waits for the next metrics.
func (s *Sink) NextMetrics(t testing.TB) pmetric.Metrics {
	return next(t, s.Metrics, "no metrics came")
}

func next[T any](t testing.TB, from chan T, problem string) T {
	t.Helper()
	var one T
	select {
	case one = <-from:
	case <-time.After(soon):
		require.FailNow(t, problem)
	}
	return one
}

// EachRecord calls do for each record of all resources and scopes.
func EachRecord(logs plog.Logs, do func(plog.LogRecord)) {
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, r := range scope.LogRecords().All() {
				do(r)
			}
		}
	}
}

// Clock passes time only as the test says: a tick is taken when the receiver has
// done what it did for the tick before.
type Clock struct {
	mu    sync.Mutex
	ticks map[time.Duration]chan time.Time
}

func (c *Clock) of(interval time.Duration) chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ticks == nil {
		c.ticks = map[time.Duration]chan time.Time{}
	}
	if c.ticks[interval] == nil {
		c.ticks[interval] = make(chan time.Time)
	}
	return c.ticks[interval]
}

// Ticks is probereceiver.Ticks.
func (c *Clock) Ticks(interval time.Duration) (<-chan time.Time, func()) {
	return c.of(interval), func() {}
}

// Tick lets an interval of that length pass; it is then that time.
func (c *Clock) Tick(t testing.TB, interval time.Duration, now time.Time) {
	t.Helper()
	select {
	case c.of(interval) <- now:
	case <-time.After(soon):
		require.FailNow(t, "nobody waits for "+interval.String())
	}
}
