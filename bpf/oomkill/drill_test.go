//go:build linux && (amd64 || arm64)

package oomkill

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/privtest"
)

// requireNothingLeft looks for cgroups that drills of this process left behind.
func requireNothingLeft(t *testing.T) {
	t.Helper()
	h, err := findMemoryHierarchy()
	require.NoError(t, err)
	for _, parent := range h.parents() {
		left, err := filepath.Glob(filepath.Join(parent, drillPrefix+strconv.Itoa(os.Getpid())+"-*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestDrillIsKilledAndLeavesNothing(t *testing.T) {
	privtest.Require(t)
	before := time.Now()
	result, err := Drill(t.Context(), DrillOptions{LimitBytes: 16 << 20})
	require.NoError(t, err)
	require.NotEmpty(t, result.CgroupPath)
	require.EqualValues(t, 16<<20, result.LimitBytes)
	require.WithinRange(t, result.Killed, before, time.Now())
	require.ErrorIs(t, unix.Kill(int(result.PID), 0), unix.ESRCH)
	requireNothingLeft(t)
}

func TestDrillWorksInsideACgroupThatHoldsProcesses(t *testing.T) {
	privtest.Require(t)
	nest := cgroup(t, nil, 1<<30)
	drill := play(t, "drill")
	require.NoError(t, nest.add(drill.Process.Pid))
	drill.tell(t)
	require.Contains(t, drill.line(t), drillPrefix+strconv.Itoa(drill.Process.Pid))
	require.NoError(t, drill.Wait())
}

func TestDrillThatRunsOutOfTimeLeavesNothing(t *testing.T) {
	privtest.Require(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Drill(ctx, DrillOptions{Hold: time.Hour})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	requireNothingLeft(t)
}

func TestDrillThatTheKernelDoesNotKillSaysSo(t *testing.T) {
	privtest.Require(t)
	roomy := cgroup(t, nil, 1<<30)
	_, err := drillIn(t.Context(), roomy, DrillOptions{LimitBytes: 8 << 20})
	require.ErrorContains(t, err, "took 16777216 bytes over a limit of 8388608 and was not killed")
}

func TestSigkillByAnybodyElseIsNoDrill(t *testing.T) {
	privtest.Require(t)
	roomy := cgroup(t, nil, 1<<30)
	child, err := startDrillChild(t.Context(), DrillOptions{LimitBytes: 8 << 20})
	require.NoError(t, err)
	require.NoError(t, roomy.add(child.cmd.Process.Pid))
	require.NoError(t, child.cmd.Process.Kill())
	require.NoError(t, child.waitKilled(t.Context()))
	require.ErrorContains(t, roomy.checkOOMKill(), "not by the kernel for want of memory")
}

func TestSweepTakesOnlyEmptyCgroupsOfDeadMakers(t *testing.T) {
	privtest.Require(t)
	parent := cgroup(t, nil, 1<<30)
	ended := play(t, "exit")
	require.Error(t, ended.Wait(), "an unknown role ends at once")
	abandoned := filepath.Join(parent.dir, drillPrefix+strconv.Itoa(ended.Process.Pid)+"-1")
	mine := filepath.Join(parent.dir, drillPrefix+strconv.Itoa(os.Getpid())+"-1")
	stranger := filepath.Join(parent.dir, "stranger")
	for _, dir := range []string{abandoned, mine, stranger} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	sweep([]string{parent.dir})
	require.NoDirExists(t, abandoned)
	require.DirExists(t, mine)
	require.DirExists(t, stranger)
	require.NoError(t, os.Remove(mine))
	require.NoError(t, os.Remove(stranger))
}

func TestDrillChildRefusesNonsense(t *testing.T) {
	for _, limit := range []string{"", "x", "-1", "0", "99999999999999999999"} {
		require.ErrorContains(t, takeMemory(limit), "not a size in bytes", limit)
	}
}
