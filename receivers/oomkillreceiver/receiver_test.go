package oomkillreceiver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

var start = probereceivertest.Start

// bench is a receiver on fakes.
type bench struct {
	*probereceivertest.Bench
	source *probereceivertest.EventSource[oomkill.Event] // the last that was opened
	config *Config
}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), config: createDefaultConfig().(*Config)}
	b.config.Identity = &probereceivertest.IdentityID
	return b
}

func (b *bench) factory() receiver.Factory {
	return newFactory(surroundings{ticks: b.Ticks, open: func(string) (source, error) {
		b.source = probereceivertest.NewEventSource[oomkill.Event]()
		return b.source, b.Open()
	}})
}

func (b *bench) receiver(t *testing.T, next consumer.Logs) receiver.Logs {
	r, err := b.factory().CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) start(t *testing.T) receiver.Logs {
	r := b.receiver(t, b.Sink)
	b.StartAll(t, r)
	return r
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b := newBench(t)
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return []component.Component{b.receiver(t, next)}
			},
			Fire:            func(*testing.T) { b.source.Events <- cgroupKill() },
			Break:           func(_ *testing.T, err error) { b.source.Broken <- err },
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "process.pid", Make: func(pid uint32) string {
		b.source.Events <- oomkill.Event{Time: start, PID: pid, Comm: "python"}
		return fmt.Sprint(pid)
	}}, b.config, b.factory)
}

func TestKillOfARanksWorkerBecomesARecord(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(identity.Process{PID: 7, Comm: "torchrun", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1"})
	r := b.start(t)
	b.source.Events <- cgroupKill()
	kill := b.Next(t)
	require.Equal(t, "oom.kill", kill.EventName())
	require.Equal(t, start.UnixNano(), int64(kill.Timestamp()))
	require.Equal(t, plog.SeverityNumberError, kill.SeverityNumber())
	a := kill.Attributes().AsRaw()
	require.EqualValues(t, 42, a["process.pid"])
	require.EqualValues(t, 7, a["process.parent_pid"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "cgroup", a["oomkill.constraint"])
	require.Equal(t, "oom_killed", a["k8s.event.hint"])

	require.NoError(t, r.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.Own(t, "kills"))
	b.Accepted(t, 1)
}

func TestAKillFromBeforeTheStartSaysSo(t *testing.T) {
	b := newBench(t)
	b.start(t)
	late := cgroupKill()
	late.Late = true
	b.source.Events <- late
	b.source.Events <- cgroupKill()
	require.Equal(t, true, b.Next(t).Attributes().AsRaw()["tracecore.late"])
	require.NotContains(t, b.Next(t).Attributes().AsRaw(), "tracecore.late")
}

func TestProbesCountersAreMetrics(t *testing.T) {
	b := newBench(t)
	b.start(t)
	require.EqualValues(t, 1, b.Own(t, "probe_up"))
	require.EqualValues(t, 2, b.Own(t, "probe_dropped"))
	require.EqualValues(t, 3, b.Own(t, "probe_invalid"))
	require.Zero(t, b.Own(t, "probe_failures"))
}

func TestEventSwitchedOffIsReadAndNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.OomKill.Enabled = false
	r := b.start(t)
	b.source.Events <- cgroupKill()
	b.source.Events <- cgroupKill()
	require.NoError(t, r.Shutdown(t.Context()))
	require.Empty(t, b.Records)
	require.EqualValues(t, 2, b.Own(t, "kills"))
}
