package nvmlreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/gputest"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/nvmltest"
)

// deadline is for what must happen; a machine under load is slow.
const deadline = gputest.Deadline

// runOn runs the receiver as it is shipped, but in a hurry.
func runOn(t *testing.T, host *nvmltest.Host, change ...func(*Config)) *gputest.Running {
	config := createDefaultConfig().(*Config)
	config.Helper, config.Library = host.Helper, host.Library
	config.CollectionInterval, config.RetryInterval, config.CallTimeout = gpu.MinInterval, gpu.MinInterval, 20*time.Second
	for _, c := range change {
		c(config)
	}
	return gputest.Run(t, NewFactory(), config)
}

// The whole way: helper program, dlopen, library, and what comes out.
func TestLibraryStates(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it starts many helpers")
	}
	host := nvmltest.New(t)
	first := map[string]any{"gpu.id": "0000:1a:00.0"}

	t.Run("healthy", func(t *testing.T) {
		host.Script("gpus 2", "process 1 4711 1048576", "set 0 field_138_3 2048")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		r.Point("hw.gpu.utilization", map[string]any{"gpu.id": "0000:2a:00.0", "hw.gpu.task": "general", "hw.type": "gpu"}, gputest.Is(0.97))
		r.Point("hw.power", first, gputest.Is(650))
		r.Point("hw.gpu.nvlink.io", map[string]any{"gpu.id": "0000:1a:00.0", "hw.gpu.nvlink.link": int64(3), "network.io.direction": "transmit"}, gputest.Is(2048*1024))
		r.Point("hw.gpu.process.memory.usage", map[string]any{"process.pid": int64(4711), "gpu.id": "0000:2a:00.0"}, gputest.Is(1048576))
		r.Point("hw.gpu.io", map[string]any{"gpu.id": "0000:1a:00.0", "network.io.direction": "transmit"}, func(n float64) bool { return n > 0 })
		r.Point("hw.status", map[string]any{"gpu.id": "0000:1a:00.0", "hw.state": "ok"}, gputest.Is(1))
	})
	t.Run("driver not loaded, then it is", func(t *testing.T) {
		host.Script("init 9")
		r := runOn(t, host)
		r.Until(wire.DriverNotLoaded)
		host.Script()
		r.Until(gpu.Ready)
	})
	t.Run("a call hangs, then it does not", func(t *testing.T) {
		host.Script("hang nvmlDeviceGetPowerUsage")
		r := runOn(t, host, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
		r.Until(gpu.Hung)
		require.Contains(t, r.Monitor.Condition().Detail, "power_usage of GPU 0000:1a:00.0")
		host.Script()
		r.Until(gpu.Ready)
	})
	t.Run("loading the library hangs", func(t *testing.T) {
		host.Script("hang nvmlInit_v2")
		r := runOn(t, host, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
		r.Until(gpu.Hung)
	})
	t.Run("the library crashes, then it does not", func(t *testing.T) {
		host.Script("crash nvmlDeviceGetTemperature")
		r := runOn(t, host)
		r.Until(gpu.Crashed)
		host.Script()
		r.Until(gpu.Ready)
	})
	t.Run("a GPU is lost and comes back", func(t *testing.T) {
		host.Script("gpus 2")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		host.Script("gpus 2", "code 0 * 15")
		r.Until(gpu.GPULost)
		require.Equal(t, "0000:1a:00.0", r.Record(gpu.EventLost).Attributes().AsRaw()["gpu.id"])
		r.Point("hw.status", map[string]any{"gpu.id": "0000:1a:00.0", "hw.state": "failed"}, gputest.Is(1))
		r.Point("hw.power", map[string]any{"gpu.id": "0000:2a:00.0"}, gputest.Is(650)) // the other is read on
		host.Script("gpus 2")
		r.Until(gpu.Ready)
		require.Equal(t, "0000:1a:00.0", r.Record(gpu.EventRecovered).Attributes().AsRaw()["gpu.id"])
	})
	t.Run("an Xid names the one process of its GPU", func(t *testing.T) {
		host.Script("gpus 2", "process 1 4711 1048576")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		host.Script("gpus 2", "process 1 4711 1048576", "event 1 1 8 95", "event 2 1 8 95")
		got := r.Record(gpu.EventXid).Attributes().AsRaw()
		require.Equal(t, "0000:2a:00.0", got["gpu.id"])
		require.EqualValues(t, 95, got["kernelevents.xid"])
		require.EqualValues(t, 4711, got["process.pid"])
		require.Equal(t, "reset_gpu", got["kernelevents.class"])
	})
	t.Run("an older library has fewer functions and numbers", func(t *testing.T) {
		host.Script("none 0 pcie_width", "code 0 nvmlDeviceGetNvLinkState 3", "set * nvlink_count 0", "code 0 nvmlDeviceGetFieldValues 3")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		r.Point("hw.power", first, gputest.Is(650))
		require.Empty(t, gputest.Values(r.Metrics.AllMetrics()[0], "hw.gpu.pcie.link.width.ratio", nil))
	})
}
