package gpureceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/storm"
)

// runDCGM runs the receiver as it is shipped on a host engine alone, but in a hurry.
func runDCGM(t *testing.T, host *gputest.Host, change ...func(*Config)) *running {
	return runOn(t, host, append([]func(*Config){func(c *Config) { c.Source = DCGM }}, change...)...)
}

func impatient(c *Config) { c.CallTimeout = time.Second }

// The whole way: helper program, dlopen, library, and what comes out.
func TestHostEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it starts many helpers")
	}
	host := gputest.New(t) // built once: it takes seconds
	t.Run("states", func(t *testing.T) { testStates(t, host) })
	t.Run("faults", func(t *testing.T) { testFaults(t, host) })
}

func testStates(t *testing.T, host *gputest.Host) {
	grows := func(n float64) bool { return n > 0 }

	t.Run("healthy", func(t *testing.T) {
		host.DCGM.Script("gpus 2", "link 0 5 2", "none 1 1004")
		r := runDCGM(t, host)
		r.until(protocol.Ready)
		require.Contains(t, r.monitor.condition.Load().detail, "2 GPUs, driver 580.65.06")
		r.point("hw.gpu.info", map[string]any{"gpu.id": second, "hw.model": "NVIDIA H100 80GB HBM3", "hw.gpu.compute_capability": "9.0", "hw.gpu.index": int64(1)}, is(1))
		r.point("hw.power", map[string]any{"gpu.id": first}, is(650.5))
		r.point("hw.gpu.memory.limit", map[string]any{"gpu.id": first}, is(80<<30))
		r.point("hw.gpu.activity", map[string]any{"gpu.id": first, "hw.gpu.part": "tensor"}, is(0.62))
		r.point("hw.gpu.sm.occupancy", map[string]any{"gpu.id": second}, is(0.33))
		r.point("hw.gpu.nvlink.up", map[string]any{"gpu.id": first, "hw.gpu.nvlink.link": int64(5)}, is(0))
		r.point("hw.gpu.nvlink.up", map[string]any{"gpu.id": second, "hw.gpu.nvlink.link": int64(17)}, is(1))
		r.point("hw.gpu.nvlink.io", map[string]any{"gpu.id": first, "hw.gpu.nvlink.link": int64(3), "network.io.direction": "transmit"}, grows)
		r.point("hw.gpu.nvlink.total.io", map[string]any{"gpu.id": first, "network.io.direction": "transmit"}, grows)
		r.point("hw.gpu.io", map[string]any{"gpu.id": first, "network.io.direction": "transmit"}, grows)
		r.point("hw.gpu.health", map[string]any{"gpu.id": first, "hw.gpu.health.system": "memory"}, is(0))
		r.point("hw.status", map[string]any{"gpu.id": first, "hw.state": "ok"}, is(1))
		require.Empty(t, valuesOf(r.metrics.AllMetrics()[0], "hw.gpu.activity", map[string]any{"gpu.id": second, "hw.gpu.part": "tensor"}))
	})
	t.Run("no library, then it is installed", func(t *testing.T) {
		host.DCGM.Script()
		empty := t.TempDir()
		r := runDCGM(t, host, func(c *Config) { c.DCGM.LibraryFolder = empty })
		r.until(protocol.LibraryAbsent)
		require.True(t, r.monitor.condition.Load().quiet)
		require.NoError(t, os.Symlink(host.DCGM.File, filepath.Join(empty, "libdcgm.so.4")))
		r.until(protocol.Ready)
	})
	t.Run("a library that is too old says what it lacks", func(t *testing.T) {
		host.DCGM.Script()
		old := t.TempDir()
		host.DCGM.Build(filepath.Join(old, "libdcgm.so.4"), "-DOLD")
		r := runDCGM(t, host, func(c *Config) { c.DCGM.LibraryFolder = old })
		r.until(protocol.Failed)
		require.Contains(t, r.monitor.condition.Load().says(), "dcgmHealthSet: install DCGM")
	})
	t.Run("the engine is down, then up, then dies, then is back", func(t *testing.T) {
		host.DCGM.Script("engine down")
		r := runDCGM(t, host)
		r.until(protocol.EngineAbsent)
		require.Contains(t, r.monitor.condition.Load().says(), gputest.Endpoint)
		host.DCGM.Script()
		r.until(protocol.Ready)
		r.point("hw.power", map[string]any{"gpu.id": first}, is(650.5))
		host.DCGM.Script("engine down")
		r.until(protocol.EngineAbsent) // after connection_lost, which lasts for one retry
		host.DCGM.Script()
		r.until(protocol.Ready)
		require.Empty(t, bodies(r, storm.Lost), "an engine that dies is no GPU that is lost")
	})
	t.Run("a connection that breaks is a state of its own", func(t *testing.T) {
		host.DCGM.Script()
		r := runDCGM(t, host, func(c *Config) { c.RetryInterval = time.Hour })
		r.until(protocol.Ready)
		host.DCGM.Script("engine down")
		r.until(protocol.ConnectionLost)
	})
	t.Run("an engine of its own", func(t *testing.T) {
		host.DCGM.Script("engine fails")
		r := runDCGM(t, host, func(c *Config) { c.DCGM.Endpoint = dcgm.Embedded })
		r.until(protocol.Failed)
		host.DCGM.Script()
		r.until(protocol.Ready)
	})
	t.Run("a call hangs, then it does not", func(t *testing.T) {
		host.DCGM.Script("hang dcgmHealthCheck")
		r := runDCGM(t, host, impatient)
		r.hangs("health for")
		host.DCGM.Script()
		r.until(protocol.Ready)
	})
	t.Run("connecting hangs", func(t *testing.T) {
		host.DCGM.Script("hang dcgmConnect_v2")
		r := runDCGM(t, host, impatient)
		r.hangs("connect for")
	})
	t.Run("the library crashes, then it does not", func(t *testing.T) {
		host.DCGM.Script("crash dcgmEntityGetLatestValues")
		r := runDCGM(t, host)
		r.until(crashed)
		host.DCGM.Script()
		r.until(protocol.Ready)
	})
	t.Run("a GPU is lost and comes back", func(t *testing.T) {
		host.DCGM.Script("gpus 2")
		r := runDCGM(t, host)
		r.until(protocol.Ready)
		host.DCGM.Script("gpus 2", "status 0 4")
		r.until(gpuLost)
		require.Equal(t, first, r.record(storm.Lost).Attributes().AsRaw()["gpu.id"])
		r.point("hw.status", map[string]any{"gpu.id": first, "hw.state": "failed"}, is(1))
		r.point("hw.power", map[string]any{"gpu.id": second}, is(650.5)) // the other is read on
		host.DCGM.Script("gpus 2")
		r.until(protocol.Ready)
		require.Equal(t, first, r.record(storm.Recovered).Attributes().AsRaw()["gpu.id"])
	})
	t.Run("an older engine has fewer fields, a GPU no profiling", func(t *testing.T) {
		host.DCGM.Script("old 1523", "old 1422", "none * 1002", "none * 1009", "code * dcgmHealthSet -33", "code * dcgmGetNvLinkLinkStatus -6")
		r := runDCGM(t, host)
		r.until(protocol.Ready)
		r.point("hw.power", map[string]any{"gpu.id": first}, is(650.5))
		for _, name := range []string{"hw.gpu.recovery_action", "hw.gpu.io", "hw.gpu.health", "hw.gpu.nvlink.up"} {
			require.Empty(t, valuesOf(r.metrics.AllMetrics()[0], name, nil), name)
		}
	})
}

// The faults that a host engine tells.
func testFaults(t *testing.T, host *gputest.Host) {
	t.Run("an Xid is the record that the kernel's is", func(t *testing.T) {
		host.DCGM.Script("gpus 2", "xid 1 0 48")
		r := runDCGM(t, host)
		r.until(protocol.Ready)
		host.DCGM.Script("gpus 2", "xid 1 0 48", "xid 2 1 13", "xid 3 1 79", "xid 4 1 79")
		got := r.record(storm.Xid).Attributes().AsRaw()
		require.Equal(t, second, got["gpu.id"])
		require.EqualValues(t, 79, got["kernelevents.xid"], "neither one from before, nor one of an application that nobody knows")
		require.Equal(t, "restart_node", got["kernelevents.class"])
	})
	t.Run("a burst of memory errors", func(t *testing.T) {
		host.DCGM.Script("policy 1")
		r := runDCGM(t, host)
		r.until(protocol.Ready)
		r.point("hw.errors", map[string]any{"gpu.id": first, "error.type": "uncorrected"}, is(0))
		host.DCGM.Script("policy 1", "field 0 311 12", "field 0 319 12", "field 0 396 1", "violation 1 0 1 12")
		r.point("hw.errors", map[string]any{"gpu.id": first, "error.type": "uncorrected"}, is(12))
		r.point("hw.gpu.ecc.errors", map[string]any{"error.type": "uncorrected", "hw.gpu.ecc.location": "dram", "hw.gpu.ecc.lifetime": "volatile"}, is(12))
		r.point("hw.gpu.memory.remap.pending", map[string]any{"gpu.id": first}, is(1))
		require.Equal(t, "uncorrected", r.record(storm.ECC).Attributes().AsRaw()["error.type"])
	})
	t.Run("a health watch fails and is well again", func(t *testing.T) {
		host.DCGM.Script("gpus 2")
		r := runDCGM(t, host)
		r.until(protocol.Ready)
		host.DCGM.Script("gpus 2", "health 1 16 20 row remapping failed", "health 1 16 10 pages pending")
		memory := map[string]any{"gpu.id": second, "hw.gpu.health.system": "memory"}
		r.point("hw.gpu.health", memory, is(2))
		r.point("hw.status", map[string]any{"gpu.id": second, "hw.state": "degraded"}, is(1))
		got := r.record(storm.Health)
		require.Equal(t, second, got.Attributes().AsRaw()["gpu.id"])
		require.Equal(t, "failed", got.Attributes().AsRaw()["hw.state"])
		require.Equal(t, "the health watch memory of GPU 0000:2a:00.0 fails: row remapping failed", got.Body().Str())
		host.DCGM.Script("gpus 2")
		r.point("hw.gpu.health", memory, is(0))
		require.Len(t, bodies(r, storm.Health), 2, "one that fails, one that warns, each once")
	})
	t.Run("a policy of the operator is violated", func(t *testing.T) {
		host.DCGM.Script("policy 32")
		r := runDCGM(t, host)
		r.until(protocol.Ready)
		host.DCGM.Script("policy 32", "violation 1 0 8 105", "violation 2 0 32 7")
		got := r.record(storm.Policy)
		require.Equal(t, "nvlink", got.Attributes().AsRaw()["hw.gpu.policy.condition"], "the policy of heat is not set")
		require.Contains(t, got.Body().Str(), "7 errors in field 409")
	})
	t.Run("a policy of this receiver is violated", func(t *testing.T) {
		host.DCGM.Script()
		r := runDCGM(t, host, func(c *Config) { c.DCGM.Policies = []string{dcgm.PolicyThermal} })
		r.until(protocol.Ready)
		host.DCGM.Script("violation 1 0 8 105")
		got := r.record(storm.Policy)
		require.Equal(t, "thermal", got.Attributes().AsRaw()["hw.gpu.policy.condition"])
		require.Contains(t, got.Body().Str(), "105 degrees Celsius")
	})
}

// bodies are those of an event.
func bodies(r *running, event string) (found []string) {
	for _, logs := range r.logs.AllLogs() {
		for _, one := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			if one.EventName() == event {
				found = append(found, one.Body().Str())
			}
		}
	}
	return found
}
