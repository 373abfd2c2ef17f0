package coverage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/patterns"
)

// TestWhatNobodyFeedsIsNotFull: with every probe and nothing else, what a pattern can do is
// what the table of signals says of the kernel alone.
func TestWhatNobodyFeedsIsNotFull(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	s, err := LoadSources()
	require.NoError(t, err)
	alone, awaits := map[string]State{}, map[string][]string{}
	there := s.every()
	there[check.Identity] = true
	var gpus []string
	for _, p := range s.Of(rules, there) {
		if p.GPU {
			gpus = append(gpus, p.Name)
		}
		alone[p.Name], awaits[p.Name] = p.Alone, p.Awaits
		require.Equal(t, Full, p.State, "%s could be full if its sources spoke", p.Name)
		if p.Alone != Full {
			require.NotEmpty(t, p.Awaits, "%s is not full, and awaits nobody", p.Name)
		}
	}
	for _, name := range []string{"gpu_lost", "fuse_stall", "rank_exit", "library_crash", "fabric_fault", "straggler", "nccl_hang"} {
		require.Equal(t, Full, alone[name], name)
	}
	for name, source := range map[string]string{
		"nvlink_degradation":     "NVML or DCGM",
		"silent_data_corruption": "training code", "pod_evicted": "Kubernetes", "node_pressure": "Kubernetes", "pod_not_starting": "Kubernetes",
	} {
		require.Equal(t, Blind, alone[name], name)
		require.Contains(t, awaits[name], source)
	}
	require.Equal(t, Degraded, alone["cuda_oom"])
	require.Contains(t, awaits["nccl_hang"], "Flight Recorder", "beside the calls that a probe sees")
	require.Equal(t, []string{
		"nvlink_degradation", "hbm_ecc", "thermal_throttle", "pcie_degradation", "cuda_oom", "xid_impact", "gpu_lost", "fabric_fault", "gpu_fault",
	}, gpus)
}
