package ncclsockreceiver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
)

var identityID = component.MustNewID("identity")

// bench is a receiver of both signals on fakes, whose time a test drives.
type bench struct {
	*sink
	logs, metrics receiver.Logs
	factory       receiver.Factory
	settings      receiver.Settings
	source        *fakeSource
	opened        int
	openError     error
	host          *fakeHost
	resolver      *fakeResolver
	config        *Config
	telemetry     *componenttest.Telemetry
	ticks         chan time.Time
}

func newBench(t *testing.T, next consumer.Logs) *bench {
	b := &bench{
		sink: newSink(), source: newFakeSource(), host: newFakeHost(), telemetry: componenttest.NewTelemetry(),
		resolver: &fakeResolver{ranks: []identity.Process{rank(42, 3)}}, config: createDefaultConfig().(*Config), ticks: make(chan time.Time),
	}
	b.host.extensions[identityID] = b.resolver
	b.config.Identity = &identityID
	t.Cleanup(func() { require.NoError(t, b.telemetry.Shutdown(context.Background())) })
	if next == nil {
		next = b.sink
	}
	b.settings = receivertest.NewNopSettings(metadata.Type)
	b.settings.TelemetrySettings = b.telemetry.NewTelemetrySettings()
	b.factory = newFactory(func(uint32, uint32) (source, error) {
		b.opened++
		return b.source, b.openError
	})
	var err error
	b.logs, err = b.factory.CreateLogs(t.Context(), b.settings, b.config, next)
	require.NoError(t, err)
	b.logs.(*instance).share.Value.ticks = func(time.Duration) (<-chan time.Time, func()) { return b.ticks, func() {} }
	b.metrics, err = b.factory.CreateMetrics(t.Context(), b.settings, b.config, b.sink)
	require.NoError(t, err)
	return b
}

func (b *bench) start(t *testing.T) {
	for _, r := range []receiver.Logs{b.logs, b.metrics} {
		require.NoError(t, r.Start(t.Context(), b.host))
	}
	t.Cleanup(func() { b.stop(t) })
}

func (b *bench) stop(t *testing.T) {
	for _, r := range []receiver.Logs{b.logs, b.metrics} {
		require.NoError(t, r.Shutdown(context.Background()))
	}
}

// look lets n snapshots be taken; that the last is over shows with the next.
func (b *bench) look(n int) {
	for range n {
		b.ticks <- start
	}
}

// counter is the value of a metric, 0 before its first point.
func (b *bench) counter(t *testing.T, name string) int64 {
	m, err := b.telemetry.GetMetric("otelcol_" + name)
	if err != nil {
		return 0
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		return data.DataPoints[0].Value
	case metricdata.Gauge[int64]:
		return data.DataPoints[0].Value
	}
	require.Failf(t, "no integer metric", "%s: %T", name, m.Data)
	return 0
}

func TestUnreadBytesBecomeARecordAndItsEnd(t *testing.T) {
	b := newBench(t, nil)
	b.source.set(nil, unread())
	b.start(t)
	b.look(7)
	r := b.next(t)
	require.Equal(t, "nccl.socket.stall", r.EventName())
	require.Equal(t, start.Add(6*time.Second).UnixNano(), int64(r.Timestamp()))
	require.Equal(t, plog.SeverityNumberWarn, r.SeverityNumber())
	a := r.Attributes().AsRaw()
	require.EqualValues(t, 42, a["process.pid"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "not_reading", a["nccl.socket.cause"])
	require.Equal(t, "ras", a["nccl.socket.kind"])
	require.EqualValues(t, 5*time.Second, a["nccl.socket.stall.age_ns"])
	require.Equal(t, []uint32{42}, b.source.asked())

	gone := unread()
	gone.ReceiveQueueBytes, gone.BytesRead = 0, 48
	b.source.set(nil, gone)
	b.look(2)
	end := b.next(t)
	require.Equal(t, "nccl.socket.stall.end", end.EventName())
	e := end.Attributes().AsRaw()
	require.Equal(t, a["nccl.socket.stall.id"], e["nccl.socket.stall.id"])
	require.Equal(t, "progress", e["nccl.socket.stall.end_reason"])
	b.stop(t)
	require.Empty(t, b.records)
	require.EqualValues(t, 2, b.counter(t, "receiver_accepted_log_records"))
}

func TestBothSignalsShareOneProbe(t *testing.T) {
	b := newBench(t, nil)
	b.source.set(nil, unread())
	b.start(t)
	require.Equal(t, 1, b.opened)
	b.look(1)
	m := (<-b.sink.metrics).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	require.Equal(t, 2, m.Len(), "traffic and retransmits; nothing has stalled")
	point := m.At(0).Sum().DataPoints().At(0).Attributes().AsRaw()
	require.Equal(t, "job-1", point["gen_ai.training.job_id"])
	require.Equal(t, "10.0.0.2", point["network.peer.address"])
	require.NoError(t, b.logs.Shutdown(t.Context()))
	<-b.source.closed
	require.NoError(t, b.metrics.Shutdown(t.Context()))

	again, err := b.factory.CreateLogs(t.Context(), b.settings, b.config, b.sink)
	require.NoError(t, err)
	require.NotSame(t, b.logs.(*instance).share.Value, again.(*instance).share.Value, "a component that stopped is not taken up again")
	require.NoError(t, again.Shutdown(t.Context()))
}

func TestRefusedConnectionBecomesARecord(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	w := b.logs.(*instance).share.Value
	refused := ncclsock.Change{Local: unread().Local, Remote: unread().Local, Old: ncclsock.SynSent, New: ncclsock.Close, Error: 111}
	for range 5 {
		b.source.changes <- refused // with the namespace of a process that /proc does not show
		b.look(1)
	}
	b.stop(t)
	require.Empty(t, b.records, "it is nobody's")
	require.Zero(t, w.lost.Load())
}

func TestProbesCountersAreMetrics(t *testing.T) {
	b := newBench(t, nil)
	b.source.set(nil, unread())
	b.start(t)
	b.look(3)
	require.EqualValues(t, 1, b.counter(t, "receiver_ncclsock_probe_up"))
	require.EqualValues(t, 2, b.counter(t, "receiver_ncclsock_probe_dropped"))
	require.EqualValues(t, 3, b.counter(t, "receiver_ncclsock_probe_invalid"))
	require.EqualValues(t, 1, b.counter(t, "receiver_ncclsock_ranks"))
	require.EqualValues(t, 1, b.counter(t, "receiver_ncclsock_sockets"))
	require.GreaterOrEqual(t, b.counter(t, "receiver_ncclsock_snapshots"), int64(2))
	require.GreaterOrEqual(t, b.counter(t, "receiver_ncclsock_processes_skipped"), int64(2))
	require.GreaterOrEqual(t, b.counter(t, "receiver_ncclsock_sockets_skipped"), int64(4))
}

func TestTooManyProcessesKeepsThoseThatWereLaunched(t *testing.T) {
	b := newBench(t, nil)
	b.config.MaxProcesses = 2
	worker := rank(1, 3)
	worker.Inherited = true
	b.resolver.ranks = []identity.Process{worker, rank(42, 3), rank(43, 4)}
	b.start(t)
	b.look(2)
	require.Equal(t, []uint32{42, 43}, b.source.asked())
	b.stop(t)
	require.GreaterOrEqual(t, b.counter(t, "receiver_ncclsock_processes_skipped"), int64(2))
}

func TestEventSwitchedOffIsNotEmitted(t *testing.T) {
	b := newBench(t, nil)
	b.logs.(*instance).share.Value.convert.events.NcclSocketStall.Enabled = false
	b.source.set(nil, unread())
	b.start(t)
	b.look(8)
	b.stop(t)
	require.Empty(t, b.records)
}

func TestShutdownBeforeStartAndTwice(t *testing.T) {
	b := newBench(t, nil)
	b.stop(t)
	b.stop(t)
	require.Error(t, b.logs.Start(t.Context(), b.host))

	b = newBench(t, nil)
	b.start(t)
	b.stop(t)
	b.stop(t)
}

func TestMissingIdentityExtensionIsAnErrorInEitherMode(t *testing.T) {
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		b := newBench(t, nil)
		b.config.ErrorMode = mode
		require.ErrorContains(t, b.logs.Start(t.Context(), newFakeHost()), "no such extension")
		b.stop(t)
	}
}

func TestWithoutIdentityThereIsNobodyToWatch(t *testing.T) {
	b := newBench(t, nil)
	b.config.Identity = nil
	require.ErrorContains(t, b.logs.Start(t.Context(), b.host), "set identity")
	b.stop(t)
}

func TestProbeThatDoesNotOpen(t *testing.T) {
	refuse := errors.New("iterators need Linux 5.8")
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t, nil)
			b.config.ErrorMode = mode
			b.openError = refuse
			err := b.logs.Start(t.Context(), b.host)
			if mode == record.Propagate {
				require.ErrorIs(t, err, refuse)
				require.ErrorIs(t, b.metrics.Start(t.Context(), b.host), refuse)
				require.Empty(t, b.host.statuses)
			} else {
				require.NoError(t, err)
				event := b.host.status(t)
				require.Equal(t, componentstatus.StatusPermanentError, event.Status())
				require.ErrorIs(t, event.Err(), refuse)
				require.Zero(t, b.counter(t, "receiver_ncclsock_probe_up"))
			}
			b.stop(t)
		})
	}
}

func TestProbeThatFailsLater(t *testing.T) {
	broken := errors.New("out of memory")
	for mode, status := range map[record.ErrorMode]componentstatus.Status{
		record.Propagate: componentstatus.StatusFatalError, record.Ignore: componentstatus.StatusRecoverableError,
	} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t, nil)
			b.config.ErrorMode = mode
			b.start(t)
			b.source.set(broken)
			b.look(maxFailures)
			event := b.host.status(t)
			require.Equal(t, status, event.Status())
			require.ErrorIs(t, event.Err(), broken)
			require.Zero(t, b.counter(t, "receiver_ncclsock_probe_up"))
			b.source.set(nil)
			b.look(2)
			require.Equal(t, componentstatus.StatusOK, b.host.status(t).Status())
			require.EqualValues(t, 1, b.counter(t, "receiver_ncclsock_probe_up"))
		})
	}
}

func TestRefusedRecordIsCounted(t *testing.T) {
	refused := make(chan struct{}, 2)
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		refused <- struct{}{}
		return consumererror.NewPermanent(errors.New("no"))
	})
	require.NoError(t, err)
	b := newBench(t, next)
	b.source.set(nil, unread())
	b.start(t)
	b.look(7)
	<-refused
	b.stop(t)
	require.EqualValues(t, 1, b.counter(t, "receiver_ncclsock_records_dropped"))
}

func TestConsumerThatHangsHoldsNeitherSnapshotsNorShutdown(t *testing.T) {
	entered, release := make(chan struct{}, 100), make(chan struct{})
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	require.NoError(t, err)
	b := newBench(t, next)
	b.source.set(nil, unread())
	for _, r := range []receiver.Logs{b.logs, b.metrics} {
		require.NoError(t, r.Start(t.Context(), b.host))
	}
	b.look(7)
	<-entered
	b.look(12 * outboxSize) // a repeat or a report of metrics every tenth
	require.NotZero(t, b.counter(t, "receiver_ncclsock_records_dropped"), "the outbox is full")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.logs.Shutdown(ctx), context.Canceled)
	close(release)
	b.logs.(*instance).share.Value.delivery.Wait()
	require.NoError(t, b.metrics.Shutdown(t.Context()))
}
