//go:build linux && (amd64 || arm64)

package identity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/privtest"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

const patience = 20 * time.Second

func openTracker(t testing.TB, opts Options) *Tracker {
	t.Helper()
	tracker, err := Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tracker.Close()) })
	return tracker
}

// watch collects the exits of a tracker.
func watch(t testing.TB, tracker *Tracker) <-chan Exit {
	exits := make(chan Exit, 1024)
	t.Cleanup(tracker.Exits(func(e Exit) { exits <- e }))
	return exits
}

// exitOf waits for the exit of one process, and for nothing else.
func exitOf(t testing.TB, exits <-chan Exit, pid uint32) Exit {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-exits:
			if e.PID == pid {
				return e
			}
		case <-timeout:
			require.FailNow(t, "no exit", "of process %d", pid)
		}
	}
}

func TestExitsOfRanksCarryHowTheyEnded(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungTracing})
	exits := watch(t, tracker)
	environ := []string{"PATH=/bin", "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "JOB_ID=job-1", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"}

	for name, tc := range map[string]struct {
		mode         string
		code, signal int
	}{
		"killed by SIGABRT": {mode: "abort", signal: 6},
		"returns 7":         {mode: "exit7", code: 7},
		"returns 0":         {mode: "exit0"},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			c := startChild(t, tc.mode, environ...)
			c.finish()
			e := exitOf(t, exits, c.pid())
			require.Equal(t, [2]int{tc.code, tc.signal}, [2]int{e.Code, e.Signal})
			require.False(t, e.OOMVictim)
			require.WithinRange(t, e.Time, before.Add(-time.Second), time.Now().Add(time.Second))

			p, known := tracker.Lookup(c.pid(), 0, time.Now())
			require.True(t, known, "known after its death")
			require.Equal(t, e.Process, p)
			require.Equal(t, Process{
				PID: c.pid(), ParentPID: p.ParentPID, StartTime: p.StartTime, Comm: "exe", CgroupPath: p.CgroupPath,
				ContainerID: p.ContainerID, PodUID: p.PodUID,
				Rank: 3, LocalRank: 1, WorldSize: 8, JobID: "job-1", MasterAddr: "10.0.0.1", MasterPort: 29500,
			}, p)
		})
	}
	require.Zero(t, tracker.Stats().Dropped)
	require.Equal(t, []probe.Attempt{{Rung: RungTracing, Outcome: probe.OK, Fired: true}}, tracker.Report().Attempts)
}
