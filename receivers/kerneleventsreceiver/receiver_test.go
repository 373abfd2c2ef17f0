package kerneleventsreceiver

import (
	"context"
	"errors"
	"fmt"
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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

const xid79 = "NVRM: Xid (PCI:0000:65:00): 79, pid=42, name=python, GPU has fallen off the bus."

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

// counter sums a metric over its attributes; of those, key=value must hold.
func (b *bench) counter(t *testing.T, name string, labels ...attribute.KeyValue) int64 {
	m, err := b.telemetry.GetMetric("otelcol_" + name)
	if err != nil {
		return 0
	}
	var points []metricdata.DataPoint[int64]
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		points = data.DataPoints
	case metricdata.Gauge[int64]:
		points = data.DataPoints
	default:
		require.Failf(t, "no integer metric", "%s: %T", name, m.Data)
	}
	total := int64(0)
	for _, point := range points {
		matches := true
		for _, label := range labels {
			value, _ := point.Attributes.Value(label.Key)
			matches = matches && value == label.Value
		}
		if matches {
			total += point.Value
		}
	}
	return total
}

func TestXidOfARankBecomesARecordAtOnce(t *testing.T) {
	b := newBench(t, nil)
	b.resolver.processes[42] = identity.Process{PID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1"}
	b.start(t)
	b.source.write(xid79)
	r := b.next(t)
	require.Equal(t, "gpu.xid", r.EventName())
	require.Equal(t, start.UnixNano(), int64(r.Timestamp()))
	require.Equal(t, plog.SeverityNumberFatal, r.SeverityNumber())
	require.Equal(t, xid79, r.Body().Str())
	a := r.Attributes().AsRaw()
	require.EqualValues(t, 79, a["kernelevents.xid"])
	require.Equal(t, "0000:65:00.0", a["gpu.id"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "job-1", a["gen_ai.training.job_id"])
	require.Equal(t, false, a["kernelevents.from_userspace"])
	require.EqualValues(t, 1, b.counter(t, "receiver_kernelevents_lines", attribute.String("outcome", "reported")))
	require.EqualValues(t, 1, b.counter(t, "receiver_kernelevents_probe_up", attribute.String("rung", "fake")))
	require.EqualValues(t, 2, b.counter(t, "receiver_kernelevents_probe_dropped"))
	require.EqualValues(t, 3, b.counter(t, "receiver_kernelevents_probe_invalid"))
	// The consumer has the record before the receiver hears that it took it.
	require.Eventually(t, func() bool { return b.counter(t, "receiver_accepted_log_records") == 1 }, 10*time.Second, time.Millisecond)
}

func TestForgedLineIsANormalRecordThatSaysSo(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	b.source.records <- kmsg.Event{Time: start, PID: 7, Comm: "bash", Writer: kmsg.WriterUserspace, Text: xid79}
	a := b.next(t).Attributes().AsRaw()
	require.Equal(t, true, a["kernelevents.from_userspace"])
	require.EqualValues(t, 7, a["kernelevents.writer_pid"])
	require.Equal(t, "bash", a["kernelevents.writer_comm"])
	require.EqualValues(t, 42, a["process.pid"])

	b.source.records <- kmsg.Event{Time: start, PID: 7, Comm: "bash", Writer: kmsg.WriterUnknown, Text: xid79}
	a = b.next(t).Attributes().AsRaw()
	require.NotContains(t, a, "kernelevents.from_userspace")
	require.NotContains(t, a, "kernelevents.writer_pid")
}

func TestStormLooksItsOwnerUpOnce(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	for range 10_000 {
		b.source.write("NVRM: Xid (PCI:0000:65:00): 45, pid=42, name=python, Ch 00000001")
	}
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.Len(t, b.records, 1)
	require.EqualValues(t, 10_000, b.next(t).Attributes().AsRaw()["kernelevents.count"])
	require.Equal(t, 1, b.resolver.lookups)
	require.EqualValues(t, 9_999, b.counter(t, "receiver_kernelevents_folded"))
}

func TestFoldClosesByItself(t *testing.T) {
	b := newBench(t, nil)
	b.config.Fold.Quiet = 20 * time.Millisecond
	b.start(t)
	b.source.write("NVRM: Xid (PCI:0000:65:00): 13, Graphics SM Warp Exception")
	require.EqualValues(t, 13, b.next(t).Attributes().AsRaw()["kernelevents.xid"])
	b.source.write("nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: section_type: memory error")
	require.Equal(t, "gpu.fault", b.next(t).EventName(), "a severity that never comes holds nothing back")
}

func TestExitsOfRanksBecomeRecords(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	require.True(t, b.resolver.watched())
	process := identity.Process{PID: 9, Comm: "python", Rank: 0, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
	b.resolver.exit(identity.Exit{Process: process, Time: start, Signal: 6, CoreDump: true})
	r := b.next(t)
	require.Equal(t, "process.exit", r.EventName())
	require.Equal(t, "python (pid 9, rank 0) was ended by SIGABRT", r.Body().Str())
	require.Equal(t, map[string]any{
		"process.pid": int64(9), "process.executable.name": "python", "gen_ai.training.rank": int64(0),
		"process.exit.code": int64(0), "process.exit.signal": int64(6), "process.exit.signal_name": "SIGABRT",
		"process.exit.core_dump": true, "process.exit.oom_victim": false, "process.exit.inherited_identity": false,
	}, r.Attributes().AsRaw())

	b.resolver.exit(identity.Exit{Process: process, Time: start})
	clean := b.next(t)
	require.Equal(t, plog.SeverityNumberInfo, clean.SeverityNumber())
	require.Equal(t, "python (pid 9, rank 0) exited with status 0", clean.Body().Str())

	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.False(t, b.resolver.watched())
}

func TestExitsAreNotWatchedWhenSwitchedOff(t *testing.T) {
	for name, off := range map[string]func(*Config){
		"process_exits: false":         func(c *Config) { c.ProcessExits = false },
		"event process.exit disabled":  func(c *Config) { c.Events.ProcessExit.Enabled = false },
		"no identity extension is set": func(c *Config) { c.Identity = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			off(b.config)
			b.start(t)
			require.False(t, b.resolver.watched())
		})
	}
}

func TestEventSwitchedOffIsNotEmitted(t *testing.T) {
	b := newBench(t, nil)
	b.config.Events.GpuXid.Enabled = false
	b.start(t)
	b.source.write(xid79)
	b.source.write("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.")
	require.Equal(t, "gpu.lost", b.next(t).EventName())
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
			b.receiver.(*kernelEvents).open = func() (source, error) { return nil, refuse }
			err := b.receiver.Start(t.Context(), b.host)
			if mode == record.Propagate {
				require.ErrorIs(t, err, refuse)
				require.Empty(t, b.host.statuses)
			} else {
				require.NoError(t, err)
				event := b.status(t, b.host)
				require.Equal(t, componentstatus.StatusPermanentError, event.Status())
				require.ErrorIs(t, event.Err(), refuse)
				require.Zero(t, b.counter(t, "receiver_kernelevents_probe_up"))
				b.resolver.exit(identity.Exit{Process: identity.Process{PID: 5}, Code: 1})
				require.Equal(t, "process.exit", b.next(t).EventName(), "the rest of the receiver lives on")
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
			b.source.write(xid79)
			b.next(t)
			b.source.failed <- broken
			event := b.status(t, b.host)
			require.Equal(t, status, event.Status())
			require.ErrorIs(t, event.Err(), broken)
			require.Zero(t, b.counter(t, "receiver_kernelevents_probe_up"))
		})
	}
}

func TestRefusedRecordIsCounted(t *testing.T) {
	refused := make(chan struct{}, 10)
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		refused <- struct{}{}
		return consumererror.NewPermanent(errors.New("no"))
	})
	require.NoError(t, err)
	b := newBench(t, next)
	b.start(t)
	b.source.write(xid79)
	<-refused
	b.source.write("NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.")
	<-refused
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.EqualValues(t, 2, b.counter(t, "receiver_kernelevents_records_dropped"))
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
	b.source.write(xid79)
	<-asked
	for i := range eventsQueue {
		b.source.write(fmt.Sprintf("NVRM: Xid (PCI:0000:66:00): 79, pid=%d, name=p, GPU has fallen off the bus.", i+1))
	}
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.EqualValues(t, 1+eventsQueue, b.counter(t, "receiver_kernelevents_records_dropped"))
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
	b.source.write(xid79)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.receiver.Shutdown(ctx), context.Canceled)
	close(release)
	<-b.receiver.(*kernelEvents).worker.done
}

func TestExitsBeyondTheQueueAreCounted(t *testing.T) {
	release := make(chan struct{})
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		<-release
		return nil
	})
	require.NoError(t, err)
	b := newBench(t, next)
	b.start(t)
	for i := range exitsQueue + 100 {
		b.resolver.exit(identity.Exit{Process: identity.Process{PID: uint32(i)}, Time: start})
	}
	dropped := b.counter(t, "receiver_kernelevents_exits_dropped")
	require.GreaterOrEqual(t, dropped, int64(99), "one more is with the consumer")
	close(release)
	require.NoError(t, b.receiver.Shutdown(t.Context()))
	require.EqualValues(t, exitsQueue+100, dropped+b.counter(t, "receiver_accepted_log_records"))
}
