package nvmlreceiver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/nvmltest"
)

// deadline is for what must happen; a machine under load is slow.
const deadline = 60 * time.Second

// running is the receiver on a library, with what it emits.
type running struct {
	*testing.T
	monitor *gpu.Monitor
	logs    *consumertest.LogsSink
	metrics *consumertest.MetricsSink
}

// runOn runs the receiver as it is shipped, but in a hurry.
func runOn(t *testing.T, host *nvmltest.Host, change ...func(*Config)) *running {
	config := createDefaultConfig().(*Config)
	config.Helper, config.Library = host.Helper, host.Library
	config.CollectionInterval, config.RetryInterval, config.CallTimeout = gpu.MinInterval, gpu.MinInterval, 20*time.Second
	for _, c := range change {
		c(config)
	}
	r := &running{T: t, logs: new(consumertest.LogsSink), metrics: new(consumertest.MetricsSink)}
	factory, settings := NewFactory(), receivertest.NewNopSettings(metadata.Type)
	logs, err := factory.CreateLogs(t.Context(), settings, config, r.logs)
	require.NoError(t, err)
	metrics, err := factory.CreateMetrics(t.Context(), settings, config, r.metrics)
	require.NoError(t, err)
	r.monitor = logs.(*gpu.Instance).Monitor
	require.NoError(t, logs.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, metrics.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		require.NoError(t, logs.Shutdown(context.Background()))
		require.NoError(t, metrics.Shutdown(context.Background()))
	})
	return r
}

func (r *running) until(state string) {
	r.Helper()
	require.Eventually(r, func() bool { return r.monitor.Condition().Name == state }, deadline, time.Millisecond,
		"wanted %s", state)
}

// record waits for an event.
func (r *running) record(event string) plog.LogRecord {
	r.Helper()
	var found plog.LogRecord
	require.Eventually(r, func() bool {
		for _, logs := range r.logs.AllLogs() {
			for _, one := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
				if one.EventName() == event {
					found = one
					return true
				}
			}
		}
		return false
	}, deadline, time.Millisecond, "wanted %s", event)
	return found
}

// point waits for a data point of a metric with these attributes and a value
// that will do.
func (r *running) point(name string, attributes map[string]any, will func(float64) bool) {
	r.Helper()
	var seen []float64
	require.Eventually(r, func() bool {
		for _, metrics := range r.metrics.AllMetrics() {
			for _, value := range values(metrics, name, attributes) {
				if seen = append(seen, value); will(value) {
					return true
				}
			}
		}
		r.metrics.Reset()
		return false
	}, deadline, time.Millisecond, "%s %v, seen %v", name, attributes, seen)
}

func is(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

func values(metrics pmetric.Metrics, name string, attributes map[string]any) []float64 {
	var found []float64
	for _, m := range metrics.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		points := pmetric.NewNumberDataPointSlice()
		switch {
		case m.Name() != name:
			continue
		case m.Type() == pmetric.MetricTypeSum:
			points = m.Sum().DataPoints()
		case m.Type() == pmetric.MetricTypeGauge:
			points = m.Gauge().DataPoints()
		}
		for _, point := range points.All() {
			has := point.Attributes().AsRaw()
			matches := true
			for key, value := range attributes {
				matches = matches && has[key] == value
			}
			if !matches {
				continue
			}
			if point.ValueType() == pmetric.NumberDataPointValueTypeInt {
				found = append(found, float64(point.IntValue()))
			} else {
				found = append(found, point.DoubleValue())
			}
		}
	}
	return found
}

// The whole way: helper program, dlopen, library, and what comes out.
func TestLibraryStates(t *testing.T) {
	host := nvmltest.New(t)
	first := map[string]any{"gpu.id": "0000:1a:00.0"}

	t.Run("healthy", func(t *testing.T) {
		host.Script("gpus 2", "process 1 4711 1048576", "set 0 field_138_3 2048")
		r := runOn(t, host)
		r.until(gpu.Ready)
		r.point("hw.gpu.utilization", map[string]any{"gpu.id": "0000:2a:00.0", "hw.gpu.task": "general", "hw.type": "gpu"}, is(0.97))
		r.point("hw.power", first, is(650))
		r.point("hw.gpu.nvlink.io", map[string]any{"gpu.id": "0000:1a:00.0", "hw.gpu.nvlink.link": int64(3), "network.io.direction": "transmit"}, is(2048*1024))
		r.point("hw.gpu.process.memory.usage", map[string]any{"process.pid": int64(4711), "gpu.id": "0000:2a:00.0"}, is(1048576))
		r.point("hw.gpu.io", map[string]any{"gpu.id": "0000:1a:00.0", "network.io.direction": "transmit"}, func(n float64) bool { return n > 0 })
		r.point("hw.status", map[string]any{"gpu.id": "0000:1a:00.0", "hw.state": "ok"}, is(1))
	})
	t.Run("driver not loaded, then it is", func(t *testing.T) {
		host.Script("init 9")
		r := runOn(t, host)
		r.until(wire.DriverNotLoaded)
		host.Script()
		r.until(gpu.Ready)
	})
	t.Run("a call hangs, then it does not", func(t *testing.T) {
		host.Script("hang nvmlDeviceGetPowerUsage")
		r := runOn(t, host, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
		r.until(gpu.Hung)
		require.Contains(t, r.monitor.Condition().Detail, "power_usage of GPU 0000:1a:00.0")
		host.Script()
		r.until(gpu.Ready)
	})
	t.Run("loading the library hangs", func(t *testing.T) {
		host.Script("hang nvmlInit_v2")
		r := runOn(t, host, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
		r.until(gpu.Hung)
	})
	t.Run("the library crashes, then it does not", func(t *testing.T) {
		host.Script("crash nvmlDeviceGetTemperature")
		r := runOn(t, host)
		r.until(gpu.Crashed)
		host.Script()
		r.until(gpu.Ready)
	})
	t.Run("a GPU is lost and comes back", func(t *testing.T) {
		host.Script("gpus 2")
		r := runOn(t, host)
		r.until(gpu.Ready)
		host.Script("gpus 2", "code 0 * 15")
		r.until(gpu.GPULost)
		require.Equal(t, "0000:1a:00.0", r.record(gpu.EventLost).Attributes().AsRaw()["gpu.id"])
		r.point("hw.status", map[string]any{"gpu.id": "0000:1a:00.0", "hw.state": "failed"}, is(1))
		r.point("hw.power", map[string]any{"gpu.id": "0000:2a:00.0"}, is(650)) // the other is read on
		host.Script("gpus 2")
		r.until(gpu.Ready)
		require.Equal(t, "0000:1a:00.0", r.record(gpu.EventRecovered).Attributes().AsRaw()["gpu.id"])
	})
	t.Run("an Xid names the one process of its GPU", func(t *testing.T) {
		host.Script("gpus 2", "process 1 4711 1048576")
		r := runOn(t, host)
		r.until(gpu.Ready)
		host.Script("gpus 2", "process 1 4711 1048576", "event 1 1 8 95", "event 2 1 8 95")
		got := r.record(gpu.EventXid).Attributes().AsRaw()
		require.Equal(t, "0000:2a:00.0", got["gpu.id"])
		require.EqualValues(t, 95, got["kernelevents.xid"])
		require.EqualValues(t, 4711, got["process.pid"])
		require.Equal(t, "reset_gpu", got["kernelevents.class"])
	})
	t.Run("an older library has fewer functions and numbers", func(t *testing.T) {
		host.Script("none 0 pcie_width", "code 0 nvmlDeviceGetNvLinkState 3", "set * nvlink_count 0", "code 0 nvmlDeviceGetFieldValues 3")
		r := runOn(t, host)
		r.until(gpu.Ready)
		r.point("hw.power", first, is(650))
		require.Empty(t, values(r.metrics.AllMetrics()[0], "hw.gpu.pcie.link.width.ratio", nil))
	})
}
