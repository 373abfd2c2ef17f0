package dcgmreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/dcgmtest"
	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/gputest"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

// The GPUs of the stand-in.
const (
	first  = "0000:1a:00.0"
	second = "0000:2a:00.0"
)

// runOn runs the receiver as it is shipped, but in a hurry.
func runOn(t *testing.T, host *dcgmtest.Host, change ...func(*Config)) *gputest.Running {
	config := createDefaultConfig().(*Config)
	config.Helper, config.LibraryFolder, config.Endpoint = host.Helper, filepath.Dir(host.Library), dcgmtest.Endpoint
	config.CollectionInterval, config.RetryInterval, config.CallTimeout = gpu.MinInterval, gpu.MinInterval, 20*time.Second
	for _, c := range change {
		c(config)
	}
	return gputest.Run(t, NewFactory(), config)
}

func impatient(c *Config) { c.CallTimeout = time.Second }

// The whole way: helper program, dlopen, library, and what comes out.
func TestHostEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it starts many helpers")
	}
	host := dcgmtest.New(t) // built once: it takes seconds
	t.Run("states", func(t *testing.T) { testStates(t, host) })
	t.Run("faults", func(t *testing.T) { testFaults(t, host) })
}

func testStates(t *testing.T, host *dcgmtest.Host) {
	grows := func(n float64) bool { return n > 0 }

	t.Run("healthy", func(t *testing.T) {
		host.Script("gpus 2", "link 0 5 2", "none 1 1004")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		require.Contains(t, r.Monitor.Condition().Detail, "2 GPUs, driver 580.65.06")
		r.Point("hw.gpu.info", map[string]any{"gpu.id": second, "hw.model": "NVIDIA H100 80GB HBM3", "hw.gpu.compute_capability": "9.0", "hw.gpu.index": int64(1)}, gputest.Is(1))
		r.Point("hw.power", map[string]any{"gpu.id": first}, gputest.Is(650.5))
		r.Point("hw.gpu.memory.limit", map[string]any{"gpu.id": first}, gputest.Is(80<<30))
		r.Point("hw.gpu.activity", map[string]any{"gpu.id": first, "hw.gpu.part": "tensor"}, gputest.Is(0.62))
		r.Point("hw.gpu.sm.occupancy", map[string]any{"gpu.id": second}, gputest.Is(0.33))
		r.Point("hw.gpu.nvlink.up", map[string]any{"gpu.id": first, "hw.gpu.nvlink.link": int64(5)}, gputest.Is(0))
		r.Point("hw.gpu.nvlink.up", map[string]any{"gpu.id": second, "hw.gpu.nvlink.link": int64(17)}, gputest.Is(1))
		r.Point("hw.gpu.nvlink.io", map[string]any{"gpu.id": first, "hw.gpu.nvlink.link": int64(3), "network.io.direction": "transmit"}, grows)
		r.Point("hw.gpu.nvlink.total.io", map[string]any{"gpu.id": first, "network.io.direction": "transmit"}, grows)
		r.Point("hw.gpu.io", map[string]any{"gpu.id": first, "network.io.direction": "transmit"}, grows)
		r.Point("hw.gpu.health", map[string]any{"gpu.id": first, "hw.gpu.health.system": "memory"}, gputest.Is(0))
		r.Point("hw.status", map[string]any{"gpu.id": first, "hw.state": "ok"}, gputest.Is(1))
		require.Empty(t, gputest.Values(r.Metrics.AllMetrics()[0], "hw.gpu.activity", map[string]any{"gpu.id": second, "hw.gpu.part": "tensor"}))
	})
	t.Run("no library, then it is installed", func(t *testing.T) {
		host.Script()
		empty := t.TempDir()
		r := runOn(t, host, func(c *Config) { c.LibraryFolder = empty })
		r.Until(gpu.Absent)
		require.True(t, r.Monitor.Condition().Quiet)
		require.NoError(t, os.Symlink(host.Library, filepath.Join(empty, "libdcgm.so.4")))
		r.Until(gpu.Ready)
	})
	t.Run("a library that is too old says what it lacks", func(t *testing.T) {
		host.Script()
		old := t.TempDir()
		host.Build(filepath.Join(old, "libdcgm.so.4"), "-DOLD")
		r := runOn(t, host, func(c *Config) { c.LibraryFolder = old })
		r.Until(gpu.Failed)
		require.Contains(t, r.Monitor.Condition().Says(), "dcgmHealthSet: install DCGM")
	})
	t.Run("the engine is down, then up, then dies, then is back", func(t *testing.T) {
		host.Script("engine down")
		r := runOn(t, host)
		r.Until(wire.EngineAbsent)
		require.Contains(t, r.Monitor.Condition().Says(), dcgmtest.Endpoint)
		host.Script()
		r.Until(gpu.Ready)
		r.Point("hw.power", map[string]any{"gpu.id": first}, gputest.Is(650.5))
		host.Script("engine down")
		r.Until(wire.EngineAbsent) // after connection_lost, which lasts for one retry
		host.Script()
		r.Until(gpu.Ready)
		require.Empty(t, records(r, gpu.EventLost), "an engine that dies is no GPU that is lost")
	})
	t.Run("a connection that breaks is a state of its own", func(t *testing.T) {
		host.Script()
		r := runOn(t, host, func(c *Config) { c.RetryInterval = time.Hour })
		r.Until(gpu.Ready)
		host.Script("engine down")
		r.Until(wire.ConnectionLost)
	})
	t.Run("an engine of its own", func(t *testing.T) {
		host.Script("engine fails")
		r := runOn(t, host, func(c *Config) { c.Endpoint = dcgm.Embedded })
		r.Until(gpu.Failed)
		host.Script()
		r.Until(gpu.Ready)
	})
	t.Run("a call hangs, then it does not", func(t *testing.T) {
		host.Script("hang dcgmHealthCheck")
		r := runOn(t, host, impatient)
		r.Until(gpu.Hung)
		require.Contains(t, r.Monitor.Condition().Detail, "health for")
		host.Script()
		r.Until(gpu.Ready)
	})
	t.Run("connecting hangs", func(t *testing.T) {
		host.Script("hang dcgmConnect_v2")
		r := runOn(t, host, impatient)
		r.Until(gpu.Hung)
		require.Contains(t, r.Monitor.Condition().Detail, "connect for")
	})
	t.Run("the library crashes, then it does not", func(t *testing.T) {
		host.Script("crash dcgmEntityGetLatestValues")
		r := runOn(t, host)
		r.Until(gpu.Crashed)
		host.Script()
		r.Until(gpu.Ready)
	})
	t.Run("a GPU is lost and comes back", func(t *testing.T) {
		host.Script("gpus 2")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		host.Script("gpus 2", "status 0 4")
		r.Until(gpu.GPULost)
		require.Equal(t, first, r.Record(gpu.EventLost).Attributes().AsRaw()["gpu.id"])
		r.Point("hw.status", map[string]any{"gpu.id": first, "hw.state": "failed"}, gputest.Is(1))
		r.Point("hw.power", map[string]any{"gpu.id": second}, gputest.Is(650.5)) // the other is read on
		host.Script("gpus 2")
		r.Until(gpu.Ready)
		require.Equal(t, first, r.Record(gpu.EventRecovered).Attributes().AsRaw()["gpu.id"])
	})
	t.Run("an older engine has fewer fields, a GPU no profiling", func(t *testing.T) {
		host.Script("old 1523", "old 1422", "none * 1002", "none * 1009", "code * dcgmHealthSet -33", "code * dcgmGetNvLinkLinkStatus -6")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		r.Point("hw.power", map[string]any{"gpu.id": first}, gputest.Is(650.5))
		for _, name := range []string{"hw.gpu.recovery_action", "hw.gpu.io", "hw.gpu.health", "hw.gpu.nvlink.up"} {
			require.Empty(t, gputest.Values(r.Metrics.AllMetrics()[0], name, nil), name)
		}
	})
}

// The faults that a host engine tells.
func testFaults(t *testing.T, host *dcgmtest.Host) {
	t.Run("an Xid is the record that the kernel's is", func(t *testing.T) {
		host.Script("gpus 2", "xid 1 0 48")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		host.Script("gpus 2", "xid 1 0 48", "xid 2 1 13", "xid 3 1 79", "xid 4 1 79")
		got := r.Record(gpu.EventXid).Attributes().AsRaw()
		require.Equal(t, second, got["gpu.id"])
		require.EqualValues(t, 79, got["kernelevents.xid"], "neither one from before, nor one of an application that nobody knows")
		require.Equal(t, "restart_node", got["kernelevents.class"])
	})
	t.Run("a burst of memory errors", func(t *testing.T) {
		host.Script("policy 1")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		r.Point("hw.errors", map[string]any{"gpu.id": first, "error.type": "uncorrected"}, gputest.Is(0))
		host.Script("policy 1", "field 0 311 12", "field 0 319 12", "field 0 396 1", "violation 1 0 1 12")
		r.Point("hw.errors", map[string]any{"gpu.id": first, "error.type": "uncorrected"}, gputest.Is(12))
		r.Point("hw.gpu.ecc.errors", map[string]any{"error.type": "uncorrected", "hw.gpu.ecc.location": "dram", "hw.gpu.ecc.lifetime": "volatile"}, gputest.Is(12))
		r.Point("hw.gpu.memory.remap.pending", map[string]any{"gpu.id": first}, gputest.Is(1))
		require.Equal(t, "uncorrected", r.Record(gpu.EventECC).Attributes().AsRaw()["error.type"])
	})
	t.Run("a health watch fails and is well again", func(t *testing.T) {
		host.Script("gpus 2")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		host.Script("gpus 2", "health 1 16 20 row remapping failed", "health 1 16 10 pages pending")
		memory := map[string]any{"gpu.id": second, "hw.gpu.health.system": "memory"}
		r.Point("hw.gpu.health", memory, gputest.Is(2))
		r.Point("hw.status", map[string]any{"gpu.id": second, "hw.state": "degraded"}, gputest.Is(1))
		got := r.Record(gpu.EventHealth)
		require.Equal(t, second, got.Attributes().AsRaw()["gpu.id"])
		require.Equal(t, "failed", got.Attributes().AsRaw()["hw.state"])
		require.Equal(t, "the health watch memory of GPU 0000:2a:00.0 fails: row remapping failed", got.Body().Str())
		host.Script("gpus 2")
		r.Point("hw.gpu.health", memory, gputest.Is(0))
		require.Len(t, records(r, gpu.EventHealth), 2, "one that fails, one that warns, each once")
	})
	t.Run("a policy of the operator is violated", func(t *testing.T) {
		host.Script("policy 32")
		r := runOn(t, host)
		r.Until(gpu.Ready)
		host.Script("policy 32", "violation 1 0 8 105", "violation 2 0 32 7")
		got := r.Record(gpu.EventPolicy)
		require.Equal(t, "nvlink", got.Attributes().AsRaw()["hw.gpu.policy.condition"], "the policy of heat is not set")
		require.Contains(t, got.Body().Str(), "7 errors in field 409")
	})
	t.Run("a policy of this receiver is violated", func(t *testing.T) {
		host.Script()
		r := runOn(t, host, func(c *Config) { c.Policies = []string{dcgm.PolicyThermal} })
		r.Until(gpu.Ready)
		host.Script("violation 1 0 8 105")
		got := r.Record(gpu.EventPolicy)
		require.Equal(t, "thermal", got.Attributes().AsRaw()["hw.gpu.policy.condition"])
		require.Contains(t, got.Body().Str(), "105 degrees Celsius")
	})
}

// records are those of an event.
func records(r *gputest.Running, event string) (found []string) {
	for _, logs := range r.Logs.AllLogs() {
		for _, one := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			if one.EventName() == event {
				found = append(found, one.Body().Str())
			}
		}
	}
	return found
}
