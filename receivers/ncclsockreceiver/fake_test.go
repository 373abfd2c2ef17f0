package ncclsockreceiver

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

var start = time.Unix(1_700_000_000, 0)

// fakeSource has the sockets a test gives it; each snapshot is a second later.
type fakeSource struct {
	mu      sync.Mutex
	at      time.Time
	sockets []ncclsock.Socket
	err     error
	owners  []uint32
	changes chan ncclsock.Change
	closed  chan struct{}
	once    sync.Once
}

func newFakeSource() *fakeSource {
	return &fakeSource{at: start, changes: make(chan ncclsock.Change), closed: make(chan struct{})}
}

func (f *fakeSource) set(err error, sockets ...ncclsock.Socket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.sockets = err, sockets
}

func (f *fakeSource) asked() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owners
}

func (f *fakeSource) Snapshot(owners []uint32, s *ncclsock.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.owners = f.at.Add(time.Second), owners
	*s = ncclsock.Snapshot{Time: f.at, Sockets: append(s.Sockets[:0], f.sockets...), Unreadable: 1, Over: 2}
	return f.err
}

func (f *fakeSource) ReadChange(c *ncclsock.Change) error {
	select {
	case *c = <-f.changes:
		return nil
	case <-f.closed:
		return probe.ErrClosed
	}
}

func (f *fakeSource) Stats() probe.Stats   { return probe.Stats{Events: 1, Dropped: 2, Invalid: 3} }
func (f *fakeSource) Report() probe.Report { return probe.Report{Probe: "ncclsock", Rung: "fake"} }
func (f *fakeSource) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// unread is a socket of process 42 whose peer's header nobody reads. RAS threads
// read in any phase, so no phases need be learned.
func unread() ncclsock.Socket {
	return ncclsock.Socket{
		Cookie: 7, NetNS: 4026531840, PID: 42, Local: netip.MustParseAddrPort("10.0.0.3:28028"), Remote: netip.MustParseAddrPort("10.0.0.2:41000"),
		State: ncclsock.Established, ReceiveQueueBytes: 48, SendWindowBytes: 65536, BytesReceived: 48, LastReceivedAge: 0, LastSentAge: -1,
	}
}

// fakeResolver knows the ranks a test tells it.
type fakeResolver struct {
	component.StartFunc
	component.ShutdownFunc
	ranks []identity.Process
}

func (f *fakeResolver) Lookup(uint32, uint32, time.Time) (identity.Process, bool) {
	return identity.Process{}, false
}
func (f *fakeResolver) Exits(func(identity.Exit)) func() { return func() {} }
func (f *fakeResolver) Ranks() []identity.Process        { return f.ranks }

func rank(pid uint32, number int) identity.Process {
	return identity.Process{
		PID: pid, ParentPID: 7, StartTime: start.Add(-time.Hour), Comm: "python", Rank: number, LocalRank: number % 8, WorldSize: 16,
		JobID: "job-1", MasterAddr: "10.0.0.1", MasterPort: 29500,
	}
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
	case <-time.After(30 * time.Second):
		require.FailNow(t, "no status was reported")
		return nil
	}
}

// sink hands each record on as it comes.
type sink struct {
	consumertest.Consumer
	job     string // "" for all
	records chan plog.LogRecord
	metrics chan pmetric.Metrics
}

func newSink() *sink {
	return &sink{Consumer: consumertest.NewNop(), records: make(chan plog.LogRecord, 10000), metrics: make(chan pmetric.Metrics, 1000)}
}

func (s *sink) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		if job, _ := r.Attributes().Get("gen_ai.training.job_id"); s.job == "" || job.AsString() == s.job {
			s.records <- r
		}
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
	case <-time.After(60 * time.Second):
		require.FailNow(t, "no record came")
		return plog.LogRecord{}
	}
}
