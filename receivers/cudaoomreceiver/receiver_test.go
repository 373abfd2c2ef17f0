package cudaoomreceiver

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

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

var identityID = component.MustNewID("identity")

// bench is a receiver on fakes, whose clocks the test moves.
type bench struct {
	*sink
	receiver  receiver.Logs
	source    *fakeSource
	host      *fakeHost
	resolver  *fakeResolver
	config    *Config
	telemetry *componenttest.Telemetry
	clock     chan time.Time // looks at what has settled
	refusals  int64          // delivered
	scans     chan time.Time
}

func newBench(t *testing.T, next consumer.Logs) *bench {
	b := &bench{
		sink: newSink(), source: newFakeSource(), host: newFakeHost(), telemetry: componenttest.NewTelemetry(),
		resolver: &fakeResolver{ranks: []identity.Process{{PID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1", StartTime: start}}},
		config:   createDefaultConfig().(*Config), clock: make(chan time.Time), scans: make(chan time.Time),
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
	b.receiver, err = newFactory(func(int) (source, error) { return b.source, nil }).CreateLogs(t.Context(), settings, b.config, next)
	require.NoError(t, err)
	b.receiver.(*cudaOOM).ticks = func(d time.Duration) (<-chan time.Time, func()) {
		if d == b.config.ScanInterval {
			return b.scans, func() {}
		}
		return b.clock, func() {}
	}
	return b
}

func (b *bench) start(t *testing.T) {
	require.NoError(t, b.receiver.Start(t.Context(), b.host))
	t.Cleanup(func() { require.NoError(t, b.receiver.Shutdown(context.Background())) })
}

// refuse delivers a refusal of the rank's, which happened so many seconds after
// start, and waits until it was taken.
func (b *bench) refuse(t *testing.T, seconds float64) {
	t.Helper()
	e := refused(42)
	e.Time = after(seconds)
	b.source.events <- *e
	b.refusals++
	b.eventually(t, "cudaoom_refusals", b.refusals)
}

func (b *bench) grant(seconds float64) {
	e := granted(42)
	e.Time = after(seconds)
	b.source.events <- *e
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

func (b *bench) eventually(t *testing.T, name string, want int64) {
	t.Helper()
	require.Eventually(t, func() bool { return b.counter(t, name) == want }, time.Minute, time.Millisecond, name)
}

func TestRefusalThatStandsBecomesARecord(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	b.refuse(t, 0)
	b.refuse(t, 0.5)
	b.clock <- after(3.4)
	b.clock <- after(3.4) // taken when the first was looked at
	require.Empty(t, b.records)
	b.clock <- after(3.5)
	r := b.next(t)
	require.Equal(t, "cuda.refusal", r.EventName())
	require.Equal(t, after(0.5).UnixNano(), int64(r.Timestamp()))
	require.Equal(t, plog.SeverityNumberError, r.SeverityNumber())
	require.Equal(t, map[string]any{
		"process.pid": int64(42), "process.executable.name": "python", "gen_ai.training.rank": int64(3), "gen_ai.training.local_rank": int64(3),
		"gen_ai.training.world_size": int64(8), "gen_ai.training.job_id": "job-1",
		"cuda_oom.tried_alloc_bytes": int64(gib), "cuda_oom.function": "cuMemAlloc", "cuda_oom.attempts": int64(2),
	}, r.Attributes().AsRaw())
	b.eventually(t, "accepted_log_records", 1)
	require.EqualValues(t, 2, b.counter(t, "cudaoom_refusals"))
}

func TestRefusalThatIsOvercomeIsCountedAlone(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	b.refuse(t, 0)
	b.grant(0.5)
	b.eventually(t, "cudaoom_retried", 1)
	b.clock <- after(60)
	b.clock <- after(61)
	require.Empty(t, b.records)
	require.EqualValues(t, 1, b.counter(t, "cudaoom_refusals"))
}

func TestSuccessAfterTheRecordTakesItBack(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	b.refuse(t, 0)
	b.clock <- after(3)
	require.NotContains(t, b.next(t).Attributes().AsRaw(), "cuda_oom.retried")
	b.grant(20)
	r := b.next(t)
	require.Equal(t, true, r.Attributes().AsRaw()["cuda_oom.retried"])
	require.Equal(t, plog.SeverityNumberInfo, r.SeverityNumber())
}

func TestDeathOfTheRankNeedsNoWaiting(t *testing.T) {
	b := newBench(t, nil)
	b.start(t)
	b.refuse(t, 0)
	b.resolver.exit(t, 42)
	require.Equal(t, "cuda.refusal", b.next(t).EventName())
}

func TestLibrariesOfTheRanksAreLookedForAgainAndAgain(t *testing.T) {
	b := newBench(t, nil)
	b.config.MaxProcesses = 2
	b.resolver.ranks = append([]identity.Process{{PID: 99, StartTime: start}, {PID: 44, StartTime: start}}, b.resolver.ranks...)
	b.start(t)
	want := []cudaoom.Process{{PID: 42, Start: start}, {PID: 44, Start: start}}
	require.Equal(t, want, <-b.source.watches, "at once, and no more than are allowed")
	b.scans <- time.Now()
	require.Equal(t, want, <-b.source.watches)
	b.eventually(t, "cudaoom_processes_skipped", 2*(1+7))
	for name, value := range map[string]int64{
		"probe_up": 1, "probe_dropped": 2, "probe_invalid": 3, "libraries": 4, "libraries_skipped": 5, "libraries_failed": 6,
	} {
		require.Equal(t, value, b.counter(t, "cudaoom_"+name), name)
	}
}

func TestEventSwitchedOffIsReadAndNotEmitted(t *testing.T) {
	b := newBench(t, nil)
	b.config.Events.CudaRefusal.Enabled = false
	b.start(t)
	b.refuse(t, 0)
	b.clock <- after(60)
	b.clock <- after(61)
	require.Empty(t, b.records)
	require.EqualValues(t, 1, b.counter(t, "cudaoom_refusals"))
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

func TestIdentityThatIsNotThereIsAnErrorInEitherMode(t *testing.T) {
	for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
		b := newBench(t, nil)
		b.config.ErrorMode = mode
		require.ErrorContains(t, b.receiver.Start(t.Context(), newFakeHost()), "no such extension")
		require.NoError(t, b.receiver.Shutdown(t.Context()))
	}
}

func TestWithoutProbeOrRanksTheModeDecides(t *testing.T) {
	refuse := errors.New("this kernel has no uprobes")
	for name, break_ := range map[string]func(*bench) string{
		"no probe": func(b *bench) string {
			b.receiver.(*cudaOOM).open = func(int) (source, error) { return nil, refuse }
			return refuse.Error()
		},
		"no identity": func(b *bench) string {
			b.config.Identity = nil
			return "nobody to watch: set identity"
		},
	} {
		for _, mode := range []record.ErrorMode{record.Propagate, record.Ignore} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				b := newBench(t, nil)
				b.config.ErrorMode = mode
				want := break_(b)
				err := b.receiver.Start(t.Context(), b.host)
				if mode == record.Propagate {
					require.ErrorContains(t, err, want)
					require.Empty(t, b.host.statuses)
				} else {
					require.NoError(t, err)
					event := b.host.status(t)
					require.Equal(t, componentstatus.StatusPermanentError, event.Status())
					require.ErrorContains(t, event.Err(), want)
					require.Zero(t, b.counter(t, "cudaoom_probe_up"))
				}
				require.NoError(t, b.receiver.Shutdown(t.Context()))
			})
		}
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
			require.Zero(t, b.counter(t, "cudaoom_probe_up"))
		})
	}
}

func TestRefusedRecordIsCounted(t *testing.T) {
	next, err := consumer.NewLogs(func(context.Context, plog.Logs) error {
		return consumererror.NewPermanent(errors.New("no"))
	})
	require.NoError(t, err)
	b := newBench(t, next)
	b.start(t)
	b.refuse(t, 0)
	b.clock <- after(3)
	b.eventually(t, "cudaoom_records_dropped", 1)
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
	b.refuse(t, 0)
	b.clock <- after(3)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.receiver.Shutdown(ctx), context.Canceled)
	close(release)
	b.receiver.(*cudaOOM).workers.Wait()
}
