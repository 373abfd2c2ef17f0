package oomkillreceiver

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
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

var identityID = component.MustNewID("identity")

// bench is a receiver on fakes.
type bench struct {
	*sink
	receiver  receiver.Logs
	source    *fakeSource
	host      *fakeHost
	resolver  *fakeResolver
	config    *Config
	telemetry *componenttest.Telemetry
}

func newBench(t *testing.T, next consumer.Logs) *bench {
	b := &bench{
		sink: newSink(), source: newFakeSource(), host: newFakeHost(), telemetry: componenttest.NewTelemetry(),
		resolver: &fakeResolver{processes: map[uint32]identity.Process{}}, config: createDefaultConfig().(*Config),
	}
	b.host.extensions[identityID] = b.resolver
	b.config.Identity = &identityID
	t.Cleanup(func() { require.NoError(t, b.telemetry.Shutdown(context.Background())) })
	if next == nil {
		next = b.sink
	}
	settings := receivertest.NewNopSettings(metadata.Type)
	settings.TelemetrySettings = b.telemetry.NewTelemetrySettings()
	var err error
	b.receiver, err = newFactory(func() (source, error) { return b.source, nil }).CreateLogs(t.Context(), settings, b.config, next)
	require.NoError(t, err)
	return b
}

func (b *bench) start(t *testing.T) {
	require.NoError(t, b.receiver.Start(t.Context(), b.host))
	t.Cleanup(func() { require.NoError(t, b.receiver.Shutdown(context.Background())) })
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

func TestKillOfARanksWorkerBecomesARecord(t *testing.T) {
	b := newBench(t, nil)
	b.resolver.processes[7] = identity.Process{PID: 7, Comm: "torchrun", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1"}
	b.start(t)
	b.source.kills <- cgroupKill()
	r := b.next(t)
	require.Equal(t, "oom.kill", r.EventName())
	require.Equal(t, start.UnixNano(), int64(r.Timestamp()))
	require.Equal(t, plog.SeverityNumberError, r.SeverityNumber())
	a := r.Attributes().AsRaw()
	require.EqualValues(t, 42, a["process.pid"])
	require.EqualValues(t, 7, a["process.parent_pid"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "cgroup", a["oomkill.constraint"])
	require.Equal(t, "oom_killed", a["k8s.event.hint"])

	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.counter(t, "receiver_oomkill_kills"))
	// The consumer has the record before the receiver hears that it took it.
	require.Eventually(t, func() bool { return b.counter(t, "receiver_accepted_log_records") == 1 }, 10*time.Second, time.Millisecond)
}

func TestProbesCountersAreMetrics(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	require.EqualValues(t, 1, b.counter(t, "receiver_oomkill_probe_up"))
	require.EqualValues(t, 2, b.counter(t, "receiver_oomkill_probe_dropped"))
	require.EqualValues(t, 3, b.counter(t, "receiver_oomkill_probe_invalid"))
}

func TestEventSwitchedOffIsReadAndNotEmitted(t *testing.T) {
	b := newBench(t, nil)
	b.config.Events.OomKill.Enabled = false
	b.start(t)
	b.source.kills <- cgroupKill()
	b.source.kills <- cgroupKill()
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.Empty(t, b.records)
	require.EqualValues(t, 2, b.counter(t, "receiver_oomkill_kills"))
}

func TestShutdownBeforeStartAndTwice(t *testing.T) {
	b := newBench(t, nil)
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.NoError(t, b.receiver.Shutdown(t.Context()))

	b = newBench(t, nil)
	require.NoError(t, b.receiver.Start(t.Context(), b.host))
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.NoError(t, b.receiver.Shutdown(t.Context()))
}

func TestMissingIdentityExtensionIsAnErrorInEitherMode(t *testing.T) {
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		b := newBench(t, nil)
		b.config.ErrorMode = mode
		require.ErrorContains(t, b.receiver.Start(t.Context(), newFakeHost()), "no such extension")
		require.NoError(t, b.receiver.Shutdown(t.Context()))
	}
}

func TestProbeThatDoesNotOpen(t *testing.T) {
	refuse := errors.New("ring buffers need Linux 5.8")
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t, nil)
			b.config.ErrorMode = mode
			b.receiver.(*oomKill).open = func() (source, error) { return nil, refuse }
			err := b.receiver.Start(t.Context(), b.host)
			if mode == record.Propagate {
				require.ErrorIs(t, err, refuse)
				require.Empty(t, b.host.statuses)
			} else {
				require.NoError(t, err)
				event := b.host.status(t)
				require.Equal(t, componentstatus.StatusPermanentError, event.Status())
				require.ErrorIs(t, event.Err(), refuse)
				require.Zero(t, b.counter(t, "receiver_oomkill_probe_up"))
			}
			require.NoError(t, b.receiver.Shutdown(t.Context()))
		})
	}
}

func TestProbeThatFailsLater(t *testing.T) {
	broken := errors.New("ring is gone")
	for mode, status := range map[record.ErrorMode]componentstatus.Status{
		record.Propagate: componentstatus.StatusFatalError, record.Ignore: componentstatus.StatusPermanentError,
	} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t, nil)
			b.config.ErrorMode = mode
			b.start(t)
			b.source.failed <- broken
			event := b.host.status(t)
			require.Equal(t, status, event.Status())
			require.ErrorIs(t, event.Err(), broken)
			require.Zero(t, b.counter(t, "receiver_oomkill_probe_up"))
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
	b.start(t)
	for range 2 {
		b.source.kills <- cgroupKill()
		<-refused
	}
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.EqualValues(t, 2, b.counter(t, "receiver_oomkill_records_dropped"))
	require.EqualValues(t, 2, b.counter(t, "receiver_oomkill_kills"))
}

func TestConsumerThatKeepsRefusingDoesNotHoldShutdown(t *testing.T) {
	asked := make(chan struct{}, 1000)
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		asked <- struct{}{}
		return errors.New("queue is full")
	})
	require.NoError(t, err)
	b := newBench(t, next)
	b.start(t)
	b.source.kills <- cgroupKill()
	<-asked
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.counter(t, "receiver_oomkill_records_dropped"))
}

func TestConsumerThatHangsIsLeftBehindAtShutdown(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		close(entered)
		<-release
		return nil
	})
	require.NoError(t, err)
	b := newBench(t, next)
	require.NoError(t, b.receiver.Start(t.Context(), b.host))
	b.source.kills <- cgroupKill()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.receiver.Shutdown(ctx), context.Canceled)
	close(release)
	b.receiver.(*oomKill).reader.Wait()
}
