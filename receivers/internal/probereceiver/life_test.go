package probereceiver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type source = *probereceivertest.EventSource[int]

// bench is the life of a probe of numbers.
type bench struct {
	*probereceivertest.Bench
	parts   probereceiver.Parts[source]
	sources chan source // each that was opened
	numbers chan int    // what was read
}

func newBench(t *testing.T) *bench {
	b := &bench{
		Bench:   probereceivertest.NewBench(t, component.MustNewType("some")),
		sources: make(chan source, 10), numbers: make(chan int, 10),
	}
	register := b.register
	b.parts = probereceiver.Parts[source]{
		Probe: "number probe", Missing: "numbers", ErrorMode: record.Ignore, Logger: zap.NewNop(), Ticks: b.Ticks, Shutdown: func() {},
		Metrics: probereceiver.Metrics{Up: register("up"), Proven: register("proven"), Dropped: register("dropped"), Invalid: register("invalid"), Failures: register("failures")},
		Open: func() (source, error) {
			s := probereceivertest.NewEventSource[int]()
			if err := b.Open(); err != nil {
				return nil, err
			}
			b.sources <- s
			return s, nil
		},
		Use: func(_ context.Context, s source) error {
			return probereceiver.Events(s.Read, func(n *int) { b.numbers <- *n })
		},
	}
	return b
}

func (b *bench) register(name string) probereceiver.Register {
	return func(callback metric.Int64Callback) error {
		_, err := b.Settings.MeterProvider.Meter("some").Int64ObservableGauge("otelcol_receiver_some_"+name, metric.WithInt64Callback(callback))
		return err
	}
}

// nowhere is an outbox for what nobody makes.
type nowhere struct{}

func (nowhere) Start()                      {}
func (nowhere) Close(context.Context) error { return nil }

func (b *bench) start(t *testing.T) *probereceiver.Receiver {
	r := probereceiver.New(b.parts).Receiver(nowhere{})
	b.StartAll(t, r)
	return r
}

// A probe that cannot show who said what it delivers says why: once in the log, in the
// status of its receiver and in a metric, also when it is opened again.
func TestWhatProvesNothingSaysWhy(t *testing.T) {
	b := newBench(t)
	const why = "nothing shows who wrote: give it CAP_SYSLOG"
	unproven, open := why, b.parts.Open
	b.parts.Open = func() (source, error) {
		s, err := open()
		if err == nil {
			s.Unproven = unproven
		}
		return s, err
	}
	core, logs := observer.New(zap.WarnLevel)
	b.parts.Logger = zap.New(core)
	b.start(t)
	doubted := func() {
		event := b.Host.Status(t)
		require.Equal(t, componentstatus.StatusRecoverableError, event.Status())
		require.EqualError(t, event.Err(), why)
	}
	doubted()
	require.EqualValues(t, 1, b.Own(t, "up"))
	require.Zero(t, b.Own(t, "proven"))

	again := func(pause time.Duration) {
		(<-b.sources).Broken <- errors.New("broken")
		require.ErrorContains(t, b.Host.Status(t).Err(), "broken")
		b.Tick(t, pause, time.Time{})
		require.Equal(t, componentstatus.StatusOK, b.Host.Status(t).Status())
	}
	again(time.Second)
	doubted()
	require.Len(t, logs.FilterMessage("numbers: "+why).All(), 1)

	unproven = ""
	again(2 * time.Second)
	b.Eventually(t, "proven", 1)
}

// What is not known of the time without an agent is said in the log, with times and
// numbers; metrics count it over all openings.
func TestATimeWithoutAnAgentIsTold(t *testing.T) {
	b := newBench(t)
	open, at := b.parts.Open, time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	b.parts.Open = func() (source, error) {
		s, err := open()
		if err == nil {
			s.Away = probe.Away{
				Since: at, Until: at.Add(time.Hour), Records: 7, Lost: 3, Full: at.Add(time.Minute), Foreign: 2, Err: errors.New("no BPF file system"),
			}
		}
		return s, err
	}
	core, logs := observer.New(zap.WarnLevel)
	b.parts.Logger = zap.New(core)
	b.parts.Metrics.Late, b.parts.Metrics.Missed = b.register("late"), b.register("missed")
	b.start(t)
	require.Equal(t, "not all numbers between 2026-11-23T06:00:00Z and 2026-11-23T07:00:00Z are known, when no agent ran: "+
		"the ring had no room for 3 after 2026-11-23T06:01:00Z; 2 are of another version of tracecore, whose records this one cannot read", logs.All()[0].Message)
	require.Equal(t, "no BPF file system", logs.All()[1].ContextMap()["error"])
	require.EqualValues(t, 7, b.Own(t, "late"))
	require.EqualValues(t, 5, b.Own(t, "missed"))

	(<-b.sources).Broken <- errors.New("broken")
	require.Equal(t, componentstatus.StatusRecoverableError, b.Host.Status(t).Status())
	b.Tick(t, time.Second, time.Time{})
	require.Equal(t, componentstatus.StatusOK, b.Host.Status(t).Status())
	require.EqualValues(t, 14, b.Own(t, "late"))
	require.EqualValues(t, 10, b.Own(t, "missed"))
}

// TestWhatTheReceiverGaveUpIsLost: beside what its probe dropped.
func TestWhatTheReceiverGaveUpIsLost(t *testing.T) {
	b := newBench(t)
	var gaveUp atomic.Uint64
	lost := make(chan probereceiver.Lost, 10)
	b.parts.GaveUp = gaveUp.Load
	b.parts.Lost = func(l *probereceiver.Lost) { lost <- *l }
	b.start(t)
	const interval = 3 * time.Second
	at := time.Date(2026, 11, 25, 6, 0, 0, 0, time.UTC)
	for i := range 3 { // of the last of them nobody knows whether it is over
		b.Tick(t, interval, at.Add(time.Duration(i)*interval))
	}
	require.EqualValues(t, 5, (<-lost).Count, "what the probe dropped and could not read before the first look")
	require.Empty(t, lost)
	gaveUp.Store(7)
	for i := range 2 {
		b.Tick(t, interval, at.Add(time.Duration(3+i)*interval))
	}
	one := <-lost
	require.Equal(t, "numbers", one.Things)
	require.Equal(t, probereceiver.LostOverflow, one.Why)
	require.EqualValues(t, 7, one.Count)
	require.Equal(t, interval, one.Until.Sub(one.Since))
	require.Empty(t, lost)
}

func TestPausesGrowToFiveMinutes(t *testing.T) {
	b := newBench(t)
	refused := errors.New("no memory")
	b.Refuse(refused)
	b.start(t)
	pause := time.Second
	for range 12 {
		require.ErrorIs(t, b.Host.Status(t).Err(), refused)
		b.Tick(t, pause, time.Time{})
		pause = min(2*pause, 5*time.Minute)
	}
	b.Host.Status(t)
	require.Equal(t, 5*time.Minute, pause)
	require.EqualValues(t, 13, b.Opened())
}

type unsupported struct{ error }

func (unsupported) Lasting() bool { return true }

func TestKernelWithoutTheHooksIsTriedOnceAnHour(t *testing.T) {
	b := newBench(t)
	b.Refuse(unsupported{errors.New("ring buffers need Linux 5.8")})
	b.start(t)
	b.Host.Status(t)
	b.Refuse(nil)
	b.Tick(t, time.Hour, time.Time{})
	require.Equal(t, componentstatus.StatusOK, b.Host.Status(t).Status())
}

func TestCountersGoOnWithTheNextProbe(t *testing.T) {
	b := newBench(t)
	b.start(t)
	require.EqualValues(t, 2, b.Own(t, "dropped"))
	(<-b.sources).Broken <- errors.New("ring is gone")
	b.Host.Status(t)
	require.EqualValues(t, 2, b.Own(t, "dropped"), "what the first counted")
	b.Tick(t, time.Second, time.Time{})
	b.Host.Status(t)
	require.EqualValues(t, 4, b.Own(t, "dropped"))
	require.EqualValues(t, 6, b.Own(t, "invalid"))
	require.EqualValues(t, 1, b.Own(t, "failures"))
	next := <-b.sources
	next.Events <- 7
	require.Equal(t, 7, <-b.numbers)
}

func TestProbeThatEndsByItselfIsBroken(t *testing.T) {
	b := newBench(t)
	b.start(t)
	(<-b.sources).Broken <- probe.ErrClosed
	require.ErrorContains(t, b.Host.Status(t).Err(), "read the number probe: it ended by itself")
}

func TestSecondSignalHearsTheStatusOfTheProbe(t *testing.T) {
	b := newBench(t)
	b.Refuse(errors.New("no memory"))
	life := probereceiver.New(b.parts)
	holders := 2
	leave := func(last func() error) error {
		if holders--; holders == 0 {
			return last()
		}
		return nil
	}
	first, second := life.SharedReceiver(nowhere{}, leave), life.SharedReceiver(nowhere{}, leave)
	require.NoError(t, first.Start(t.Context(), b.Host))
	b.Host.Status(t)
	require.NoError(t, second.Start(t.Context(), b.Host))
	require.Equal(t, componentstatus.StatusRecoverableError, b.Host.Status(t).Status())
	b.Refuse(nil)
	b.Tick(t, time.Second, time.Time{})
	for range 2 {
		require.Equal(t, componentstatus.StatusOK, b.Host.Status(t).Status())
	}
	opened := <-b.sources
	require.NoError(t, first.Shutdown(t.Context()))
	require.EqualValues(t, 1, b.Own(t, "up"), "the other signal still needs it")
	require.NoError(t, second.Shutdown(t.Context()))
	<-opened.Closed
}

func TestStopWhileTheProbeOpensClosesIt(t *testing.T) {
	b := newBench(t)
	opening, open := make(chan struct{}), make(chan struct{})
	b.Refuse(errors.New("no memory"))
	inner := b.parts.Open
	b.parts.Open = func() (source, error) {
		if b.Opened() > 0 {
			close(opening)
			<-open
		}
		return inner()
	}
	r := b.start(t)
	b.Host.Status(t)
	b.Refuse(nil)
	b.Tick(t, time.Second, time.Time{})
	<-opening
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Shutdown(ctx), context.Canceled)
	close(open)
	<-(<-b.sources).Closed
	require.Empty(t, b.Host.Statuses, "nobody is told any more")
}

func TestStartAfterShutdown(t *testing.T) {
	b := newBench(t)
	r := probereceiver.New(b.parts).Receiver(nowhere{})
	require.NoError(t, r.Shutdown(t.Context()))
	require.ErrorContains(t, r.Start(t.Context(), b.Host), "start after shutdown")
}

func TestWorkEndsAfterTheLastUse(t *testing.T) {
	b := newBench(t)
	var order []string
	use := b.parts.Use
	b.parts.Use = func(ctx context.Context, s source) error {
		err := use(ctx, s)
		order = append(order, "use")
		return err
	}
	b.parts.Work = func(_ context.Context, done <-chan struct{}) {
		<-done
		order = append(order, "work")
	}
	r := b.start(t)
	(<-b.sources).Events <- 1
	require.NoError(t, r.Shutdown(t.Context()))
	require.Equal(t, []string{"use", "work"}, order)
}

func TestScansMayFailNowAndThen(t *testing.T) {
	var scans probereceiver.Scans
	failed := errors.New("out of memory")
	for range 3 {
		for range probereceiver.MaxFailures - 1 {
			require.NoError(t, scans.Judge(failed))
		}
		require.NoError(t, scans.Judge(nil))
	}
	require.ErrorIs(t, scans.Judge(probe.ErrClosed), probe.ErrClosed)
	for range probereceiver.MaxFailures - 1 {
		require.NoError(t, scans.Judge(failed))
	}
	require.ErrorIs(t, scans.Judge(failed), failed)
}

// Who floods the ring of a probe is named in the log, ever more rarely.
func TestWhoFloodsAProbeIsNamed(t *testing.T) {
	b := newBench(t)
	core, logs := observer.New(zap.WarnLevel)
	b.parts.Logger = zap.New(core)
	b.start(t)
	s := <-b.sources
	b.Own(t, "dropped")
	require.Zero(t, logs.Len())
	for crowded := range uint64(100) {
		s.Crowded.Store(crowded)
		b.Own(t, "dropped")
	}
	require.Equal(t, 7, logs.Len(), "at 1, 2, 4, … 64")
	require.Equal(t, map[string]any{"uid": uint32(1000), "dropped": uint64(64)}, logs.All()[6].ContextMap())
}

// A user runs as many ranks as he likes: those of others are looked at all the same.
func TestRanksOfOneUserHideNoneOfAnother(t *testing.T) {
	var known []identity.Process
	add := func(pid uint32, domain, job string) {
		known = append(known, identity.Process{PID: pid, Domain: domain, JobID: job, Rank: 0})
	}
	for pid := range uint32(10_000) {
		add(pid+1, "user 1", fmt.Sprint("job-", pid%1000))
	}
	for pid := uint32(20_000); pid < 20_010; pid++ {
		add(pid, "user 2", "job")
	}
	var resolver probereceivertest.Resolver
	resolver.Know(known...)
	ranks, over := probereceiver.Oldest(&resolver, 100)
	require.Len(t, ranks, 100)
	require.Equal(t, 9910, over)
	require.True(t, slices.IsSortedFunc(ranks, func(a, b identity.Process) int { return cmp.Compare(a.PID, b.PID) }))
	for i, r := range ranks[90:] {
		require.EqualValues(t, 20_000+i, r.PID)
	}
	ranks, over = probereceiver.Oldest(&resolver, 20_000)
	require.Len(t, ranks, 10_010)
	require.Zero(t, over)
}
