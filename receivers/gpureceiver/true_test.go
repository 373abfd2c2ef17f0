package gpureceiver

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// NVIDIA's own library has its own way to fail where no driver is.
func TestNVIDIAsLibraryWithoutADriver(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it runs the vendor's library")
	}
	host := gputest.New(t)
	host.NVML.File = gputest.NVIDIAsNVML(t)
	r := runNVML(t, host)
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		require.Eventually(t, func() bool { return r.monitor.condition.Load().name != starting }, deadline, time.Millisecond)
		t.Logf("a driver is loaded: %s", r.monitor.condition.Load().says())
		return
	}
	r.until(protocol.DriverNotLoaded)
	require.Contains(t, r.monitor.condition.Load().says(), "driver")
}

// TRACECORE_GPU=require wants GPUs in this machine; without it the test does what the
// machine allows.
func TestGPUsOfThisMachine(t *testing.T) {
	host := gputest.New(t)
	host.NVML.File = "" // the one that the dynamic linker finds
	r := runNVML(t, host)
	require.Eventually(t, func() bool { return r.monitor.condition.Load().name != starting }, deadline, time.Millisecond)
	if state := r.monitor.condition.Load(); state.name != protocol.Ready {
		require.NotEqual(t, "require", os.Getenv("TRACECORE_GPU"), state.says())
		require.Contains(t, []string{protocol.LibraryAbsent, protocol.DriverNotLoaded, protocol.Failed}, state.name, state.says())
		return
	}
	require.Positive(t, r.monitor.known.Load())
	positive := func(n float64) bool { return n > 0 }
	r.point("hw.gpu.memory.limit", nil, positive)
	r.point("hw.temperature", nil, func(n float64) bool { return n > 0 && n < 150 })
	r.point("hw.power", nil, positive)
	r.point("hw.status", map[string]any{"hw.state": "ok"}, is(1))
}
