package heartbeatreceiver

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/protobuf/proto"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/thishost"
	"github.com/tracecoreai/tracecore/receivers/heartbeatreceiver/internal/metadata"
)

var begin = time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)

// bench is a receiver with its surroundings in the hands of a test.
type bench struct {
	heartbeat.Roll // of the identity extension
	jobs           []string
	families       []*dto.MetricFamily
	refuse         error

	now    time.Time
	pauses chan time.Duration
	ticks  chan time.Time
	came   chan plog.Logs
	heart  component.Component
}

// Lookup implements identity.Resolver.
func (*bench) Lookup(uint32, uint32, time.Time) (identity.Process, bool) {
	return identity.Process{}, false
}

// Exits implements identity.Resolver.
func (*bench) Exits(func(identity.Exit)) func() { return func() {} }

// Ranks implements identity.Resolver.
func (b *bench) Ranks() (ranks []identity.Process) {
	for n, text := range b.jobs {
		job, domain, _ := strings.Cut(text, " of ")
		ranks = append(ranks, identity.Process{PID: uint32(n), JobID: job, Domain: domain}, identity.Process{PID: uint32(n + 1000), JobID: job, Domain: domain})
	}
	return append(ranks, identity.Process{PID: 7})
}

// Start implements component.Component.
func (*bench) Start(context.Context, component.Host) error { return nil }

// Shutdown implements component.Component.
func (*bench) Shutdown(context.Context) error { return nil }

// GetExtensions implements component.Host.
func (b *bench) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.MustNewID("identity"): b}
}

// Gather implements prometheus.Gatherer.
func (b *bench) Gather() ([]*dto.MetricFamily, error) { return b.families, nil }

// start begins the receiver; its first record has come.
func start(t *testing.T, b *bench) heartbeat.Beat {
	t.Helper()
	b.now, b.pauses, b.ticks, b.came = begin, make(chan time.Duration, 1), make(chan time.Time), make(chan plog.Logs, 1)
	config := createDefaultConfig().(*Config)
	id := component.MustNewID("identity")
	config.Identity = &id
	next, err := consumer.NewLogs(func(_ context.Context, ld plog.Logs) error {
		if b.refuse == nil {
			b.came <- ld
		}
		return b.refuse
	})
	require.NoError(t, err)
	set := receivertest.NewNopSettings(metadata.Type)
	set.ID, set.BuildInfo.Version = component.NewID(metadata.Type), "1.2.3"
	b.heart, err = newFactory(surroundings{now: func() time.Time { return b.now }, own: b, wait: func(pause time.Duration) <-chan time.Time {
		b.pauses <- pause
		return b.ticks
	}}).CreateLogs(t.Context(), set, config, next)
	require.NoError(t, err)
	require.NoError(t, b.heart.Start(t.Context(), b))
	t.Cleanup(func() {
		b.came = make(chan plog.Logs, 1)
		require.NoError(t, b.heart.Shutdown(context.Background()))
	})
	beats := b.beats(t)
	require.Len(t, beats, 1+len(b.jobs))
	require.Equal(t, soon, <-b.pauses)
	return beats[len(beats)-1]
}

// beats are those of the records that come next.
func (b *bench) beats(t *testing.T) (beats []heartbeat.Beat) {
	t.Helper()
	ld := <-b.came
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			require.Equal(t, heartbeat.Scope, sl.Scope().Name())
			for _, lr := range sl.LogRecords().All() {
				beat, ok := heartbeat.Read(rl.Resource().Attributes(), lr)
				require.True(t, ok)
				beats = append(beats, beat)
			}
		}
	}
	return beats
}

// next are the beats of a minute later.
func (b *bench) next(t *testing.T) []heartbeat.Beat {
	t.Helper()
	b.now = b.now.Add(heartbeat.Interval)
	b.ticks <- b.now
	beats := b.beats(t)
	require.Equal(t, heartbeat.Interval, <-b.pauses)
	return beats
}

func counter(name string, value float64) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{{Counter: &dto.Counter{Value: &value}}}}
}

func up(component, hook string, value float64) *dto.MetricFamily {
	return &dto.MetricFamily{Name: proto.String("otelcol_" + component + "_probe_up"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{
		Label: []*dto.LabelPair{{Name: proto.String("rung"), Value: proto.String(hook)}}, Gauge: &dto.Gauge{Value: &value},
	}}}
}

func (b *bench) told(id string, event *componentstatus.Event) {
	b.ComponentStatusChanged(componentstatus.NewInstanceID(component.MustNewID(id), component.KindReceiver), event)
}

func TestAnAgentSaysThatItWatches(t *testing.T) {
	b := &bench{families: []*dto.MetricFamily{up("receiver_oomkill", "kprobe", 1), counter("otelcol_receiver_oomkill_probe_dropped_total", 5)}}
	b.told("heartbeat", componentstatus.NewEvent(componentstatus.StatusOK))
	b.told("oomkill", componentstatus.NewEvent(componentstatus.StatusStarting))
	b.ComponentStatusChanged(componentstatus.NewInstanceID(component.MustNewID("debug"), component.KindExporter), componentstatus.NewEvent(componentstatus.StatusOK))
	first := start(t, b)
	name, err := thishost.Name()
	require.NoError(t, err)
	require.Equal(t, name, first.Host)
	require.Equal(t, "1.2.3", first.Version)
	require.Equal(t, begin, first.Started)
	require.Equal(t, begin, first.At)
	require.Len(t, first.Receivers, 1)
	require.Equal(t, heartbeat.Starts, first.Receivers[0].State)
	require.Equal(t, []heartbeat.Probe{{Component: "receiver oomkill", Hook: "kprobe", Up: true}}, first.Probes)
	require.EqualValues(t, 5, first.Dropped)

	ok := componentstatus.NewEvent(componentstatus.StatusOK)
	b.told("oomkill", ok)
	b.told("gpu", componentstatus.NewRecoverableErrorEvent(errors.New("no driver")))
	b.families = []*dto.MetricFamily{up("receiver_oomkill", "kprobe", 0), counter("otelcol_receiver_oomkill_probe_dropped_total", 12), counter("otelcol_receiver_oomkill_kills_total", 12)}
	second := b.next(t)[0]
	require.Equal(t, first.Instance, second.Instance)
	require.Equal(t, []int64{1, 2}, []int64{first.Number, second.Number})
	require.EqualValues(t, 7, second.Dropped, "since the last")
	require.False(t, second.Probes[0].Up)
	require.Equal(t, "gpu", second.Receivers[0].Name)
	require.Equal(t, "no driver", second.Receivers[0].Error)
	require.Equal(t, heartbeat.Component{Name: "oomkill", State: heartbeat.Works, Since: ok.Timestamp().UTC()}, second.Receivers[1])

	b.families = nil
	require.False(t, b.next(t)[0].Measured, "what is not known is absent")

	require.NoError(t, b.heart.Shutdown(t.Context()))
	last := b.beats(t)[0]
	require.True(t, last.Ending)
	require.EqualValues(t, 4, last.Number)
	require.NoError(t, b.heart.Shutdown(t.Context()), "twice")
}

// A gateway that judges one job hears of its machines, and when it hears no more.
func TestEachJobHasARecord(t *testing.T) {
	b := &bench{jobs: []string{"b", "a"}}
	start(t, b)
	b.jobs = []string{"b", "c"}
	var told []string
	beats := b.next(t)
	for _, beat := range beats {
		told = append(told, beat.Job+" "+strconv.FormatBool(beat.JobOver))
		require.Equal(t, beats[0].Number, beat.Number)
	}
	require.Equal(t, []string{"a true", "b false", "c false", " false"}, told)
	b.jobs = nil
	for n := range 100 {
		b.jobs = append(b.jobs, "job-"+strconv.Itoa(n))
	}
	require.Len(t, b.next(t), mostJobs+2+1, "with two that are over, and one for none")
	// Jobs without end of one domain take no record from that of another.
	b.jobs = append(b.jobs, "mine of user 1000")
	told = nil
	for _, beat := range b.next(t) {
		told = append(told, beat.Job+" "+strconv.FormatBool(beat.JobOver))
	}
	require.Contains(t, told, "mine false")
	b.jobs = nil
}

func TestARefusedRecordIsLost(t *testing.T) {
	b := &bench{}
	start(t, b)
	b.refuse = consumererror.NewPermanent(errors.New("no"))
	b.ticks <- b.now
	<-b.pauses
	b.refuse = nil
	require.EqualValues(t, 3, b.next(t)[0].Number)
}

func TestWithoutIdentity(t *testing.T) {
	came := make(chan plog.Logs, 2)
	next, err := consumer.NewLogs(func(_ context.Context, ld plog.Logs) error { came <- ld; return nil })
	require.NoError(t, err)
	h, err := NewFactory().CreateLogs(t.Context(), receivertest.NewNopSettings(metadata.Type), createDefaultConfig(), next)
	require.NoError(t, err)
	require.NoError(t, h.Start(t.Context(), &bench{}))
	record := (<-came).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	_, found := record.Attributes().Get("tracecore.agent.receivers")
	require.False(t, found)
	_, found = record.Attributes().Get("tracecore.agent.dropped")
	require.False(t, found)
	require.NoError(t, h.Shutdown(t.Context()))

	other := component.MustNewID("other")
	h, err = NewFactory().CreateLogs(t.Context(), receivertest.NewNopSettings(metadata.Type), &Config{LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), Identity: &other}, next)
	require.NoError(t, err)
	require.ErrorContains(t, h.Start(t.Context(), &bench{}), `identity "other": no such extension`)
	require.NoError(t, h.Shutdown(t.Context()))
}
