package nvmlreceiver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadatatest"
)

// fakeHelper answers as a test tells it.
type fakeHelper struct {
	messages chan wire.Message
	gone     chan struct{}
	answer   func() wire.Message // to a poll; nil: silence
	once     sync.Once
}

func newFakeHelper(answer func() wire.Message, first ...wire.Message) *fakeHelper {
	h := &fakeHelper{messages: make(chan wire.Message, 10000), gone: make(chan struct{}), answer: answer}
	for _, m := range first {
		h.messages <- m
	}
	return h
}

func (h *fakeHelper) Messages() <-chan wire.Message { return h.messages }
func (h *fakeHelper) Gone() <-chan struct{}         { return h.gone }

func (h *fakeHelper) Poll() error {
	if h.answer != nil {
		h.messages <- h.answer()
	}
	return nil
}

func (h *fakeHelper) Close() string {
	h.once.Do(func() { close(h.gone) })
	return "exit status 139: said its last"
}

// crashed is a helper that ends after what it has said.
func crashed(first ...wire.Message) *fakeHelper {
	h := newFakeHelper(nil, first...)
	close(h.messages)
	return h
}

// found is the first message of a helper.
func found(name string) wire.Message {
	return wire.Message{State: &wire.State{Name: name, Detail: "detail"}}
}

func healthy() wire.Message { return wire.Message{Snapshot: snapshot(device("a"), device("b"))} }

// fakeHost hears component status.
type fakeHost struct{ statuses chan *componentstatus.Event }

func (fakeHost) GetExtensions() map[component.ID]component.Component { return nil }
func (h fakeHost) Report(event *componentstatus.Event)               { h.statuses <- event }

// helpers starts one helper after the other; the last stays.
type helpers struct {
	mu      sync.Mutex
	next    []func() (gpu.Session, error)
	started int
}

func (h *helpers) start(*Config, uint64) (gpu.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.next[min(h.started, len(h.next)-1)]
	h.started++
	return one()
}

func (h *helpers) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started
}

func gives(h *fakeHelper) func() (gpu.Session, error) {
	return func() (gpu.Session, error) { return h, nil }
}

func fails(err error) func() (gpu.Session, error) {
	return func() (gpu.Session, error) { return nil, err }
}

func makeMonitor(t *testing.T, start starter, settings receiver.Settings, change ...func(*Config)) (*gpu.Monitor, *consumertest.LogsSink) {
	config := createDefaultConfig().(*Config)
	config.CollectionInterval, config.RetryInterval, config.CallTimeout = time.Millisecond, time.Millisecond, 20*time.Second
	for _, c := range change {
		c(config)
	}
	sink := new(consumertest.LogsSink)
	logs, err := newFactory(start).CreateLogs(t.Context(), settings, config, sink)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, logs.Shutdown(context.Background())) })
	return logs.(*gpu.Instance).Monitor, sink
}

func until(t *testing.T, m *gpu.Monitor, state string) {
	t.Helper()
	require.Eventually(t, func() bool { return m.Condition().Name == state }, deadline, time.Millisecond, state)
}

func TestStatesOfTheHelper(t *testing.T) {
	for name, tc := range map[string]struct {
		first func() (gpu.Session, error)
		state string
		says  string
	}{
		"not installed":      {fails(gpu.ErrNoHelper), gpu.NoHelper, "no helper program"},
		"cannot be started":  {fails(errors.New("no more processes")), gpu.Failed, "no more processes"},
		"built without cgo":  {gives(newFakeHelper(nil, found(wire.NoCgo))), gpu.NoCgo, "C compiler"},
		"no library":         {gives(newFakeHelper(nil, found(wire.LibraryAbsent))), gpu.Absent, "libnvidia-ml.so.1"},
		"no driver":          {gives(newFakeHelper(nil, found(wire.DriverNotLoaded))), wire.DriverNotLoaded, "nvidia module"},
		"another error":      {gives(newFakeHelper(nil, found(wire.Failed))), gpu.Failed, "detail"},
		"a state of its own": {gives(newFakeHelper(nil, found("happy"))), gpu.Failed, "detail"},
		"dies at once":       {gives(crashed()), gpu.Crashed, "said its last"},
		"dies later":         {gives(crashed(found(wire.Ready))), gpu.Crashed, "said its last"},
		"a call hangs":       {gives(newFakeHelper(nil, found(wire.Ready), wire.Message{Hung: &wire.Hung{Call: "energy", GPU: "a"}})), gpu.Hung, "energy of GPU a"},
	} {
		t.Run(name, func(t *testing.T) {
			recovers := make(chan struct{})
			h := &helpers{next: []func() (gpu.Session, error){tc.first, func() (gpu.Session, error) {
				<-recovers // the state before can be seen for as long as the test likes
				return newFakeHelper(healthy, found(wire.Ready)), nil
			}}}
			m, _ := makeMonitor(t, h.start, receivertest.NewNopSettings(metadata.Type))
			require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
			until(t, m, tc.state)
			require.Contains(t, m.Condition().Says(), tc.says)
			close(recovers)
			until(t, m, gpu.Ready)
			require.EqualValues(t, 2, m.Known())
		})
	}
}

func TestSilentHelperHangs(t *testing.T) {
	for name, h := range map[string]*fakeHelper{"from the start": newFakeHelper(nil), "when asked": newFakeHelper(nil, found(wire.Ready))} {
		t.Run(name, func(t *testing.T) {
			starts := &helpers{next: []func() (gpu.Session, error){gives(h), func() (gpu.Session, error) {
				return newFakeHelper(healthy, found(wire.Ready)), nil // a new one each time: on a busy machine it may be too slow as well
			}}}
			m, _ := makeMonitor(t, starts.start, receivertest.NewNopSettings(metadata.Type), func(c *Config) { c.CallTimeout = 10 * time.Millisecond })
			require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
			require.Eventually(t, func() bool { return starts.count() > 1 }, deadline, time.Millisecond)
			until(t, m, gpu.Ready)
		})
	}
}

// A helper that takes longer to start than the interval between two attempts is
// not replaced before it has read once.
func TestHelperThatLooksForALostGPUHasTimeToRead(t *testing.T) {
	lost := func() wire.Message {
		return wire.Message{Snapshot: snapshot(device("a", func(g *wire.GPU) { g.Lost = true }), device("b"))}
	}
	slow := newFakeHelper(healthy) // says nothing until it is told to
	starts := &helpers{next: []func() (gpu.Session, error){gives(newFakeHelper(lost, found(wire.Ready))), gives(slow), fails(errors.New("a third"))}}
	m, _ := makeMonitor(t, starts.start, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	until(t, m, gpu.GPULost)
	require.Eventually(t, func() bool { return starts.count() == 2 }, deadline, time.Millisecond)
	require.Never(t, func() bool { return starts.count() > 2 }, 50*time.Millisecond, time.Millisecond)
	slow.messages <- found(wire.Ready)
	until(t, m, wire.Ready)
}

func TestPropagateWantsALibraryThatIsReady(t *testing.T) {
	propagate := func(c *Config) { c.ErrorMode = record.Propagate }
	m, _ := makeMonitor(t, (&helpers{next: []func() (gpu.Session, error){fails(gpu.ErrNoHelper)}}).start, receivertest.NewNopSettings(metadata.Type), propagate)
	require.ErrorContains(t, m.Start(t.Context(), componenttest.NewNopHost()), "nvml: no_helper: no helper program")

	m, _ = makeMonitor(t, (&helpers{next: []func() (gpu.Session, error){gives(newFakeHelper(healthy, found(wire.Ready)))}}).start, receivertest.NewNopSettings(metadata.Type), propagate)
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
}

func TestTroubleIsAStatusAndANodeWithoutGPUsIsNone(t *testing.T) {
	host := fakeHost{statuses: make(chan *componentstatus.Event, 100)}
	starts := &helpers{next: []func() (gpu.Session, error){
		fails(gpu.ErrNoHelper), gives(newFakeHelper(nil, found(wire.LibraryAbsent))), gives(crashed()), gives(newFakeHelper(healthy, found(wire.Ready))),
	}}
	m, _ := makeMonitor(t, starts.start, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, m.Start(t.Context(), host))
	require.Equal(t, componentstatus.StatusRecoverableError, (<-host.statuses).Status())
	require.Equal(t, componentstatus.StatusOK, (<-host.statuses).Status())
	require.Empty(t, host.statuses)
}

func TestOwnMetrics(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	failing := func() wire.Message {
		one := device("a")
		one.Failures, one.Skipped = []wire.Failure{{Call: "energy", Code: "unknown"}}, 3
		return wire.Message{Snapshot: snapshot(one)}
	}
	once := true
	h := newFakeHelper(nil, found(wire.Ready), wire.Message{Event: &wire.Event{Event: nvml.Event{Type: nvml.EventXid, Data: 79}}})
	h.answer = func() wire.Message { // one reading, then a hang
		if once {
			once = false
			return failing()
		}
		return wire.Message{Hung: &wire.Hung{Call: "energy", GPU: "a", Seconds: 1}}
	}
	starts := &helpers{next: []func() (gpu.Session, error){gives(h), fails(gpu.ErrNoHelper)}}
	m, _ := makeMonitor(t, starts.start, metadatatest.NewSettings(telemetry))
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	until(t, m, gpu.NoHelper)

	ignore := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualReceiverNvmlEventsLost(t, telemetry, []metricdata.DataPoint[int64]{{Value: 1}}, ignore)
	metadatatest.AssertEqualReceiverNvmlProcessesSkipped(t, telemetry, []metricdata.DataPoint[int64]{{Value: 3}}, ignore)
	metadatatest.AssertEqualReceiverNvmlGpus(t, telemetry, []metricdata.DataPoint[int64]{{Value: 1}}, ignore)
	for _, metric := range []struct {
		name  string
		value int64
		has   map[string]string
	}{
		{"otelcol_receiver_nvml_hangs", 1, map[string]string{"call": "energy"}},
		{"otelcol_receiver_nvml_helper_exits", 1, map[string]string{"reason": "hung"}},
		{"otelcol_receiver_nvml_call_failures", 1, map[string]string{"call": "energy", "code": "unknown"}},
		{"otelcol_receiver_nvml_state", 1, map[string]string{"state": "no_helper"}},
		{"otelcol_receiver_nvml_state", 0, map[string]string{"state": "ready"}},
	} {
		got, err := telemetry.GetMetric(metric.name)
		require.NoError(t, err)
		require.Contains(t, points64(got.Data), metricPoint{metric.value, metric.has["call"] + metric.has["code"] + metric.has["reason"] + metric.has["state"]})
	}
}

// metricPoint is a value with the values of its attributes, in the order of
// their keys.
type metricPoint struct {
	value      int64
	attributes string
}

func points64(data metricdata.Aggregation) []metricPoint {
	var points []metricdata.DataPoint[int64]
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		points = d.DataPoints
	case metricdata.Gauge[int64]:
		points = d.DataPoints
	}
	var found []metricPoint
	for _, p := range points {
		text := ""
		for _, a := range p.Attributes.ToSlice() {
			text += a.Value.AsString()
		}
		found = append(found, metricPoint{p.Value, text})
	}
	return found
}

func TestShutdownBeforeStartAndTwice(t *testing.T) {
	h := &helpers{next: []func() (gpu.Session, error){fails(gpu.ErrNoHelper)}}
	m, _ := makeMonitor(t, h.start, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, m.Shutdown(t.Context()))
	require.NoError(t, m.Shutdown(t.Context()))
	require.ErrorContains(t, m.Start(t.Context(), componenttest.NewNopHost()), "start after shutdown")
	require.Zero(t, h.count())
}

func TestShutdownDoesNotWaitForARetry(t *testing.T) {
	m, _ := makeMonitor(t, (&helpers{next: []func() (gpu.Session, error){fails(gpu.ErrNoHelper)}}).start, receivertest.NewNopSettings(metadata.Type),
		func(c *Config) { c.RetryInterval = time.Hour })
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	until(t, m, gpu.NoHelper)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	require.NoError(t, m.Shutdown(ctx))
}
