package cudaoomreceiver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

var start = time.Unix(1_700_000_000, 0)

// fakeSource delivers the events a test gives it.
type fakeSource struct {
	events  chan cudaoom.Event
	failed  chan error
	watches chan []cudaoom.Process
	watched cudaoom.Watched
	closed  chan struct{}
	once    sync.Once
}

func newFakeSource() *fakeSource {
	return &fakeSource{
		events: make(chan cudaoom.Event), failed: make(chan error, 1), watches: make(chan []cudaoom.Process, 100), closed: make(chan struct{}),
		watched: cudaoom.Watched{Libraries: 4, Over: 5, Failed: 6, Unreadable: 7, Err: errors.New("libcuda of process 7 is damaged")},
	}
}

func (f *fakeSource) Watch(processes []cudaoom.Process) (cudaoom.Watched, error) {
	select {
	case <-f.closed:
		return cudaoom.Watched{}, probe.ErrClosed
	case f.watches <- processes:
		return f.watched, nil
	}
}

func (f *fakeSource) Read(event *cudaoom.Event) error {
	select {
	case *event = <-f.events:
		return nil
	case err := <-f.failed:
		return err
	case <-f.closed:
		return probe.ErrClosed
	}
}

func (f *fakeSource) Stats() probe.Stats   { return probe.Stats{Events: 1, Dropped: 2, Invalid: 3} }
func (f *fakeSource) Report() probe.Report { return probe.Report{Probe: "cudaoom", Rung: "fake"} }
func (f *fakeSource) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// fakeResolver knows the ranks a test tells it.
type fakeResolver struct {
	component.StartFunc
	component.ShutdownFunc
	ranks []identity.Process

	mu     sync.Mutex // guards listen
	listen func(identity.Exit)
}

func (f *fakeResolver) Lookup(pid, _ uint32, _ time.Time) (identity.Process, bool) {
	for _, p := range f.ranks {
		if p.PID == pid {
			return p, true
		}
	}
	return identity.Process{}, false
}

func (f *fakeResolver) Exits(fn func(identity.Exit)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listen = fn
	return func() {}
}

// exit tells of the end of a process as soon as somebody listens.
func (f *fakeResolver) exit(t *testing.T, pid uint32) {
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.listen != nil {
			f.listen(identity.Exit{Process: identity.Process{PID: pid}})
		}
		return f.listen != nil
	}, time.Minute, time.Millisecond)
}

func (f *fakeResolver) Ranks() []identity.Process { return slices.Clone(f.ranks) }

// fakeHost has extensions and hears component status.
type fakeHost struct {
	extensions map[component.ID]component.Component
	statuses   chan *componentstatus.Event
}

func newFakeHost() *fakeHost {
	return &fakeHost{extensions: map[component.ID]component.Component{}, statuses: make(chan *componentstatus.Event, 8)}
}

func (f *fakeHost) GetExtensions() map[component.ID]component.Component { return f.extensions }
func (f *fakeHost) Report(event *componentstatus.Event)                 { f.statuses <- event }

func (f *fakeHost) status(t *testing.T) *componentstatus.Event {
	select {
	case event := <-f.statuses:
		return event
	case <-time.After(time.Minute):
		require.FailNow(t, "no status was reported")
		return nil
	}
}

// sink hands each record on as it comes.
type sink struct {
	consumertest.Consumer
	records chan plog.LogRecord
}

func newSink() *sink {
	return &sink{Consumer: consumertest.NewNop(), records: make(chan plog.LogRecord, 1000)}
}

func (s *sink) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	s.records <- logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	return nil
}

func (s *sink) next(t testing.TB) plog.LogRecord {
	select {
	case r := <-s.records:
		return r
	case <-time.After(time.Minute):
		require.FailNow(t, "no record came")
		return plog.LogRecord{}
	}
}
