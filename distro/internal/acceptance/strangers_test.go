//go:build linux

package acceptance

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/drill"
	"github.com/tracecoreai/tracecore/internal/stranger"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// worst is the worst that each driver says of hardware, and what takes it back.
var worst = []string{
	"NVRM: Xid (PCI:0000:e1:00): 79, GPU has fallen off the bus.",
	"NVRM: GPU 0000:e2:00.0: GPU has fallen off the bus.",
	"nvidia-nvswitch0: SXid (PCI:0000:e3:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
	"amdgpu 0000:e4:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
	"amdgpu 0000:e1:00.0: amdgpu: GPU reset(5) succeeded!",
	"mlx5_core 0000:e5:00.0 ibs3: Port: 1 Link DOWN",
	"pcieport 0000:e6:02.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
	"EDAC MC0: 1 UE memory read error on DIMM#0 (channel:0 slot:0)",
	"Memory failure: 0x1d3f5a: Sending SIGBUS to python:4242 due to hardware memory corruption",
	"nfs: server 10.0.0.9 not responding, still trying",
	"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]",
}

// ofMachines are patterns that these lines are evidence of, and that nothing else here is.
var ofMachines = []string{"fabric_fault", "gpu_fault", "gpu_lost", "hbm_ecc", "host_lockup", "ib_link_down", "ib_link_flap", "node_memory_error", "nvlink_degradation", "pcie_degradation", "xid_impact"}

// strangersAreNotBelieved has processes without privileges, ranks of a job that die, put
// these lines into the kernel log in every way that there is. A rank dies of its own beside
// them. No verdict about the machine is certain.
func strangersAreNotBelieved(t *testing.T, a agent) {
	rank, err := drill.StartRank("RANK=2", "WORLD_SIZE=8", "JOB_ID=beside-strangers")
	require.NoError(t, err)
	defer rank.Stop()
	stranger.Attacks(t, worst)
	a.await(t, "a claim of the stranger", about("gpu_lost", "gpu", "0000:e1:00.0"))
	_, err = rank.Abort()
	require.NoError(t, err)
	a.await(t, "the rank's death", about("rank_exit", "pid", strconv.Itoa(rank.PID())))
	writeKmsg(t, "NVRM: Xid (PCI:0000:ef:00): 79, GPU has fallen off the bus.")
	a.await(t, "the line behind it all", about("gpu_lost", "gpu", "0000:ef:00.0"))
	for _, v := range a.verdicts(t) {
		require.False(t, v.Confidence == verdict.Full && slices.Contains(ofMachines, v.Pattern), v.Headline)
	}
}
