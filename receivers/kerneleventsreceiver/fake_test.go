package kerneleventsreceiver

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
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

var start = time.Unix(1_700_000_000, 0)

// fakeSource delivers the records a test gives it.
type fakeSource struct {
	records chan kmsg.Event
	failed  chan error
	closed  chan struct{}
	once    sync.Once
}

func newFakeSource() *fakeSource {
	return &fakeSource{records: make(chan kmsg.Event), failed: make(chan error, 1), closed: make(chan struct{})}
}

func (f *fakeSource) Read(event *kmsg.Event) error {
	select {
	case *event = <-f.records:
		return nil
	case err := <-f.failed:
		return err
	case <-f.closed:
		return probe.ErrClosed
	}
}

func (f *fakeSource) Stats() probe.Stats   { return probe.Stats{Events: 1, Dropped: 2, Invalid: 3} }
func (f *fakeSource) Report() probe.Report { return probe.Report{Probe: "kmsg", Rung: "fake"} }
func (f *fakeSource) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// write gives one line of the kernel and returns when the receiver took it.
func (f *fakeSource) write(text string) {
	f.records <- kmsg.Event{Time: start, CPU: 1, Writer: kmsg.WriterKernel, Text: text}
}

// fakeResolver knows the processes a test tells it.
type fakeResolver struct {
	component.StartFunc
	component.ShutdownFunc
	processes map[uint32]identity.Process
	mu        sync.Mutex
	lookups   int
	exit      func(identity.Exit)
}

func (f *fakeResolver) Lookup(pid, _ uint32, _ time.Time) (identity.Process, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookups++
	process, known := f.processes[pid]
	return process, known
}

func (f *fakeResolver) Exits(fn func(identity.Exit)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exit = fn
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.exit = nil
	}
}

func (f *fakeResolver) Ranks() []identity.Process { return nil }

func (f *fakeResolver) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exit != nil
}

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

// sink hands each record on as it comes.
type sink struct {
	consumertest.Consumer
	records chan plog.LogRecord
}

func newSink() *sink {
	return &sink{Consumer: consumertest.NewNop(), records: make(chan plog.LogRecord, 1000)}
}

func (s *sink) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, r := range scope.LogRecords().All() {
				s.records <- r
			}
		}
	}
	return nil
}

func (s *sink) next(t *testing.T) plog.LogRecord {
	select {
	case r := <-s.records:
		return r
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no record came")
		return plog.LogRecord{}
	}
}

func (s *sink) status(t *testing.T, host *fakeHost) *componentstatus.Event {
	select {
	case event := <-host.statuses:
		return event
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no status was reported")
		return nil
	}
}
