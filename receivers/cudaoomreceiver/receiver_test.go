package cudaoomreceiver

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

var start = probereceivertest.Start

// fakeSource delivers the events a test gives it and hears what is to be watched.
type fakeSource struct {
	*probereceivertest.EventSource[cudaoom.Event]
	watches chan []probe.Process
}

func (f *fakeSource) Watch(processes []probe.Process) (probe.Watched, error) {
	select {
	case <-f.Closed:
		return probe.Watched{}, probe.ErrClosed
	case f.watches <- processes:
		return probe.Watched{Libraries: 4, Over: 5, Failed: 6, Unreadable: 7, Err: errors.New("libcuda of process 7 is damaged")}, nil
	}
}

// bench is a receiver on fakes, whose clocks the test moves.
type bench struct {
	*probereceivertest.Bench
	source   *fakeSource // the last that was opened
	config   *Config
	refusals int64 // delivered
}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), config: createDefaultConfig().(*Config)}
	b.Resolver.Know(identity.Process{PID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1", StartTime: start})
	b.config.Identity = &probereceivertest.IdentityID
	return b
}

func (b *bench) factory(ticks probereceiver.Ticks) receiver.Factory {
	return newFactory(surroundings{ticks: ticks, open: func(*Config) (source, error) {
		b.source = &fakeSource{probereceivertest.NewEventSource[cudaoom.Event](), make(chan []probe.Process, 100)}
		return b.source, b.Open()
	}})
}

func (b *bench) receiver(t *testing.T, next consumer.Logs) receiver.Logs {
	r, err := b.factory(b.Ticks).CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) start(t *testing.T) { b.StartAll(t, b.receiver(t, b.Sink)) }

// refuse delivers a refusal of the rank's, which happened so many seconds after
// start, and waits until it was taken.
func (b *bench) refuse(t *testing.T, seconds float64) {
	t.Helper()
	e := refused(42)
	e.Time = after(seconds)
	b.source.Events <- *e
	b.refusals++
	b.Eventually(t, "refusals", b.refusals)
}

func (b *bench) grant(seconds float64) {
	e := granted(42)
	e.Time = after(seconds)
	b.source.Events <- *e
}

// settle lets the receiver look, so many seconds after start, at what has settled.
func (b *bench) settle(t *testing.T, seconds float64) {
	b.Tick(t, b.config.Settle/4, after(seconds))
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b, seconds := newBench(t), 0.0
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return []component.Component{b.receiver(t, next)}
			},
			Fire: func(t *testing.T) {
				seconds += 100 // one thread is told of once a minute
				b.refuse(t, seconds)
				b.settle(t, seconds+3)
			},
			Break:           func(_ *testing.T, err error) { b.source.Broken <- err },
			NeedsIdentity:   true,
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	b.config.Settle = minSettle
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "process.pid", Make: func(pid uint32) string {
		b.source.Events <- cudaoom.Event{Time: start, PID: pid, Thread: pid, SizeBytes: 1} // long ago: it has settled
		return fmt.Sprint(pid)
	}}, b.config, func() receiver.Factory { return b.factory(probereceiver.RealTime) })
}

func TestRefusalThatStandsBecomesARecord(t *testing.T) {
	b := newBench(t)
	b.start(t)
	b.refuse(t, 0)
	b.refuse(t, 0.5)
	b.settle(t, 3.4)
	b.settle(t, 3.4) // taken when the first was looked at
	require.Empty(t, b.Records)
	b.settle(t, 3.5)
	r := b.Next(t)
	require.Equal(t, "cuda.refusal", r.EventName())
	require.Equal(t, after(0.5).UnixNano(), int64(r.Timestamp()))
	require.Equal(t, plog.SeverityNumberError, r.SeverityNumber())
	require.Equal(t, map[string]any{
		"process.pid": int64(42), "process.executable.name": "python", "gen_ai.training.rank": int64(3), "gen_ai.training.local_rank": int64(3),
		"gen_ai.training.world_size": int64(8), "gen_ai.training.job_id": "job-1",
		"cuda_oom.tried_alloc_bytes": int64(gib), "cuda_oom.function": "cuMemAlloc", "cuda_oom.attempts": int64(2), "tracecore.trust": "claimed",
	}, r.Attributes().AsRaw())
	b.Accepted(t, 1)
	require.EqualValues(t, 2, b.Own(t, "refusals"))
}

func TestARefusalIsToldWithinTheProcessAtOnce(t *testing.T) {
	told, stop := gpuask.Refusals()
	defer stop()
	b := newBench(t)
	b.start(t)
	b.grant(0)
	b.refuse(t, 0.1)
	require.Len(t, told, 1, "before it has settled")
	<-told
	b.grant(0.5)
	b.Eventually(t, "retried", 1)
	require.Empty(t, told, "memory that was granted")
}

func TestRefusalThatIsOvercomeIsCountedAlone(t *testing.T) {
	b := newBench(t)
	b.start(t)
	b.refuse(t, 0)
	b.grant(0.5)
	b.Eventually(t, "retried", 1)
	b.settle(t, 60)
	b.settle(t, 61)
	require.Empty(t, b.Records)
	require.EqualValues(t, 1, b.Own(t, "refusals"))
}

func TestSuccessAfterTheRecordTakesItBack(t *testing.T) {
	b := newBench(t)
	b.start(t)
	b.refuse(t, 0)
	b.settle(t, 3)
	require.NotContains(t, b.Next(t).Attributes().AsRaw(), "cuda_oom.retried")
	b.grant(20)
	r := b.Next(t)
	require.Equal(t, true, r.Attributes().AsRaw()["cuda_oom.retried"])
	require.Equal(t, plog.SeverityNumberInfo, r.SeverityNumber())
}

func TestDeathOfTheRankNeedsNoWaiting(t *testing.T) {
	b := newBench(t)
	b.start(t)
	b.refuse(t, 0)
	b.Resolver.Exit(t, identity.Exit{Process: identity.Process{PID: 42}})
	require.Equal(t, "cuda.refusal", b.Next(t).EventName())
}

func TestLibrariesOfTheRanksAreLookedForAgainAndAgain(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 2
	b.Resolver.Know(identity.Process{PID: 99, StartTime: start}, identity.Process{PID: 44, StartTime: start}, identity.Process{PID: 42, StartTime: start})
	b.start(t)
	want := []probe.Process{{PID: 42, Start: start}, {PID: 44, Start: start}}
	require.Equal(t, want, <-b.source.watches, "at once, and no more than are allowed")
	b.Tick(t, b.config.ScanInterval, time.Time{})
	require.Equal(t, want, <-b.source.watches)
	b.Eventually(t, "processes_skipped", 2*(1+7))
	for name, value := range map[string]int64{
		"probe_up": 1, "probe_dropped": 2, "probe_invalid": 3, "libraries": 4, "libraries_skipped": 5, "libraries_failed": 6,
	} {
		require.Equal(t, value, b.Own(t, name), name)
	}
}

func TestEventSwitchedOffIsReadAndNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.CudaRefusal.Enabled = false
	b.start(t)
	b.refuse(t, 0)
	b.settle(t, 60)
	b.settle(t, 61)
	require.Empty(t, b.Records)
	require.EqualValues(t, 1, b.Own(t, "refusals"))
}
