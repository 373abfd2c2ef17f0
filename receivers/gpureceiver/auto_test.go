package gpureceiver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadatatest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/process"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// reads waits until GPUs are read through a source, for a reason.
func (r *running) reads(source Source, reason string) {
	r.Helper()
	require.Eventually(r, func() bool {
		now := r.monitor.condition.Load()
		return now.name == protocol.Ready && now.source == source && now.reason == reason
	}, deadline, time.Millisecond, "wanted %s, %s", source, reason)
}

// The whole way: helper programs, both libraries, and what comes out.
func TestAutoTakesTheEngineThatAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it starts many helpers")
	}
	host := gputest.New(t)
	power := map[string]any{"gpu.id": first}
	occupancy := map[string]any{"gpu.id": first}

	t.Run("an engine that answers from the start", func(t *testing.T) {
		r := runOn(t, host)
		r.reads(DCGM, engineAnswers)
		r.point("hw.power", power, is(650.5))
		r.point("hw.gpu.sm.occupancy", occupancy, is(0.33))
	})
	t.Run("an engine that comes, goes and comes again", func(t *testing.T) {
		host.DCGM.Script("engine down")
		r := runOn(t, host)
		r.reads(NVML, protocol.EngineAbsent)
		r.point("hw.power", power, is(650))
		host.DCGM.Script()
		r.reads(DCGM, engineAnswers)
		r.point("hw.power", power, is(650.5))
		host.DCGM.Script("engine down")
		r.reads(NVML, protocol.ConnectionLost)
		r.point("hw.power", power, is(650))
		host.DCGM.Script()
		r.reads(DCGM, engineAnswers)
		require.Empty(t, bodies(r, "gpu.lost"), "a source that goes is no GPU that is lost")
	})
	t.Run("no library of DCGM, then it is installed", func(t *testing.T) {
		host.DCGM.Script()
		empty := t.TempDir()
		r := runOn(t, host, func(c *Config) { c.DCGM.LibraryFolder = empty })
		r.reads(NVML, protocol.LibraryAbsent)
		host.DCGM.Build(empty + "/libdcgm.so.4")
		r.reads(DCGM, engineAnswers)
	})
	t.Run("an engine whose call hangs", func(t *testing.T) {
		host.DCGM.Script("hang dcgmHealthCheck")
		r := runOn(t, host, impatient)
		r.reads(NVML, hung)
		r.point("hw.power", power, is(650))
		host.DCGM.Script()
		r.reads(DCGM, engineAnswers)
	})
}

// sources starts helpers of each source, and knows how many run at once.
type sources struct {
	mu      sync.Mutex
	engine  func() *fakeHelper // nil: nobody asks for it
	driver  func() *fakeHelper
	answers bool
	reading int
	most    int
	tasks   []task
}

// counted is a helper that reads.
type counted struct {
	*fakeHelper
	end func()
}

func (c counted) Close() string {
	c.end()
	return c.fakeHelper.Close()
}

func (s *sources) start(_ *Config, t task) (process.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = append(s.tasks, t)
	if t.ask {
		name := protocol.EngineAbsent
		if s.answers {
			name = protocol.EngineAnswers
		}
		return newFakeHelper(nil, found(name)), nil
	}
	h := s.driver
	if t.source == DCGM {
		h = s.engine
	}
	s.reading++
	s.most = max(s.most, s.reading)
	return counted{h(), sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reading--
	})}, nil
}

func (s *sources) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// asked counts the tasks of a kind.
func (s *sources) asked(of func(task) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if of(t) {
			n++
		}
	}
	return n
}

func gone(name string) func() *fakeHelper {
	return func() *fakeHelper { return newFakeHelper(nil, found(name)) }
}

func reads() *fakeHelper { return newFakeHelper(healthy, found(protocol.Ready)) }

func isAuto(c *Config) { c.Source = Auto }

func TestTwoSourcesAreNeverReadAtOnce(t *testing.T) {
	s := &sources{driver: reads, engine: gone(protocol.EngineAbsent)}
	m, _ := makeMonitor(t, s.start, receivertest.NewNopSettings(metadata.Type), isAuto)
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	source := func(want Source) {
		require.Eventually(t, func() bool { now := m.condition.Load(); return now.name == protocol.Ready && now.source == want }, deadline, time.Millisecond)
	}
	for range 5 {
		source(NVML)
		engine := reads()
		s.set(func() { s.answers, s.engine = true, func() *fakeHelper { return engine } })
		source(DCGM)
		s.set(func() { s.answers, s.engine = false, gone(protocol.EngineAbsent) })
		engine.messages <- found(protocol.ConnectionLost)
	}
	source(NVML)
	s.set(func() { require.Equal(t, 1, s.most) })
}

// An engine that answers, but ends each helper that reads it, is not tried at every
// retry.
func TestAnEngineThatIsNoGoodIsTriedLessAndLessOften(t *testing.T) {
	s := &sources{driver: reads, engine: func() *fakeHelper { return crashes() }, answers: true}
	m, _ := makeMonitor(t, s.start, receivertest.NewNopSettings(metadata.Type), isAuto, func(c *Config) { c.RetryInterval = 4 * time.Millisecond })
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	engines := func() int { return s.asked(func(t task) bool { return t.source == DCGM && !t.ask }) }
	require.Eventually(t, func() bool { return engines() >= 4 }, deadline, time.Millisecond)
	require.NoError(t, m.Shutdown(t.Context()))

	e, at := engine{}, time.Unix(1_700_000_000, 0)
	broken := newCondition(choice{source: DCGM}, crashed, "")
	var waits []time.Duration
	for range 9 {
		e.failed(broken, time.Second, at, time.Minute)
		waits = append(waits, e.next.Sub(at)/time.Minute)
	}
	require.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 64, 64, 64}, waits)
	e.failed(broken, 10*time.Minute, at, time.Minute)
	require.Equal(t, time.Minute, e.next.Sub(at), "it was good for long")
	e.failed(broken, time.Second, at, time.Minute)
	e.failed(newCondition(choice{source: DCGM}, protocol.EngineAbsent, ""), time.Second, at, time.Minute)
	require.Equal(t, time.Minute, e.next.Sub(at), "to ask an engine that is down costs little")
}

func TestTheSourceAndItsReasonAreTold(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	core, logged := observer.New(zap.InfoLevel)
	settings := metadatatest.NewSettings(telemetry)
	settings.Logger = zap.New(core)
	host := fakeHost{statuses: make(chan *componentstatus.Event, 100)}
	s := &sources{driver: reads, engine: gone(protocol.EngineAbsent)}
	m, _ := makeMonitor(t, s.start, settings, isAuto)
	require.NoError(t, m.Start(t.Context(), host))
	until(t, m, protocol.Ready)
	told := func(source, reason string) {
		status := <-host.statuses
		require.Equal(t, componentstatus.StatusOK, status.Status())
		require.Equal(t, map[string]any{"source": source, "source.reason": reason}, status.Attributes().AsRaw())
		got, err := telemetry.GetMetric("otelcol_receiver_gpu_source")
		require.NoError(t, err)
		require.Equal(t, []metricPoint{{1, source + reason}}, points64(got.Data))
	}
	told("nvml", protocol.EngineAbsent)
	metadatatest.AssertEqualReceiverGpuGpus(t, telemetry, []metricdata.DataPoint[int64]{{Value: 2}}, metricdatatest.IgnoreTimestamp())
	require.Len(t, logged.All(), 1, "each once")
	require.Equal(t, "reading NVIDIA GPUs through NVML: 2 GPUs, driver ", logged.All()[0].Message)
	require.Contains(t, logged.All()[0].ContextMap()["dcgm"], "the host engine cannot be reached (detail)")

	s.set(func() { s.answers, s.engine = true, reads })
	require.Eventually(t, func() bool { return m.condition.Load().source == DCGM }, deadline, time.Millisecond)
	told("dcgm", engineAnswers)
	require.Equal(t, "reading NVIDIA GPUs through DCGM: 2 GPUs, driver ", logged.All()[1].Message)
}

// Where neither is read, the state is that of NVML, unless it is the engine that is
// in trouble.
func TestTheStateWhereNothingIsRead(t *testing.T) {
	for name, tc := range map[string]struct {
		engine, driver func() *fakeHelper
		state          string
		source         Source
	}{
		"a node without GPUs":              {gone(protocol.LibraryAbsent), gone(protocol.LibraryAbsent), protocol.LibraryAbsent, NVML},
		"a library of DCGM, but no GPUs":   {gone(protocol.EngineAbsent), gone(protocol.DriverNotLoaded), protocol.DriverNotLoaded, NVML},
		"an engine that crashes":           {func() *fakeHelper { return crashes() }, gone(protocol.LibraryAbsent), crashed, DCGM},
		"no engine, and a driver in error": {gone(protocol.EngineAbsent), gone(protocol.Failed), protocol.Failed, NVML},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sources{driver: tc.driver, engine: tc.engine}
			m, _ := makeMonitor(t, s.start, receivertest.NewNopSettings(metadata.Type), isAuto)
			require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
			<-m.settled
			require.Equal(t, tc.state, m.condition.Load().name)
			require.Equal(t, tc.source, m.condition.Load().source)
		})
	}
}

func TestAHelperThatCannotAskIsNoTrouble(t *testing.T) {
	s := &sources{driver: reads, engine: gone(protocol.EngineAbsent)}
	m, _ := makeMonitor(t, func(c *Config, of task) (process.Session, error) {
		if of.ask {
			return nil, errors.New("no more processes")
		}
		return s.start(c, of)
	}, receivertest.NewNopSettings(metadata.Type), isAuto)
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	until(t, m, protocol.Ready)
	require.Never(t, func() bool { return m.condition.Load().name != protocol.Ready }, 50*time.Millisecond, time.Millisecond)
}

func TestAHelperThatHangsAskingIsTheLastThatAsks(t *testing.T) {
	s := &sources{driver: reads, engine: gone(protocol.EngineAbsent)}
	stuck := &immortal{messages: make(chan protocol.Message), gone: make(chan struct{})}
	asked := make(chan struct{}, 1000)
	m, _ := makeMonitor(t, func(c *Config, of task) (process.Session, error) {
		if of.ask {
			asked <- struct{}{}
			return stuck, nil
		}
		return s.start(c, of)
	}, receivertest.NewNopSettings(metadata.Type), isAuto, func(c *Config) { c.CallTimeout = time.Millisecond })
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	<-asked
	require.Never(t, func() bool { return len(asked) > 0 }, 100*time.Millisecond, time.Millisecond)
	close(stuck.gone) // the driver let go of it
	<-asked
}
