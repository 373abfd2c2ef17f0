package fusefaultreceiver

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
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

var identityID = component.MustNewID("identity")

// bench is a receiver on fakes. Each tick is taken when the one before is done.
type bench struct {
	*sink
	*scene
	factory   receiver.Factory
	settings  receiver.Settings
	source    *fakeSource
	opened    int
	openErr   error
	host      *fakeHost
	config    *Config
	telemetry *componenttest.Telemetry

	scans, collections chan time.Time
}

func newBench(t *testing.T) *bench {
	b := &bench{
		sink: newSink(), scene: rankScene(), source: &fakeSource{}, host: newFakeHost(), telemetry: componenttest.NewTelemetry(),
		config: createDefaultConfig().(*Config), scans: make(chan time.Time), collections: make(chan time.Time),
	}
	b.host.extensions[identityID] = b.resolver
	b.config.Identity = &identityID
	b.settings = receivertest.NewNopSettings(metadata.Type)
	b.settings.TelemetrySettings = b.telemetry.NewTelemetrySettings()
	t.Cleanup(func() { require.NoError(t, b.telemetry.Shutdown(context.Background())) })
	b.factory = newFactory(surroundings{
		open: func(*Config) (source, machine, error) {
			b.opened++
			return b.source, b.machine, b.openErr
		},
		ticks: func(interval time.Duration) (<-chan time.Time, func()) {
			if interval == b.config.CollectionInterval {
				return b.collections, func() {}
			}
			return b.scans, func() {}
		},
	})
	return b
}

func (b *bench) logs(t *testing.T, next consumer.Logs) receiver.Logs {
	if next == nil {
		next = b.sink
	}
	r, err := b.factory.CreateLogs(t.Context(), b.settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) metrics(t *testing.T, next consumer.Metrics) receiver.Metrics {
	if next == nil {
		next = b.sink
	}
	r, err := b.factory.CreateMetrics(t.Context(), b.settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) start(t *testing.T, r component.Component) {
	require.NoError(t, r.Start(t.Context(), b.host))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
}

// pass lets seconds pass, with a scan after each.
func (b *bench) pass(seconds int) {
	for range seconds {
		b.now = b.now.Add(time.Second)
		b.source.show(*b.snapshot())
		b.scans <- b.now
	}
}

// counter is the value of a metric, 0 before its first point.
func (b *bench) counter(t *testing.T, name string) int64 {
	m, err := b.telemetry.GetMetric("otelcol_receiver_" + name)
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

func TestStallBecomesARecordAndItsEndToo(t *testing.T) {
	b := newBench(t)
	r := b.logs(t, nil)
	b.start(t, r)
	b.pass(1)
	b.stick(42)
	b.pass(2)
	record := b.next(t)
	require.Equal(t, "fuse.stall", record.EventName())
	require.Equal(t, plog.SeverityNumberError, record.SeverityNumber())
	require.Equal(t, b.now.UnixNano(), int64(record.Timestamp()))
	a := record.Attributes().AsRaw()
	require.Equal(t, "/data set", a["fuse.mount.point"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, []any{int64(3)}, a["fuse.stall.ranks"])

	b.inFlight = nil
	b.pass(1)
	record = b.next(t)
	require.Equal(t, "fuse.stall.end", record.EventName())
	require.Equal(t, plog.SeverityNumberInfo, record.SeverityNumber())
	require.Equal(t, a["fuse.stall.id"], record.Attributes().AsRaw()["fuse.stall.id"])

	require.NoError(t, r.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.counter(t, "fusefault_stalls"))
	require.EqualValues(t, 2, b.counter(t, "accepted_log_records"))
}

func TestTwoSignalsShareOneProbe(t *testing.T) {
	b := newBench(t)
	logs, metrics := b.logs(t, nil), b.metrics(t, nil)
	require.NoError(t, logs.Start(t.Context(), b.host))
	require.NoError(t, metrics.Start(t.Context(), b.host))
	require.Equal(t, 1, b.opened)
	b.pass(1)
	b.collections <- b.now
	b.stick(42)
	b.pass(2)
	b.next(t)
	require.NoError(t, logs.Shutdown(t.Context()))
	require.False(t, b.source.closed, "the metrics still need it")

	b.inFlight = nil
	b.pass(1)
	b.collections <- b.now
	b.pass(1) // what was collected has been handed over
	require.Empty(t, b.records, "after its Shutdown a signal hands over nothing")
	require.NoError(t, metrics.Shutdown(t.Context()))
	require.True(t, b.source.closed)
	require.Len(t, b.sink.metrics, 2)
	require.Equal(t, 4, (<-b.sink.metrics).MetricCount(), "the connection's own count cannot be read here")

	again := b.logs(t, nil)
	b.source.closed = false
	b.start(t, again)
	require.Equal(t, 2, b.opened)
}

func TestEventSwitchedOffIsNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.FuseStall.Enabled = false
	r := b.logs(t, nil)
	b.start(t, r)
	b.pass(1)
	b.stick(42)
	b.pass(2)
	b.inFlight = nil
	b.pass(1)
	require.Equal(t, "fuse.stall.end", b.next(t).EventName())
	require.Empty(t, b.records)
}

func TestProbesCountersAreMetrics(t *testing.T) {
	b := newBench(t)
	b.start(t, b.logs(t, nil))
	s := b.snapshot()
	s.Missed = 5
	b.source.show(*s)
	b.scans <- b.now
	b.scans <- b.now // the first is done
	require.EqualValues(t, 1, b.counter(t, "fusefault_probe_up"))
	require.EqualValues(t, 5, b.counter(t, "fusefault_probe_missed"))
	require.EqualValues(t, 7, b.counter(t, "fusefault_stuck_reads"))
}

func TestShutdownBeforeStartAndTwice(t *testing.T) {
	b := newBench(t)
	for _, r := range []component.Component{b.logs(t, nil), b.metrics(t, nil)} {
		require.NoError(t, r.Shutdown(t.Context()))
		require.NoError(t, r.Shutdown(t.Context()))
	}
	r := b.logs(t, nil)
	require.NoError(t, r.Start(t.Context(), b.host))
	require.NoError(t, r.Shutdown(t.Context()))
	require.NoError(t, r.Shutdown(t.Context()))
}

func TestMissingIdentityExtensionIsAnErrorInEitherMode(t *testing.T) {
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		b := newBench(t)
		b.config.ErrorMode = mode
		r := b.logs(t, nil)
		require.ErrorContains(t, r.Start(t.Context(), newFakeHost()), "no such extension")
		require.NoError(t, r.Shutdown(t.Context()))
	}
}

func TestProbeThatDoesNotOpen(t *testing.T) {
	refuse := errors.New("iterators need Linux 5.8")
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t)
			b.config.ErrorMode, b.openErr = mode, refuse
			logs, metrics := b.logs(t, nil), b.metrics(t, nil)
			err := logs.Start(t.Context(), b.host)
			if mode == record.Propagate {
				require.ErrorIs(t, err, refuse)
				require.Empty(t, b.host.statuses)
			} else {
				require.NoError(t, err)
				require.NoError(t, metrics.Start(t.Context(), b.host))
				for range 2 { // each signal has its status
					event := b.host.status(t)
					require.Equal(t, componentstatus.StatusPermanentError, event.Status())
					require.ErrorIs(t, event.Err(), refuse)
				}
				require.Equal(t, 1, b.opened)
				require.Zero(t, b.counter(t, "fusefault_probe_up"))
			}
			require.NoError(t, logs.Shutdown(t.Context()))
			require.NoError(t, metrics.Shutdown(t.Context()))
		})
	}
}

func TestProbeThatKeepsFailing(t *testing.T) {
	broken := errors.New("map is gone")
	for mode, status := range map[record.ErrorMode]componentstatus.Status{
		record.Propagate: componentstatus.StatusFatalError, record.Ignore: componentstatus.StatusPermanentError,
	} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t)
			b.config.ErrorMode = mode
			b.start(t, b.logs(t, nil))
			b.source.err = broken
			for range maxFailures - 1 {
				b.scans <- b.now
			}
			require.Empty(t, b.host.statuses, "a scan may fail")
			b.scans <- b.now
			event := b.host.status(t)
			require.Equal(t, status, event.Status())
			require.ErrorIs(t, event.Err(), broken)
			require.Zero(t, b.counter(t, "fusefault_probe_up"))
			require.EqualValues(t, maxFailures, b.counter(t, "fusefault_scans_failed"))
		})
	}
}

func TestRefusedDataAreCounted(t *testing.T) {
	refusal := consumererror.NewPermanent(errors.New("no"))
	refuseLogs, err := consumer.NewLogs(func(context.Context, plog.Logs) error { return refusal })
	require.NoError(t, err)
	refuseMetrics, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return refusal })
	require.NoError(t, err)
	b := newBench(t)
	logs, metrics := b.logs(t, refuseLogs), b.metrics(t, refuseMetrics)
	b.start(t, logs)
	b.start(t, metrics)
	b.pass(1)
	b.stick(42)
	b.pass(2)
	b.collections <- b.now
	b.pass(1) // what was collected has been refused
	require.NoError(t, logs.Shutdown(t.Context()))
	require.NoError(t, metrics.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.counter(t, "fusefault_records_dropped"))
	require.EqualValues(t, 4, b.counter(t, "fusefault_metric_points_dropped"))
}

func TestConsumerThatKeepsRefusingDoesNotHoldShutdown(t *testing.T) {
	asked := make(chan struct{}, 1000)
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		asked <- struct{}{}
		return errors.New("queue is full")
	})
	require.NoError(t, err)
	b := newBench(t)
	r := b.logs(t, next)
	b.start(t, r)
	b.pass(1)
	b.stick(42)
	b.pass(2)
	<-asked
	require.NoError(t, r.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.counter(t, "fusefault_records_dropped"))
}

func TestConsumerThatHangsIsLeftBehindAtShutdown(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		close(entered)
		<-release
		return nil
	})
	require.NoError(t, err)
	b := newBench(t)
	r := b.logs(t, next)
	require.NoError(t, r.Start(t.Context(), b.host))
	b.pass(1)
	b.stick(42)
	b.pass(2)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Shutdown(ctx), context.Canceled)
	close(release)
	r.(*instance).share.Value.scanner.Wait()
}
