package gpureceiver

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

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadatatest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/process"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// fakeHelper answers as a test tells it.
type fakeHelper struct {
	messages chan protocol.Message
	gone     chan struct{}
	answer   func() protocol.Message // to a poll; nil: silence
	once     sync.Once
}

func newFakeHelper(answer func() protocol.Message, first ...protocol.Message) *fakeHelper {
	h := &fakeHelper{messages: make(chan protocol.Message, 10000), gone: make(chan struct{}), answer: answer}
	for _, m := range first {
		h.messages <- m
	}
	return h
}

func (h *fakeHelper) Messages() <-chan protocol.Message { return h.messages }
func (h *fakeHelper) Gone() <-chan struct{}             { return h.gone }

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

// crashes is a helper that ends after what it has said.
func crashes(first ...protocol.Message) *fakeHelper {
	h := newFakeHelper(nil, first...)
	close(h.messages)
	return h
}

// found is the first message of a helper.
func found(name string) protocol.Message {
	return protocol.Message{State: &protocol.State{Name: name, Detail: "detail"}}
}

func healthy() protocol.Message {
	return protocol.Message{Snapshot: snapshot(at("a"), at("b"))}
}

// fakeHost hears component status.
type fakeHost struct{ statuses chan *componentstatus.Event }

func (fakeHost) GetExtensions() map[component.ID]component.Component { return nil }
func (h fakeHost) Report(event *componentstatus.Event)               { h.statuses <- event }

// helpers starts one helper after the other; the last stays.
type helpers struct {
	mu      sync.Mutex
	next    []func() (process.Session, error)
	started int
}

func (h *helpers) start(*Config, task) (process.Session, error) {
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

func gives(h *fakeHelper) func() (process.Session, error) {
	return func() (process.Session, error) { return h, nil }
}

func fails(err error) func() (process.Session, error) {
	return func() (process.Session, error) { return nil, err }
}

func makeMonitor(t *testing.T, start starter, settings receiver.Settings, change ...func(*Config)) (*monitor, *consumertest.LogsSink) {
	config := createDefaultConfig().(*Config)
	config.Source = NVML
	config.CollectionInterval, config.RetryInterval, config.CallTimeout = time.Millisecond, time.Millisecond, 20*time.Second
	for _, c := range change {
		c(config)
	}
	sink := new(consumertest.LogsSink)
	logs, err := newFactory(start).CreateLogs(t.Context(), settings, config, sink)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, logs.Shutdown(context.Background())) })
	return logs.(*instance).monitor, sink
}

func until(t *testing.T, m *monitor, state string) {
	t.Helper()
	require.Eventually(t, func() bool { return m.condition.Load().name == state }, deadline, time.Millisecond, state)
}

func TestStatesOfTheHelper(t *testing.T) {
	for name, tc := range map[string]struct {
		first func() (process.Session, error)
		state string
		says  string
	}{
		"not installed":      {fails(process.ErrNoHelper), noHelper, "no helper program"},
		"cannot be started":  {fails(errors.New("no more processes")), protocol.Failed, "no more processes"},
		"built without cgo":  {gives(newFakeHelper(nil, found(protocol.NoCgo))), protocol.NoCgo, "C compiler"},
		"no library":         {gives(newFakeHelper(nil, found(protocol.LibraryAbsent))), protocol.LibraryAbsent, "libnvidia-ml.so.1"},
		"no driver":          {gives(newFakeHelper(nil, found(protocol.DriverNotLoaded))), protocol.DriverNotLoaded, "nvidia module"},
		"another error":      {gives(newFakeHelper(nil, found(protocol.Failed))), protocol.Failed, "detail"},
		"a state of its own": {gives(newFakeHelper(nil, found("happy"))), protocol.Failed, "detail"},
		"dies at once":       {gives(crashes()), crashed, "said its last"},
		"dies later":         {gives(crashes(found(protocol.Ready))), crashed, "said its last"},
		"a call hangs":       {gives(newFakeHelper(nil, found(protocol.Ready), protocol.Message{Hung: &protocol.Hung{Call: "energy", GPU: "a"}})), hung, "energy of GPU a"},
	} {
		t.Run(name, func(t *testing.T) {
			recovers := make(chan struct{})
			h := &helpers{next: []func() (process.Session, error){tc.first, func() (process.Session, error) {
				<-recovers // the state before can be seen for as long as the test likes
				return newFakeHelper(healthy, found(protocol.Ready)), nil
			}}}
			m, _ := makeMonitor(t, h.start, receivertest.NewNopSettings(metadata.Type))
			require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
			until(t, m, tc.state)
			require.Contains(t, m.condition.Load().says(), tc.says)
			close(recovers)
			until(t, m, protocol.Ready)
			require.EqualValues(t, 2, m.known.Load())
		})
	}
}

func TestSilentHelperHangs(t *testing.T) {
	for name, h := range map[string]*fakeHelper{"from the start": newFakeHelper(nil), "when asked": newFakeHelper(nil, found(protocol.Ready))} {
		t.Run(name, func(t *testing.T) {
			starts := &helpers{next: []func() (process.Session, error){gives(h), func() (process.Session, error) {
				return newFakeHelper(healthy, found(protocol.Ready)), nil // a new one each time: on a busy machine it may be too slow as well
			}}}
			m, _ := makeMonitor(t, starts.start, receivertest.NewNopSettings(metadata.Type), func(c *Config) { c.CallTimeout = 10 * time.Millisecond })
			require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
			require.Eventually(t, func() bool { return starts.count() > 1 }, deadline, time.Millisecond)
			until(t, m, protocol.Ready)
		})
	}
}

// A helper that takes longer to start than the interval between two attempts is
// not replaced before it has read once.
func TestHelperThatLooksForALostGPUHasTimeToRead(t *testing.T) {
	lost := func() protocol.Message {
		return protocol.Message{Snapshot: snapshot(at("a", func(g *protocol.GPU) { g.Lost = true }), at("b"))}
	}
	slow := newFakeHelper(healthy) // says nothing until it is told to
	starts := &helpers{next: []func() (process.Session, error){gives(newFakeHelper(lost, found(protocol.Ready))), gives(slow), fails(errors.New("a third"))}}
	m, _ := makeMonitor(t, starts.start, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	until(t, m, gpuLost)
	require.Eventually(t, func() bool { return starts.count() == 2 }, deadline, time.Millisecond)
	require.Never(t, func() bool { return starts.count() > 2 }, 50*time.Millisecond, time.Millisecond)
	slow.messages <- found(protocol.Ready)
	until(t, m, protocol.Ready)
}

func TestPropagateWantsALibraryThatIsReady(t *testing.T) {
	propagate := func(c *Config) { c.ErrorMode = record.Propagate }
	m, _ := makeMonitor(t, (&helpers{next: []func() (process.Session, error){fails(process.ErrNoHelper)}}).start, receivertest.NewNopSettings(metadata.Type), propagate)
	require.ErrorContains(t, m.Start(t.Context(), componenttest.NewNopHost()), "gpu: no_helper: no helper program")

	m, _ = makeMonitor(t, (&helpers{next: []func() (process.Session, error){gives(newFakeHelper(healthy, found(protocol.Ready)))}}).start, receivertest.NewNopSettings(metadata.Type), propagate)
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
}

func TestTroubleIsAStatusAndANodeWithoutGPUsIsNone(t *testing.T) {
	host := fakeHost{statuses: make(chan *componentstatus.Event, 100)}
	starts := &helpers{next: []func() (process.Session, error){
		fails(process.ErrNoHelper), gives(newFakeHelper(nil, found(protocol.LibraryAbsent))), gives(crashes()), gives(newFakeHelper(healthy, found(protocol.Ready))),
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
	failing := func() protocol.Message {
		one := at("a")
		one.Failures, one.Skipped = []protocol.Failure{{Call: "energy", Code: "unknown"}}, 3
		return protocol.Message{Snapshot: snapshot(one)}
	}
	once := true
	h := newFakeHelper(nil, found(protocol.Ready), protocol.Message{Event: &protocol.Event{Event: device.Event{Type: device.EventXid, Data: 79}}})
	h.answer = func() protocol.Message { // one reading, then a hang
		if once {
			once = false
			return failing()
		}
		return protocol.Message{Hung: &protocol.Hung{Call: "energy", GPU: "a", Seconds: 1}}
	}
	starts := &helpers{next: []func() (process.Session, error){gives(h), fails(process.ErrNoHelper)}}
	m, _ := makeMonitor(t, starts.start, metadatatest.NewSettings(telemetry))
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	until(t, m, noHelper)

	ignore := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualReceiverGpuEventsLost(t, telemetry, []metricdata.DataPoint[int64]{{Value: 1}}, ignore)
	metadatatest.AssertEqualReceiverGpuProcessesSkipped(t, telemetry, []metricdata.DataPoint[int64]{{Value: 3}}, ignore)
	metadatatest.AssertEqualReceiverGpuGpus(t, telemetry, []metricdata.DataPoint[int64]{{Value: 1}}, ignore)
	for _, metric := range []struct {
		name  string
		value int64
		has   map[string]string
	}{
		{"otelcol_receiver_gpu_hangs", 1, map[string]string{"call": "energy"}},
		{"otelcol_receiver_gpu_helper_exits", 1, map[string]string{"reason": "hung"}},
		{"otelcol_receiver_gpu_call_failures", 1, map[string]string{"call": "energy", "code": "unknown"}},
		{"otelcol_receiver_gpu_state", 1, map[string]string{"state": "no_helper"}},
		{"otelcol_receiver_gpu_state", 0, map[string]string{"state": "ready"}},
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
	h := &helpers{next: []func() (process.Session, error){fails(process.ErrNoHelper)}}
	m, _ := makeMonitor(t, h.start, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, m.Shutdown(t.Context()))
	require.NoError(t, m.Shutdown(t.Context()))
	require.ErrorContains(t, m.Start(t.Context(), componenttest.NewNopHost()), "start after shutdown")
	require.Zero(t, h.count())
}

func TestShutdownDoesNotWaitForARetry(t *testing.T) {
	m, _ := makeMonitor(t, (&helpers{next: []func() (process.Session, error){fails(process.ErrNoHelper)}}).start, receivertest.NewNopSettings(metadata.Type),
		func(c *Config) { c.RetryInterval = time.Hour })
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	until(t, m, noHelper)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	require.NoError(t, m.Shutdown(ctx))
}
