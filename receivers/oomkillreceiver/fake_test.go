package oomkillreceiver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

var start = time.Unix(1_700_000_000, 0)

// fakeSource delivers the kills a test gives it.
type fakeSource struct {
	kills  chan oomkill.Event
	failed chan error
	closed chan struct{}
	once   sync.Once
}

func newFakeSource() *fakeSource {
	return &fakeSource{kills: make(chan oomkill.Event), failed: make(chan error, 1), closed: make(chan struct{})}
}

func (f *fakeSource) Read(event *oomkill.Event) error {
	select {
	case *event = <-f.kills:
		return nil
	case err := <-f.failed:
		return err
	case <-f.closed:
		return probe.ErrClosed
	}
}

func (f *fakeSource) Stats() probe.Stats   { return probe.Stats{Events: 1, Dropped: 2, Invalid: 3} }
func (f *fakeSource) Report() probe.Report { return probe.Report{Probe: "oomkill", Rung: "fake"} }
func (f *fakeSource) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// fakeResolver knows the processes a test tells it.
type fakeResolver struct {
	component.StartFunc
	component.ShutdownFunc
	processes map[uint32]identity.Process
}

// Lookup falls back to the parent, as the identity extension does.
func (f *fakeResolver) Lookup(pid, parentPID uint32, _ time.Time) (identity.Process, bool) {
	if p, known := f.processes[pid]; known {
		return p, true
	}
	p, known := f.processes[parentPID]
	p.Inherited = true
	return p, known
}

func (f *fakeResolver) Exits(func(identity.Exit)) func() { return func() {} }
func (f *fakeResolver) Ranks() []identity.Process        { return nil }

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
	case <-time.After(10 * time.Second):
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
	case <-time.After(30 * time.Second):
		require.FailNow(t, "no record came")
		return plog.LogRecord{}
	}
}
