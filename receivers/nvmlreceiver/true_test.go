package nvmlreceiver

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/gputest"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/nvmltest"
)

// NVIDIA's own library has its own way to fail where no driver is.
func TestNVIDIAsLibraryWithoutADriver(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it runs the vendor's library")
	}
	host := nvmltest.New(t)
	host.Library = nvmltest.True(t)
	r := runOn(t, host)
	if _, err := os.Stat("/proc/driver/nvidia/version"); err == nil {
		require.Eventually(t, func() bool { return r.Monitor.Condition().Name != gpu.Starting }, deadline, time.Millisecond)
		t.Logf("a driver is loaded: %s", r.Monitor.Condition().Says())
		return
	}
	r.Until(wire.DriverNotLoaded)
	require.Contains(t, r.Monitor.Condition().Says(), "driver")
}

// TRACECORE_GPU=require wants GPUs in this machine; without it the test does what the
// machine allows.
func TestGPUsOfThisMachine(t *testing.T) {
	host := nvmltest.New(t)
	host.Library = "" // the one that the dynamic linker finds
	r := runOn(t, host)
	require.Eventually(t, func() bool { return r.Monitor.Condition().Name != gpu.Starting }, deadline, time.Millisecond)
	if state := r.Monitor.Condition(); state.Name != gpu.Ready {
		require.NotEqual(t, "require", os.Getenv("TRACECORE_GPU"), state.Says())
		require.Contains(t, []string{wire.LibraryAbsent, wire.DriverNotLoaded, wire.Failed}, state.Name, state.Says())
		return
	}
	require.Positive(t, r.Monitor.Known())
	positive := func(n float64) bool { return n > 0 }
	r.Point("hw.gpu.memory.limit", nil, positive)
	r.Point("hw.temperature", nil, func(n float64) bool { return n > 0 && n < 150 })
	r.Point("hw.power", nil, positive)
	r.Point("hw.status", map[string]any{"hw.state": "ok"}, gputest.Is(1))
}
