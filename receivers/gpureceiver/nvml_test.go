package gpureceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/storm"
)

// runNVML runs the receiver as it is shipped on NVML alone, but in a hurry.
func runNVML(t *testing.T, host *gputest.Host, change ...func(*Config)) *running {
	return runOn(t, host, append([]func(*Config){func(c *Config) { c.Source = NVML }}, change...)...)
}

// The whole way: helper program, dlopen, library, and what comes out.
func TestNVML(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it starts many helpers")
	}
	host := gputest.New(t)
	first := map[string]any{"gpu.id": "0000:1a:00.0"}

	t.Run("healthy", func(t *testing.T) {
		host.NVML.Script("gpus 2", "process 1 4711 1048576", "set 0 field_138_3 2048")
		r := runNVML(t, host)
		r.until(protocol.Ready)
		r.point("hw.gpu.utilization", map[string]any{"gpu.id": "0000:2a:00.0", "hw.gpu.task": "general", "hw.type": "gpu"}, is(0.97))
		r.point("hw.power", first, is(650))
		r.point("hw.gpu.nvlink.io", map[string]any{"gpu.id": "0000:1a:00.0", "hw.gpu.nvlink.link": int64(3), "network.io.direction": "transmit"}, is(2048*1024))
		r.point("hw.gpu.process.memory.usage", map[string]any{"process.pid": int64(4711), "gpu.id": "0000:2a:00.0"}, is(1048576))
		r.point("hw.gpu.io", map[string]any{"gpu.id": "0000:1a:00.0", "network.io.direction": "transmit"}, func(n float64) bool { return n > 0 })
		r.point("hw.status", map[string]any{"gpu.id": "0000:1a:00.0", "hw.state": "ok"}, is(1))
	})
	t.Run("driver not loaded, then it is", func(t *testing.T) {
		host.NVML.Script("init 9")
		r := runNVML(t, host)
		r.until(protocol.DriverNotLoaded)
		host.NVML.Script()
		r.until(protocol.Ready)
	})
	t.Run("a call hangs, then it does not", func(t *testing.T) {
		host.NVML.Script("hang nvmlDeviceGetPowerUsage")
		r := runNVML(t, host, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
		r.hangs("power_usage of GPU 0000:1a:00.0")
		host.NVML.Script()
		r.until(protocol.Ready)
	})
	t.Run("loading the library hangs", func(t *testing.T) {
		host.NVML.Script("hang nvmlInit_v2")
		r := runNVML(t, host, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
		r.until(hung)
	})
	t.Run("the library crashes, then it does not", func(t *testing.T) {
		host.NVML.Script("crash nvmlDeviceGetTemperature")
		r := runNVML(t, host)
		r.until(crashed)
		host.NVML.Script()
		r.until(protocol.Ready)
	})
	t.Run("a GPU is lost and comes back", func(t *testing.T) {
		host.NVML.Script("gpus 2")
		r := runNVML(t, host)
		r.until(protocol.Ready)
		host.NVML.Script("gpus 2", "code 0 * 15")
		r.until(gpuLost)
		require.Equal(t, "0000:1a:00.0", r.record(storm.Lost).Attributes().AsRaw()["gpu.id"])
		r.point("hw.status", map[string]any{"gpu.id": "0000:1a:00.0", "hw.state": "failed"}, is(1))
		r.point("hw.power", map[string]any{"gpu.id": "0000:2a:00.0"}, is(650)) // the other is read on
		host.NVML.Script("gpus 2")
		r.until(protocol.Ready)
		require.Equal(t, "0000:1a:00.0", r.record(storm.Recovered).Attributes().AsRaw()["gpu.id"])
	})
	t.Run("an Xid names the one process of its GPU", func(t *testing.T) {
		host.NVML.Script("gpus 2", "process 1 4711 1048576")
		r := runNVML(t, host)
		r.until(protocol.Ready)
		host.NVML.Script("gpus 2", "process 1 4711 1048576", "event 1 1 8 95", "event 2 1 8 95")
		got := r.record(storm.Xid).Attributes().AsRaw()
		require.Equal(t, "0000:2a:00.0", got["gpu.id"])
		require.EqualValues(t, 95, got["kernelevents.xid"])
		require.EqualValues(t, 4711, got["process.pid"])
		require.Equal(t, "reset_gpu", got["kernelevents.class"])
	})
	t.Run("an older library has fewer functions and numbers", func(t *testing.T) {
		host.NVML.Script("none 0 pcie_width", "code 0 nvmlDeviceGetNvLinkState 3", "set * nvlink_count 0", "code 0 nvmlDeviceGetFieldValues 3")
		r := runNVML(t, host)
		r.until(protocol.Ready)
		r.point("hw.power", first, is(650))
		require.Empty(t, valuesOf(r.metrics.AllMetrics()[0], "hw.gpu.pcie.link.width.ratio", nil))
	})
}
