package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/distro/internal/coverage"
)

// TestTheGreetingCallsFullWhatTheProbesFeed, and names the source of all else.
func TestTheGreetingCallsFullWhatTheProbesFeed(t *testing.T) {
	var b strings.Builder
	list := []coverage.Pattern{
		{Name: "gpu_lost", State: coverage.Full, Alone: coverage.Full, GPU: true},
		{Name: "straggler", State: coverage.Full, Alone: coverage.Blind, Awaits: []string{"training code"}},
		{Name: "cuda_oom", State: coverage.Full, Alone: coverage.Degraded, Awaits: []string{"NVML or DCGM", "container logs"}},
		{Name: "rank_exit", State: coverage.Degraded, Alone: coverage.Degraded},
		{Name: "xid_impact", State: coverage.Blind, Alone: coverage.Blind, GPU: true},
	}
	writePatterns(&b, list, true)
	require.Equal(t, `  patterns  full: gpu_lost
  patterns  degraded: rank_exit
  patterns  likely at most, until another source speaks: cuda_oom (NVML or DCGM or container logs)
  patterns  silent, until their source speaks: straggler (training code)
  patterns  blind: xid_impact
`, b.String())
	b.Reset()
	writePatterns(&b, list, false)
	require.NotContains(t, b.String(), "full: gpu_lost")
	require.Contains(t, b.String(), "silent, no driver of a GPU is loaded: gpu_lost\n")
	require.False(t, hasGPU([]check.Fact{{ID: check.GPUDriver, Value: check.NoGPU}}))
	require.True(t, hasGPU([]check.Fact{{ID: check.GPUDriver, Value: "nvidia"}}))
	require.True(t, hasGPU(nil))
}
