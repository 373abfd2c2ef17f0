package fusefaultreceiver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// bench is a receiver on fakes. Each tick is taken when the one before is done.
type bench struct {
	*probereceivertest.Bench
	*scene
	source  *fakeSource // the last that was opened
	config  *Config
	factory receiver.Factory
}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), scene: rankScene(), config: createDefaultConfig().(*Config)}
	b.Host.Extensions[probereceivertest.IdentityID] = b.resolver
	b.config.Identity = &probereceivertest.IdentityID
	b.config.CollectionInterval = 7 * time.Second
	b.factory = b.newFactory()
	return b
}

func (b *bench) newFactory() receiver.Factory {
	return newFactory(surroundings{
		open: func(*Config) (source, error) {
			b.source = newFakeSource()
			return b.source, b.Open()
		},
		machine: func(*Config) machine { return b.machine },
		ticks:   b.Ticks,
	})
}

func (b *bench) logs(t *testing.T, next consumer.Logs) receiver.Logs {
	r, err := b.factory.CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) metrics(t *testing.T, next consumer.Metrics) receiver.Metrics {
	r, err := b.factory.CreateMetrics(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) collect(t testing.TB) { b.Tick(t, b.config.CollectionInterval, b.now) }

// scan returns when the snapshot was taken; what it comes to shows later.
func (b *bench) scan(t testing.TB) {
	b.Tick(t, b.config.ScanInterval, b.now)
	<-b.source.looked
}

// pass lets seconds pass, with a scan after each.
func (b *bench) pass(t testing.TB, seconds int) {
	for range seconds {
		b.now = b.now.Add(time.Second)
		b.source.show(*b.snapshot())
		b.scan(t)
	}
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b := newBench(t)
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return []component.Component{b.logs(t, next), b.metrics(t, b.Sink)}
			},
			Fire: func(t *testing.T) {
				b.inFlight = nil
				b.pass(t, 1)
				b.stick(42)
				b.pass(t, 2)
			},
			Break: func(t *testing.T, err error) {
				b.source.fail(err)
				for range probereceiver.MaxFailures {
					b.scan(t)
				}
			},
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	b.config.Events.FuseStallEnd.Enabled = false // it has the id of its stall
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "fuse.device", Make: func(minor uint32) string {
		device := fusefault.Device{Minor: minor}
		b.source.show(fusefault.Snapshot{ // nothing on this mount was ever answered
			Time:     start.Add(time.Duration(minor) * time.Second),
			InFlight: []fusefault.InFlight{{ID: 1, Device: device, Opcode: opRead, Start: start.Add(-time.Minute), PID: 1, TID: 1}},
		})
		b.scan(t)
		return deviceName(device)
	}}, b.config, b.newFactory)
}

// identified names metrics for the collector's contract by their one mount.
func identified(t *testing.T, next consumer.Metrics) consumer.Metrics {
	identifying, err := consumer.NewMetrics(func(ctx context.Context, metrics pmetric.Metrics) error {
		all := metrics.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		all.RemoveIf(func(m pmetric.Metric) bool { return m.Name() != "fuse.in_flight" })
		point := all.At(0).Sum().DataPoints().At(0)
		device, _ := point.Attributes().Get("fuse.device")
		point.Attributes().PutStr(receivertest.UniqueIDAttrName, device.Str())
		return next.ConsumeMetrics(ctx, metrics)
	})
	require.NoError(t, err)
	return identifying
}

func TestConsumeContractOfMetrics(t *testing.T) {
	b := newBench(t)
	b.config.Identity = nil // the collector's test brings a host of its own
	create := func(ctx context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
		return b.newFactory().CreateMetrics(ctx, settings, config, identified(t, next))
	}
	receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
		T: t, Signal: pipeline.SignalMetrics, Config: b.config, GenerateCount: 40, // the checker waits 5 s at most for the last
		Factory: receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithMetrics(create, metadata.MetricsStability)),
		Generator: &probereceivertest.Generator{Make: func(minor uint32) string {
			device := fusefault.Device{Minor: minor}
			b.source.show(fusefault.Snapshot{Time: start.Add(time.Duration(minor) * time.Second), Mounts: []fusefault.Mount{{Device: device}}})
			b.scan(t)
			b.collect(t)
			return deviceName(device)
		}},
	})
}

func TestStallBecomesARecordAndItsEndToo(t *testing.T) {
	b := newBench(t)
	r := b.logs(t, b.Sink)
	b.StartAll(t, r)
	b.pass(t, 1)
	b.stick(42)
	b.pass(t, 2)
	record := b.Next(t)
	require.Equal(t, "fuse.stall", record.EventName())
	require.Equal(t, plog.SeverityNumberError, record.SeverityNumber())
	require.Equal(t, b.now.UnixNano(), int64(record.Timestamp()))
	a := record.Attributes().AsRaw()
	require.Equal(t, "/data set", a["fuse.mount.point"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, []any{int64(3)}, a["fuse.stall.ranks"])

	b.inFlight = nil
	b.pass(t, 1)
	record = b.Next(t)
	require.Equal(t, "fuse.stall.end", record.EventName())
	require.Equal(t, plog.SeverityNumberInfo, record.SeverityNumber())
	require.Equal(t, a["fuse.stall.id"], record.Attributes().AsRaw()["fuse.stall.id"])

	require.NoError(t, r.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.Own(t, "stalls"))
	b.Accepted(t, 2)
}

func TestEventSwitchedOffIsNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.FuseStall.Enabled = false
	r := b.logs(t, b.Sink)
	b.StartAll(t, r)
	b.pass(t, 1)
	b.stick(42)
	b.pass(t, 2)
	b.inFlight = nil
	b.pass(t, 1)
	require.Equal(t, "fuse.stall.end", b.Next(t).EventName())
	require.Empty(t, b.Records)
}

func TestTwoSignalsShareOneProbe(t *testing.T) {
	b := newBench(t)
	logs, metrics := b.logs(t, b.Sink), b.metrics(t, b.Sink)
	require.NoError(t, logs.Start(t.Context(), b.Host))
	require.NoError(t, metrics.Start(t.Context(), b.Host))
	require.Equal(t, 1, b.Opened())
	b.pass(t, 1)
	b.collect(t)
	b.NextMetrics(t)
	b.stick(42)
	b.pass(t, 2)
	b.Next(t)
	require.NoError(t, logs.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.Own(t, "probe_up"), "the metrics still need it")

	b.inFlight = nil
	b.pass(t, 1)
	b.collect(t)
	require.Equal(t, 4, b.NextMetrics(t).MetricCount(), "the connection's own count cannot be read here")
	require.Empty(t, b.Records, "after its Shutdown a signal hands over nothing")
	require.NoError(t, metrics.Shutdown(t.Context()))
	<-b.source.Closed

	b.StartAll(t, b.logs(t, b.Sink))
	require.Equal(t, 2, b.Opened())
}

func TestProbesCountersAreMetrics(t *testing.T) {
	b := newBench(t)
	b.StartAll(t, b.logs(t, b.Sink))
	require.EqualValues(t, 1, b.Own(t, "probe_up"))
	require.EqualValues(t, 2, b.Own(t, "probe_missed"))
	require.EqualValues(t, 7, b.Own(t, "stuck_reads"))
	b.source.fail(errors.New("out of memory"))
	for range probereceiver.MaxFailures - 1 {
		b.scan(t)
	}
	b.source.fail(nil)
	b.pass(t, 2) // the first is done
	require.EqualValues(t, 1, b.Own(t, "probe_up"), "a scan may fail")
	require.EqualValues(t, probereceiver.MaxFailures-1, b.Own(t, "scans_failed"))
	require.Empty(t, b.Host.Statuses)
}

func TestRefusedMetricsAreCounted(t *testing.T) {
	refuse, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return consumererror.NewPermanent(errors.New("no")) })
	require.NoError(t, err)
	b := newBench(t)
	b.StartAll(t, b.metrics(t, refuse))
	b.pass(t, 1)
	b.collect(t)
	b.Eventually(t, "metric_points_dropped", 4)
}

func TestStallThatLastsWhileTheProbeIsOpenedAgainDoesNotEnd(t *testing.T) {
	b := newBench(t)
	b.config.ErrorMode = record.Ignore
	b.StartAll(t, b.logs(t, b.Sink))
	b.pass(t, 1)
	b.stick(42)
	b.pass(t, 2)
	b.Next(t)
	b.source.fail(errors.New("map is gone"))
	for range probereceiver.MaxFailures {
		b.scan(t)
	}
	b.Host.Status(t)
	b.Tick(t, time.Second, b.now)
	b.Host.Status(t)
	b.inFlight = nil // the new probe knows nothing of what began before
	b.pass(t, 3)
	require.Empty(t, b.Records)
}
