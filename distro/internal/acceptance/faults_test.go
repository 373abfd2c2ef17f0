//go:build linux

package acceptance

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// TestFaultsOfOneNodeAreNamed makes four faults, one after the other, before one
// agent: a job each, so that none has to do with another.
func TestFaultsOfOneNodeAreNamed(t *testing.T) {
	privtest.Require(t)
	a := startAgent(t, t.TempDir())
	t.Run("lost GPU", func(t *testing.T) { nameALostGPU(t, a) })
	t.Run("OOM kill", func(t *testing.T) { nameAnOOMKill(t, a) })
	t.Run("stuck FUSE mount", func(t *testing.T) { nameAStuckMount(t, a) })
	t.Run("stopped rank of a ring", func(t *testing.T) { nameAStoppedRank(t, a) })
	t.Run("strangers", func(t *testing.T) { strangersAreNotBelieved(t, a) })
}

// nameALostGPU is the main job: an Xid 79 names GPU, rank, process and remedy at
// once; the rank's abort joins it.
func nameALostGPU(t *testing.T, a agent) {
	rank := startRank(t, "3")
	pid := strconv.Itoa(rank.PID())
	xid := cause(t, "kmsg", "xid")
	writeKmsg(t, fmt.Sprintf("NVRM: Xid (PCI:0000:65:00): 79, pid=%s, name=python, GPU has fallen off the bus.", pid))

	root := a.await(t, "the lost GPU", about("gpu_lost", "gpu", "0000:65:00.0"))
	xid.named()
	require.Equal(t, verdict.RootCause, root.Role)
	require.Equal(t, verdict.Open, root.Status)
	require.Equal(t, "3", root.Culprit["rank"])
	require.Equal(t, pid, root.Culprit["pid"])
	require.NotEmpty(t, root.Culprit["process"])
	require.Contains(t, root.Headline, "0000:65:00.0")
	require.NotEmpty(t, root.Remediation)
	require.NotEmpty(t, root.Evidence)

	_, err := rank.Abort()
	require.NoError(t, err)
	death := a.await(t, "the rank's death", about("rank_exit", "pid", pid))
	require.Equal(t, verdict.Symptom, death.Role)
	require.Equal(t, root.IncidentID, death.IncidentID)
	require.Equal(t, root.ID, death.RootCause)
	require.Contains(t, fmt.Sprint(death), "SIGABRT")
	require.Len(t, incidents(a.verdicts(t), func(v verdict.Verdict) bool {
		return v.Culprit["gpu"] == "0000:65:00.0" || v.Culprit["pid"] == pid
	}), 1)
}

// nameAnOOMKill has the kernel kill a rank at the limit of its cgroup: the verdict
// has rank, cgroup, limit and usage.
func nameAnOOMKill(t *testing.T, a agent) {
	oom := cause(t, "oomkill", "oom")
	victim, err := oomkill.Drill(t.Context(), oomkill.DrillOptions{
		Env: []string{"RANK=5", "WORLD_SIZE=8", "JOB_ID=oom"}, Hold: 300 * time.Millisecond,
	})
	require.NoError(t, err)
	v := a.await(t, "the kill", about("host_oom_kill", "pid", strconv.Itoa(int(victim.PID))))
	oom.namedAfter(v.Onset)
	require.Equal(t, verdict.RootCause, v.Role)
	require.Equal(t, "5", v.Culprit["rank"])
	require.Equal(t, victim.Comm, v.Culprit["process"])
	require.Equal(t, victim.CgroupPath, v.Culprit["cgroup"])
	said := fmt.Sprint(v)
	require.Contains(t, said, strconv.FormatUint(victim.LimitBytes, 10), "the limit in bytes")
}

// TestKillBetweenTwoPiecesOfEvidenceLosesAndRepeatsNothing kills tracecore after
// the first piece, starts it again and delivers the second.
func TestKillBetweenTwoPiecesOfEvidenceLosesAndRepeatsNothing(t *testing.T) {
	privtest.Require(t)
	state := t.TempDir()
	// A busy host may take minutes to start the second agent.
	patient := "--set=processors.patterndetector.patterns={xid_impact: {death: 30m}}"
	first := startAgent(t, state, patient)
	rank := startRank(t, "6")
	pid := strconv.Itoa(rank.PID())
	// Its class calls for action, so its record leaves at once; claimed from user
	// space it is no verdict by itself.
	writeKmsg(t, fmt.Sprintf("NVRM: Xid (PCI:0000:17:00): 119, pid=%s, name=python, Timeout waiting for RPC from GSP!", pid))
	// A sentinel behind it: once its verdict is out, the first piece is in the state.
	writeKmsg(t, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.")
	first.await(t, "the sentinel", about("gpu_lost", "gpu", "0000:18:00.0"))
	// And one behind that: a verdict printed in the instant of the crash may be
	// printed again, under the same id, for nobody could note that it was.
	writeKmsg(t, "NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.")
	first.await(t, "the second sentinel", about("gpu_lost", "gpu", "0000:1a:00.0"))
	require.Empty(t, of(first.verdicts(t), "xid_impact", "0000:17:00.0"), "nothing has died yet")
	first.Kill()

	second := startAgent(t, state, patient)
	_, err := rank.Abort()
	require.NoError(t, err)
	v := second.await(t, "the Xid's impact", about("xid_impact", "gpu", "0000:17:00.0"))
	require.Equal(t, "6", v.Culprit["rank"])
	// Another sentinel: whatever was to be repeated has been by then.
	writeKmsg(t, "NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.")
	second.await(t, "the last sentinel", about("gpu_lost", "gpu", "0000:19:00.0"))
	ids := map[string]bool{}
	for _, v := range of(append(first.verdicts(t), second.verdicts(t)...), "xid_impact", "0000:17:00.0") {
		ids[v.ID] = true
	}
	require.Len(t, ids, 1, "exactly one verdict")
	require.Empty(t, of(second.verdicts(t), "gpu_lost", "0000:18:00.0"), "told before the crash, not told again")
}

// of returns the verdicts of one pattern about one GPU.
func of(all []verdict.Verdict, pattern, gpu string) []verdict.Verdict {
	var some []verdict.Verdict
	for _, v := range all {
		if v.Pattern == pattern && v.Culprit["gpu"] == gpu {
			some = append(some, v)
		}
	}
	return some
}
