package fusefaultreceiver

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
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/node"
)

// Requests of the tests (include/uapi/linux/fuse.h, enum fuse_opcode).
const (
	opRead  = 15
	opWrite = 16
)

var (
	start = time.Unix(1_700_000_000, 0)
	data  = fusefault.Device{Minor: 52}
)

// fakeSource shows each snapshot that a test gives it once, and the last again.
type fakeSource struct {
	mu     sync.Mutex
	queue  []fusefault.Snapshot
	shown  fusefault.Snapshot
	err    error
	closed bool
}

func (f *fakeSource) show(s fusefault.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, s)
}

func (f *fakeSource) Snapshot(s *fusefault.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return probe.ErrClosed
	}
	if len(f.queue) > 0 {
		f.shown, f.queue = f.queue[0], f.queue[1:]
	}
	*s = f.shown
	return f.err
}

func (f *fakeSource) Report() probe.Report { return probe.Report{Probe: "fusefault", Rung: "fake"} }

func (f *fakeSource) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// fakeMachine knows what a test tells it.
type fakeMachine struct {
	mu        sync.Mutex                       // a test tells while the receiver asks
	mounts    map[string]map[uint32]node.Mount // by process, by minor number
	processes map[uint32]node.Process
	waiting   map[uint32]int64
}

func newFakeMachine() *fakeMachine {
	return &fakeMachine{
		mounts: map[string]map[uint32]node.Mount{}, processes: map[uint32]node.Process{},
		waiting: map[uint32]int64{},
	}
}

// mount puts a mount into the table of a process.
func (f *fakeMachine) mount(process string, minor uint32, m node.Mount) {
	if f.mounts[process] == nil {
		f.mounts[process] = map[uint32]node.Mount{}
	}
	m.SeenBy = process
	f.mounts[process][minor] = m
}

// lives makes a process one that lives.
func (f *fakeMachine) lives(pid uint32, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes[pid] = node.Process{Name: name, State: node.Alive}
}

func (f *fakeMachine) Mount(_, minor uint32, processes ...string) (node.Mount, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, process := range processes {
		if m, found := f.mounts[process][minor]; found {
			return m, true
		}
	}
	return node.Mount{}, false
}

func (f *fakeMachine) Gone(_, minor uint32, process string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	table, readable := f.mounts[process]
	_, there := table[minor]
	return readable && !there
}

func (f *fakeMachine) Process(pid uint32) node.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, known := f.processes[pid]; known {
		return p
	}
	return node.Process{State: node.Gone}
}

func (f *fakeMachine) Ended(pid, _ uint32) bool { return f.Process(pid).State == node.Gone }

func (f *fakeMachine) Waiting(_, minor uint32) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting, known := f.waiting[minor]
	return waiting, known
}

func (f *fakeMachine) StuckReads() uint64 { return 7 }

// fakeResolver knows the processes a test tells it.
type fakeResolver struct {
	identity.Resolver // nobody asks for more than Lookup
	component.StartFunc
	component.ShutdownFunc
	processes map[uint32]identity.Process
}

func (f *fakeResolver) Lookup(pid, _ uint32, _ time.Time) (identity.Process, bool) {
	p, known := f.processes[pid]
	return p, known
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

func (f *fakeHost) status(t *testing.T) *componentstatus.Event {
	select {
	case event := <-f.statuses:
		return event
	case <-time.After(time.Minute):
		require.FailNow(t, "no status was reported")
		return nil
	}
}

// sink hands on what comes.
type sink struct {
	consumertest.Consumer
	records chan plog.LogRecord
	metrics chan pmetric.Metrics
}

func newSink() *sink {
	return &sink{Consumer: consumertest.NewNop(), records: make(chan plog.LogRecord, 1000), metrics: make(chan pmetric.Metrics, 1000)}
}

func (s *sink) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		s.records <- r
	}
	return nil
}

func (s *sink) ConsumeMetrics(_ context.Context, metrics pmetric.Metrics) error {
	s.metrics <- metrics
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

// answers is a histogram of so many requests.
func answers(count uint64) fusefault.Histogram {
	var h fusefault.Histogram
	h.Buckets[9] = count
	h.SumNS = count * 300_000
	return h
}
