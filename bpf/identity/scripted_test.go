//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func rank3() []string { return []string{"RANK=3", "WORLD_SIZE=8", "JOB_ID=job"} }

func TestReusedPIDIsToldApartByTime(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(500, 1, 0, 0, rank3()...)
	s.exit(500, 1, 0, 10, 6)
	s.exec(500, 1, 20, 20, "PATH=/bin")
	s.exit(500, 1, 20, 30, 0)
	s.exit(500, 1, 40, 41, 0) // forked, never executed: known by its exit alone
	s.settle()

	require.Equal(t, 3, s.lookup(500, 0, 5).Rank, "while the rank lived")
	require.False(t, s.lookup(500, 0, 5).Ended)
	require.Equal(t, 3, s.lookup(500, 0, 15).Rank, "after it, when nobody else had the pid")
	require.True(t, s.lookup(500, 0, 15).Ended, "what came then may be of another")
	require.Equal(t, Unknown, s.lookup(500, 0, 25).Rank)
	require.Equal(t, Unknown, s.lookup(500, 0, 35).Rank)
	require.Equal(t, "worker", s.lookup(500, 0, 45).Comm)
	_, known := s.Lookup(500, 0, s.at(-5))
	require.False(t, known, "before any of them")
}

func TestExitedRankDoesNotAnswerForALivingStranger(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(500, 1, 0, 0, rank3()...)
	s.exit(500, 1, 0, 10, 6)
	s.settle()
	require.Equal(t, 3, s.lookup(500, 0, 20).Rank)

	s.proc.add(500, 1, s.ns(18), "cron", "/cron") // forked: no exec told of it
	require.Equal(t, "cron", s.lookup(500, 0, 20).Comm)
	require.Equal(t, 3, s.lookup(500, 0, 5).Rank)
}

func TestRanksAreTheLivingProcessesOfRanks(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, rank3()...)
	s.exec(101, 100, 1, 1, rank3()...) // a program that the rank started
	s.exec(200, 1, 1, 1, "RANK=4", "WORLD_SIZE=8")
	s.exec(300, 1, 1, 1, "PATH=/bin")
	s.exec(400, 1, 1, 1, "RANK=5", "WORLD_SIZE=8")
	s.exit(400, 1, 1, 2, 9)
	s.settle()

	type rank struct {
		pid       uint32
		rank      int
		inherited bool
	}
	var got []rank
	for _, p := range s.Ranks() {
		got = append(got, rank{p.PID, p.Rank, p.Inherited})
	}
	require.ElementsMatch(t, []rank{{100, 3, false}, {101, 3, true}, {200, 4, false}}, got)
}

func TestForkedWorkerIsOfItsParentsRank(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, rank3()...)
	s.exit(101, 100, 5, 6, 9) // its exit is the first we hear of it
	e := exitOf(t, s.exits, 101)
	require.Equal(t, []any{3, 8, "job", true, "worker", 9}, []any{e.Rank, e.WorldSize, e.JobID, e.Inherited, e.Comm, e.Signal})

	s.proc.add(102, 100, s.ns(7), "pt_data_worker", "/c", rank3()...) // lives, nobody told of it
	p := s.lookup(102, 0, 8)
	require.Equal(t, []any{3, true, "pt_data_worker"}, []any{p.Rank, p.Inherited, p.Comm})

	p = s.lookup(103, 100, 8) // nothing but its parent is known
	require.Equal(t, Process{PID: 103, ParentPID: 100, Rank: 3, LocalRank: Unknown, WorldSize: 8, JobID: "job", Domain: unknownDomain, Inherited: true,
		RankPID: 100, RankStart: s.lookup(100, 0, 8).StartTime}, p)

	s.proc.add(104, 102, s.ns(8), "sh", "/c") // a grandchild, through /proc
	p = s.lookup(104, 0, 9)
	require.Equal(t, []any{3, true}, []any{p.Rank, p.Inherited})

	_, known := s.Lookup(105, 999, s.at(9))
	require.False(t, known, "neither it nor its parent is known")
	_, known = s.Lookup(0, 100, s.at(9))
	require.False(t, known, "pid 0 is nobody")
}

func TestProgramStartedByARankIsMarkedInherited(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, rank3()...)
	s.exec(101, 100, 1, 1, rank3()...)               // gcc, with the rank's environment
	s.exec(102, 100, 1, 1, "PATH=/bin")              // with a clean one
	s.exec(103, 100, 1, 1, "RANK=4", "WORLD_SIZE=8") // a rank that starts another
	s.settle()
	for pid, want := range map[uint32][2]any{100: {3, false}, 101: {3, true}, 102: {3, true}, 103: {4, false}} {
		p := s.lookup(pid, 0, 2)
		require.Equal(t, want, [2]any{p.Rank, p.Inherited}, "process %d", pid)
	}
	require.Equal(t, 4, s.Counters().Ranks)
}

func TestLauncherWithARankOfASmallerWorldIsNoRank(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	slurm := []string{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_JOB_ID=991"}
	s.exec(100, 1, 0, 0, slurm...)   // a shell script under srun
	s.exec(101, 100, 1, 1, slurm...) // torchrun in it
	s.settle()
	require.Equal(t, 1, s.lookup(101, 0, 1).Rank, "nothing else is known yet")

	s.exec(102, 101, 2, 2, append(slurm, "RANK=9", "LOCAL_RANK=1", "WORLD_SIZE=16")...)
	s.exit(102, 101, 2, 3, 6)
	s.exit(101, 100, 1, 4, 1<<8)
	s.exit(100, 1, 0, 5, 1<<8)
	s.settle()
	require.Equal(t, 9, exitOf(t, s.exits, 102).Rank)
	for _, pid := range []uint32{100, 101} {
		p := s.lookup(pid, 0, 3)
		require.Equal(t, []any{Unknown, false, "991"}, []any{p.Rank, p.Inherited, p.JobID}, "process %d", pid)
	}
	require.Empty(t, s.exits, "the launchers' exits are no rank's")
}

// pytorchJob is the environment of a pod of Kubeflow's training operator. Its RANK is the index of the pod.
func pytorchJob(index, world int, more ...string) []string {
	return append([]string{"PET_NNODES=2", fmt.Sprint("PET_NODE_RANK=", index), "MASTER_ADDR=llm-master-0", "MASTER_PORT=23456", fmt.Sprint("WORLD_SIZE=", world), fmt.Sprint("RANK=", index)}, more...)
}

// ofTorchrun is what torchrun gives to a rank in place of that.
func ofTorchrun(rank, world, restarts int) []string {
	return pytorchJob(rank, world, "LOCAL_RANK=0", "TORCHELASTIC_RUN_ID=none", fmt.Sprint("TORCHELASTIC_RESTART_COUNT=", restarts))
}

// TestTorchrunInAPodThatHasARankIsNoRank: with nprocPerNode the operator gives the pod the world
// of the ranks that torchrun starts in it.
func TestTorchrunInAPodThatHasARankIsNoRank(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	pod := pytorchJob(1, 16)
	s.exec(99, 1, 0, 0, pod...)       // sh -c
	s.exec(100, 99, 0.1, 0.1, pod...) // torchrun
	s.exec(101, 100, 2, 2, ofTorchrun(8, 16, 0)...)
	s.exec(102, 100, 2, 2, ofTorchrun(9, 16, 0)...)
	s.exec(103, 102, 9, 9, ofTorchrun(9, 16, 0)...) // a program of a rank
	s.exit(102, 100, 2, 60, 1<<8)
	s.exit(100, 99, 0.1, 61, 1<<8)
	s.exit(99, 1, 0, 62, 1<<8)
	s.settle()
	require.Equal(t, []any{9, false}, standing(exitOf(t, s.exits, 102).Process))
	require.Empty(t, s.exits, "nobody else was a rank")
	for pid, want := range map[uint32][]any{99: {Unknown, false}, 100: {Unknown, false}, 101: {8, false}, 103: {9, true}} {
		require.Equal(t, want, standing(s.lookup(pid, 0, 30)), "process %d", pid)
	}
}

func standing(p Process) []any { return []any{p.Rank, p.Inherited} }

// TestTheOneRankOfAPodIsWhatTorchrunStarts: one process a pod, so torchrun and its rank have the
// same rank of the same world.
func TestTheOneRankOfAPodIsWhatTorchrunStarts(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, pytorchJob(1, 3)...) // torchrun --max-restarts=3
	for restart, at := range []float64{2, 62} {
		pid := uint32(101 + restart)
		s.proc.add(pid, 100, s.ns(at), "torchrun", "/c", pytorchJob(1, 3)...)
		s.lookup(pid, 100, at) // it has forked, and not executed python yet
		s.exec(pid, 100, at, at, ofTorchrun(1, 3, restart)...)
		s.exit(pid, 100, at, at+58, 1<<8)
	}
	s.exit(100, 1, 0, 121, 1<<8)
	s.settle()
	for restart := range 2 {
		e := exitOf(t, s.exits, uint32(101+restart))
		require.Equal(t, []any{1, false, e.PID, restart + 1}, []any{e.Rank, e.Inherited, e.RankPID, e.Attempt})
	}
	require.Empty(t, s.exits, "torchrun was no rank")
}

// TestTheOneRankOfANodeIsWhatMpirunStarts: srun starts the daemon of mpirun on each node, as task
// of a step of as many tasks as there are ranks.
func TestTheOneRankOfANodeIsWhatMpirunStarts(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	daemon := []string{"SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_LOCALID=0"}
	rank := append(daemon, "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=prterun-n0-7@1")
	s.exec(100, 1, 0, 0, daemon...)
	s.exec(101, 100, 1, 1, rank...)                                   // a script
	s.exec(102, 101, 2, 2, append(rank, "RANK=1", "WORLD_SIZE=2")...) // says to torch what mpirun says
	s.settle()
	for pid, want := range map[uint32][]any{100: {Unknown, false}, 101: {1, false}, 102: {1, true}} {
		require.Equal(t, want, standing(s.lookup(pid, 0, 3)), "process %d", pid)
	}
}

// TestARankThatRunsTorchrunStaysARank: it looks at a model in a world of one beside its training.
func TestARankThatRunsTorchrunStaysARank(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, rank3()...)
	s.exec(101, 100, 60, 60, rank3()...) // torchrun --standalone
	s.exec(102, 101, 62, 62, "RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_RESTART_COUNT=0", "MASTER_ADDR=127.0.0.1")
	s.settle()
	for pid, want := range map[uint32][]any{100: {3, false}, 101: {3, true}, 102: {0, false}} {
		require.Equal(t, want, standing(s.lookup(pid, 0, 63)), "process %d", pid)
	}
}

// TestWhatSomebodyStartsInTheContainerOfARankIsNotTheRank: its environment is that of the container.
func TestWhatSomebodyStartsInTheContainerOfARankIsNotTheRank(t *testing.T) {
	const shim, runc = 10, 11
	ours, another := "/kubepods/pod"+uid+"/"+idA, "/kubepods/pod"+uid+"/"+idB
	for name, tc := range map[string]struct {
		pod    []string   // what all in the container have
		starts [][]string // what launchers give
		shell  []string   // what somebody starts
		in     string
		ended  bool // the rank, before that
		want   []any
	}{
		"a shell": {pod: rank3(), shell: rank3(), in: ours, want: []any{Unknown, false}},
		"a shell beside what torchrun has started": {
			pod: pytorchJob(1, 4), starts: [][]string{ofTorchrun(2, 4, 0), ofTorchrun(3, 4, 0)}, shell: pytorchJob(1, 4), in: ours, want: []any{Unknown, false},
		},
		"a shell beside the one rank that torchrun has started": {
			pod: pytorchJob(1, 2), starts: [][]string{ofTorchrun(1, 2, 0)}, shell: pytorchJob(1, 2), in: ours, want: []any{Unknown, false},
		},
		"another container":                    {pod: rank3(), shell: rank3(), in: another, want: []any{3, false}},
		"another rank in one container":        {pod: rank3(), shell: []string{"RANK=4", "WORLD_SIZE=8", "JOB_ID=job"}, in: ours, want: []any{4, false}},
		"the rank, started again from outside": {pod: rank3(), shell: rank3(), in: ours, ended: true, want: []any{3, false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
				proc.add(shim, 1, base, "containerd-shim", "/system.slice/containerd.service")
				proc.add(runc, shim, base, "runc", "/system.slice/containerd.service")
			})
			run := func(pid, parent uint32, at float64, cgroup string, environ []string) {
				s.proc.add(pid, parent, s.ns(at), "python", cgroup, environ...)
				s.exec(pid, parent, at, at, environ...)
			}
			run(100, shim, 1, ours, tc.pod)
			for i, environ := range tc.starts {
				run(uint32(101+i), 100, 2, ours, environ)
			}
			if tc.ended {
				s.exit(100, shim, 1, 15, 9)
				s.proc.remove(100)
			}
			run(200, runc, 20, tc.in, tc.shell)
			s.settle()
			run(201, 200, 21, tc.in, tc.shell) // what that starts
			s.settle()
			require.Equal(t, tc.want, standing(s.lookup(200, 0, 30)))
			require.Equal(t, tc.want[0], s.lookup(201, 0, 30).Rank)
			for _, p := range s.Unranked() {
				require.NotEqualValues(t, 200, p.PID, "it has said all")
			}
			if tc.want[0] == Unknown {
				run(202, 200, 22, tc.in, ofTorchrun(0, 1, 0))
				s.exit(200, runc, 20, 55, 9)
				s.settle()
				require.Equal(t, []any{0, false}, standing(s.lookup(202, 0, 30)), "torchrun in that shell starts a rank")
				require.Empty(t, s.exits, "it is nobody's end")
			}
		})
	}
}

// A launch script watches its GPU from a subshell, before it starts the rank.
func TestWhatRanBeforeTheRankInItsContainerDoesNotDisownIt(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	const container = "/kubepods/pod" + uid + "/" + idA
	s.proc.add(10, 1, s.ns(0), "bash", container)
	s.proc.add(11, 10, s.ns(1), "bash", container) // a subshell: it has executed nothing
	for pid, parent := range map[uint32]uint32{20: 11, 21: 10} {
		s.proc.add(pid, parent, s.ns(float64(pid)), "x", container, rank3()...)
	}
	s.exec(20, 11, 20, 20, rank3()...)
	s.exec(21, 10, 21, 21, rank3()...)
	s.settle()
	require.Equal(t, []any{3, false}, standing(s.lookup(21, 0, 30)))
}

// TestABatchScriptOfSlurmIsNoRank: sbatch --ntasks gives it SLURM_PROCID and SLURM_NTASKS. What
// srun starts is of a step, under slurmstepd.
func TestABatchScriptOfSlurmIsNoRank(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	batch := []string{"SLURM_JOB_ID=991", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=2"}
	s.exec(100, 40, 0, 0, batch...)  // slurm_script
	s.exec(101, 100, 9, 9, batch...) // srun
	for i, rank := range []string{"0", "1"} {
		s.exec(uint32(200+i), 50, 10, 10, "SLURM_JOB_ID=991", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID="+rank, "SLURM_LOCALID="+rank, "SLURM_NTASKS=2")
	}
	s.exit(201, 50, 10, 60, 11)
	s.exit(200, 50, 10, 61, 1<<8)
	s.exit(101, 100, 9, 61.5, 1<<8)
	s.exit(100, 40, 0, 62, 1<<8)
	s.settle()
	require.Equal(t, 1, exitOf(t, s.exits, 201).Rank)
	require.Equal(t, 0, exitOf(t, s.exits, 200).Rank)
	require.Empty(t, s.exits, "neither srun nor the script is a rank")
	for _, pid := range []uint32{100, 101} {
		p := s.lookup(pid, 0, 30)
		require.Equal(t, []any{Unknown, "991"}, []any{p.Rank, p.JobID}, "process %d", pid)
	}
}

// TestABatchScriptWithTheVariablesOfAStepIsNoRank, be it seen to start or found in /proc.
func TestABatchScriptWithTheVariablesOfAStepIsNoRank(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	leaked := []string{"SLURM_JOB_ID=992", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1"}
	for pid := uint32(200); pid < 202; pid++ {
		s.proc.add(pid, 1, s.ns(0), "slurm_script", "/system.slice/slurmstepd.scope/job_992/step_batch/user/task_0", leaked...)
	}
	s.exec(200, 1, 0, 0, leaked...)
	s.settle()
	for pid := uint32(200); pid < 202; pid++ {
		p := s.lookup(pid, 0, 1)
		require.Equal(t, []any{Unknown, "992", "slurm job 992"}, []any{p.Rank, p.JobID, p.Domain}, "process %d", pid)
	}
}

func TestExitToldTwiceByTheKernelIsReportedOnce(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, rank3()...)
	s.exit(100, 1, 0, 1, 6)
	s.exit(100, 1, 0, 1.5, 7<<8)
	s.settle()
	require.Equal(t, 6, exitOf(t, s.exits, 100).Signal)
	require.Empty(t, s.exits)
	require.EqualValues(t, 2, s.Counters().Exits)
}

func TestExitAfterTheScanMissedItIsStillReported(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{}, func(tracker *Tracker, _ fakeProc, _ uint64) { tracker.healing = 0 })
	s.exec(100, 1, 0, 0, rank3()...)
	s.settle()
	s.script.drops.Add(1) // and /proc does not show process 100
	require.Eventually(t, func() bool { return s.Counters().Ranks == 0 }, hosttest.Patience, time.Millisecond)
	s.exit(100, 1, 0, 55, 6)
	require.Equal(t, 3, exitOf(t, s.exits, 100).Rank)
}

func TestDroppedEventsHealByAScan(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{}, func(tracker *Tracker, _ fakeProc, _ uint64) { tracker.healing = 0 })
	s.proc.add(200, 1, s.ns(30), "python", "/kubepods/pod"+uid+"/"+idA, rank3()...)
	s.proc.add(300, 1, s.ns(30), "python", "/", "RANK=x", "WORLD_SIZE=8")
	require.Zero(t, s.Counters().Ranks)
	scans := s.Counters().Scans
	s.script.drops.Add(7)
	require.Eventually(t, func() bool { return s.Counters().Ranks == 1 && s.Counters().BadValues > 0 }, hosttest.Patience, time.Millisecond)
	require.Equal(t, []any{idA, uid}, []any{s.lookup(200, 0, 40).ContainerID, s.lookup(200, 0, 40).PodUID})
	require.Equal(t, scans+1, s.Counters().Scans, "one scan for all drops so far")
	require.EqualValues(t, 7, s.Stats().Dropped)
	require.EqualValues(t, 1, s.Counters().BadValues)
}

func TestWithoutExitEventsTheScanEndsProcesses(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{ScanInterval: time.Nanosecond}, func(tracker *Tracker, proc fakeProc, base uint64) {
		tracker.source.(*script).noExits = true
		proc.add(200, 1, base, "python", "/c", rank3()...)
	})
	require.Equal(t, 1, s.Counters().Ranks)
	s.proc.remove(200)
	require.Eventually(t, func() bool { return s.Counters().Ranks == 0 }, hosttest.Patience, time.Millisecond)
	require.Equal(t, 3, s.lookup(200, 0, 50).Rank, "known after its death")
	require.Empty(t, s.exits, "how it ended nobody knows")
}

func TestOverwrittenEnvironmentDoesNotTakeTheRank(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{ScanInterval: time.Nanosecond}, func(tracker *Tracker, proc fakeProc, base uint64) {
		tracker.source.(*script).noExits = true
		proc.add(200, 1, base, "python", "/c", rank3()...)
	})
	s.proc.write(200, "environ", "train: step 17 of 100\x00\x00") // setproctitle(3)
	s.proc.write(200, "stat", statLine(200, 1, s.base, "train: step"))
	require.Eventually(t, func() bool { return s.lookup(200, 0, 50).Comm == "train: step" }, hosttest.Patience, time.Millisecond)
	require.Equal(t, 3, s.lookup(200, 0, 50).Rank)
}

// Its launcher's mark is remembered with the rank: a program that it starts has the mark, too.
func TestOverwrittenEnvironmentDoesNotMakeALauncher(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{ScanInterval: time.Nanosecond}, func(tracker *Tracker, proc fakeProc, base uint64) {
		tracker.source.(*script).noExits = true
		proc.add(200, 1, base, "python", "/c", ofTorchrun(3, 8, 0)...)
	})
	s.proc.write(200, "environ", "train: step 17 of 100\x00\x00")
	s.proc.write(200, "stat", statLine(200, 1, s.base, "train: step"))
	require.Eventually(t, func() bool { return s.lookup(200, 0, 50).Comm == "train: step" }, hosttest.Patience, time.Millisecond)
	s.proc.add(201, 200, s.ns(51), "gcc", "/c", ofTorchrun(3, 8, 0)...)
	require.Equal(t, []any{3, true}, standing(s.lookup(201, 0, 52)))
	require.Equal(t, []any{3, false}, standing(s.lookup(200, 0, 52)))
}

func TestUnreadableProcLeavesProcessesPlainAndCounts(t *testing.T) {
	s := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
		proc.write(200, "stat", statLine(200, 1, base, "secret")) // neither cgroup nor environ
		proc.write(201, "stat", "201 (half")
		proc.write(202, "stat", "")
		proc.write(203, "nothing", "")
		require.NoError(proc, unix.Mkdir(filepath.Join(proc.root, "acpi"), 0o755))
		require.NoError(proc, unix.Mkdir(filepath.Join(proc.root, "99999999999"), 0o755))
	})
	p := s.lookup(200, 0, 1)
	require.Equal(t, []any{Unknown, "secret", ""}, []any{p.Rank, p.Comm, p.CgroupPath})
	require.Equal(t, 1, s.Counters().Processes)
	require.EqualValues(t, 3, s.Counters().Unreadable)
}

func TestLongEnvironmentIsCutAndCounted(t *testing.T) {
	s := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
		junk := make([]string, 0, 40000)
		for i := range 40000 {
			junk = append(junk, fmt.Sprintf("JUNK_%06d=1234567890", i))
		}
		proc.add(200, 1, base, "python", "/c", append(rank3(), junk...)...)
	})
	require.Equal(t, 3, s.lookup(200, 0, 1).Rank)
	require.NotZero(t, s.Counters().Truncated)
}

func TestStuckEnvironmentReadsAreLeftBehind(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	const stuck = 3
	s := newScripted(t, Options{}, func(tracker *Tracker, proc fakeProc, base uint64) {
		tracker.proc.WithPatience(unansweredFor)
		for pid := uint32(200); pid < 200+stuck; pid++ {
			proc.write(pid, "stat", statLine(pid, 1, base, "stuck"))
			proc.write(pid, "cgroup", "0::/c\n")
			proc.write(pid, "status", "Uid:\t0\n")
			// A pipe without a writer holds its reader as a held map lock does.
			require.NoError(proc, unix.Mkfifo(filepath.Join(proc.root, fmt.Sprint(pid), "environ"), 0o600))
		}
	})
	require.Equal(t, "/c", s.lookup(200, 0, 1).CgroupPath)
	require.Equal(t, stuck, s.Counters().Processes)
	require.GreaterOrEqual(t, s.Counters().Unreadable, uint64(stuck)) // they are tried again
	require.Equal(t, stuck, s.Tracker.proc.Left())

	s.proc.add(300, 1, s.base, "python", "/c", rank3()...)
	require.Eventually(t, func() bool {
		p, known := s.Lookup(300, 0, s.at(1))
		return known && p.Rank == 3
	}, hosttest.Patience, time.Millisecond, "others are read")
	for pid := uint32(200); pid < 200+stuck; pid++ {
		fd, err := unix.Open(filepath.Join(s.proc.root, fmt.Sprint(pid), "environ"), unix.O_WRONLY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
	}
	require.Eventually(t, func() bool { return s.Tracker.proc.Left() == 0 }, hosttest.Patience, time.Millisecond)
}

// unansweredFor is how long the Tracker waits in tests in which the kernel does not answer.
const unansweredFor = time.Second

// unanswered lets the kernel hold the reader of a file of a process, until the function that
// is returned is called: then it has the content.
func (p fakeProc) unanswered(pid uint32, file, content string) (answer func()) {
	name := filepath.Join(p.root, strconv.Itoa(int(pid)), file)
	require.NoError(p, os.MkdirAll(filepath.Dir(name), 0o755))
	if err := os.Remove(name); err != nil {
		require.ErrorIs(p, err, os.ErrNotExist)
	}
	require.NoError(p, unix.Mkfifo(name, 0o600))
	return func() {
		fd, err := unix.Open(name, unix.O_RDWR, 0) // lets go of who waits
		require.NoError(p, err)
		require.NoError(p, os.Rename(name, name+".was"))
		p.write(pid, file, content)
		require.NoError(p, unix.Close(fd))
	}
}

func TestWhatTheKernelDidNotAnswerIsAskedAgain(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	for file, content := range map[string]string{
		"environ": string(block(rank3()...)),
		"cgroup":  "0::/kubepods.slice/c\n",
		"status":  "Name:\tpython\nUid:\t1000\t0\t0\t0\n",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			var answer func()
			s := newScripted(t, Options{}, func(tracker *Tracker, proc fakeProc, base uint64) {
				tracker.proc.WithPatience(unansweredFor)
				proc.add(200, 1, base, "python", "/kubepods.slice/c", rank3()...)
				answer = proc.unanswered(200, file, content)
			})
			answer()
			want := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
				proc.add(200, 1, base, "python", "/kubepods.slice/c", rank3()...)
			}).lookup(200, 0, 1)
			require.Equal(t, 3, want.Rank)
			require.Eventually(t, func() bool {
				p := s.lookup(200, 0, 1)
				return p.Rank == want.Rank && p.CgroupPath == want.CgroupPath && p.Domain == want.Domain
			}, hosttest.Patience, time.Millisecond)
		})
	}
}

func TestAnExecThatCouldNotBeReadIsReadAgain(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{}, func(tracker *Tracker, _ fakeProc, _ uint64) { tracker.proc.WithPatience(unansweredFor) })
	s.proc.add(500, 1, s.ns(0), "python", "/c", rank3()...)
	answer := s.proc.unanswered(500, "environ", string(block(rank3()...)))
	s.script.events <- event{kind: kindExec, pid: 500, parentPID: 1, startNS: s.ns(0), timeNS: s.ns(0), comm: "python"} // no environment: under reclaim
	s.settle()
	require.Equal(t, Unknown, s.lookup(500, 0, 1).Rank)
	answer()
	require.Eventually(t, func() bool { return s.lookup(500, 0, 1).Rank == 3 }, hosttest.Patience, time.Millisecond)
}

func TestAProcessThatCannotBeReadHasNotEnded(t *testing.T) {
	t.Parallel() // it waits for the tracker's timers
	s := newScripted(t, Options{}, func(tracker *Tracker, proc fakeProc, base uint64) {
		tracker.healing = 0
		tracker.proc.WithPatience(unansweredFor)
		proc.add(200, 1, base, "python", "/c", rank3()...)
		proc.add(201, 1, base, "python", "/c", rank3()...)
	})
	s.settle()
	defer s.proc.unanswered(200, "stat", "")()
	s.proc.remove(201)
	s.script.drops.Add(1) // then all of /proc is read
	require.Eventually(t, func() bool { return len(s.Ranks()) == 1 }, hosttest.Patience, time.Millisecond)
	require.EqualValues(t, 200, s.Ranks()[0].PID)
}

func TestUnreadProcessesAreBounded(t *testing.T) {
	u := unread{}
	for pid := range uint32(maxUnread + 10) {
		u.note(facts{pid: pid, unread: true})
	}
	require.Len(t, u, maxUnread)
	u.note(facts{pid: 5})
	require.NotContains(t, u, uint32(5))
	for range maxTries + 1 {
		u.due()
	}
	require.Empty(t, u, "it gives up")
}

func TestForeignProcIsNotRead(t *testing.T) {
	s := newScripted(t, Options{}, func(tracker *Tracker, proc fakeProc, base uint64) {
		tracker.proc.SetForeign(true)
		proc.add(100, 1, base, "somebody else", "/c", "RANK=7", "WORLD_SIZE=8")
	})
	_, known := s.Lookup(100, 0, s.at(1))
	require.False(t, known)
	s.exec(100, 1, 0, 0, rank3()...)
	s.settle()
	require.Equal(t, []any{3, ""}, []any{s.lookup(100, 0, 1).Rank, s.lookup(100, 0, 1).CgroupPath})
}

func TestManyProcessesStayUnderTheCap(t *testing.T) {
	const most = 5000
	total := hosttest.Size(100_000, 10_000)
	s := newScripted(t, Options{MaxProcesses: most}, func(tracker *Tracker, _ fakeProc, _ uint64) {
		tracker.proc.SetForeign(true) // nothing to be found there, and slow on a slow machine
	})
	s.exec(1<<22, 1, 0, 0, rank3()...)
	s.exec(1<<22+1, 1, 0, 0, "RANK=4", "WORLD_SIZE=8")
	s.exit(1<<22+1, 1, 0, 1, 6)
	for pid := range uint32(total) {
		s.exec(pid+2, 1, 1, 1, "PATH=/bin")
		if pid%2 == 0 {
			s.exit(pid+2, 1, 1, 2, 0)
		}
	}
	s.settle()
	c := s.Counters()
	require.Equal(t, most, c.Processes)
	require.EqualValues(t, total+3-most, c.Evicted)
	require.Equal(t, 3, s.lookup(1<<22, 0, 3).Rank, "a living rank outlasts the flood")
	require.Equal(t, 4, s.lookup(1<<22+1, 0, 3).Rank, "so does one that died")
}

func TestSlowCallbackNeitherBlocksNorLosesUncounted(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	hold, first := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var told []uint32
	cancel := s.Exits(func(e Exit) {
		once.Do(func() { close(first) })
		<-hold
		told = append(told, e.PID)
	})
	const total = exitQueue + 100
	for i := range uint32(total) {
		s.exec(i+10, 1, 0, 0, rank3()...)
		s.exit(i+10, 1, 0, 1, 6)
	}
	<-first
	s.settle() // the reader goes on
	dropped := s.Counters().ExitsDropped
	require.NotZero(t, dropped)
	close(hold)
	require.NoError(t, s.Close(), "delivers what waits")
	cancel()
	require.EqualValues(t, total, uint64(len(told))+dropped)
	require.IsIncreasing(t, told, "in order")
}

// Receivers begin after the probe: what ends in between is told to those that ask then.
func TestWhatEndedBeforeAnybodyAskedIsTold(t *testing.T) {
	x := newExits()
	told := func() (pids []uint32) {
		x.subscribe(func(e Exit) { pids = append(pids, e.PID) })
		return pids
	}
	for pid := range uint32(exitQueue + 1) {
		x.tell(Exit{Process: Process{PID: pid}})
	}
	require.Len(t, told(), exitQueue)
	x.tell(Exit{Process: Process{PID: 1 << 20}})
	require.NotContains(t, told(), uint32(1<<20), "it was told as it came")
}

func TestCancelledCallbackIsNotCalled(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	cancel := s.Exits(func(Exit) { t.Error("called after cancel") })
	cancel()
	cancel()
	s.exec(100, 1, 0, 0, rank3()...)
	s.exit(100, 1, 0, 1, 6)
	exitOf(t, s.exits, 100)
}

func TestCloseTwiceAndLookupAfter(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, rank3()...)
	s.settle()
	s.script.drops.Add(3)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Equal(t, 3, s.lookup(100, 0, 1).Rank)
	require.EqualValues(t, 3, s.Stats().Dropped)
}

// TestADomainIsWhatTheKernelSays: the same claim by another user, and by a process that
// nobody could ask any more, is of another domain.
func TestADomainIsWhatTheKernelSays(t *testing.T) {
	s := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
		proc.add(1, 0, base, "systemd", "/init.scope")
		proc.write(1, "status", "Uid:\t0\t0\t0\t0\n")
		proc.add(200, 1, base, "python", "/system.slice/train.service", rank3()...)
		proc.add(201, 1, base, "python", "/system.slice/train.service", rank3()...)
		proc.write(201, "status", "Uid:\t65534\t65534\t65534\t65534\n")
	})
	require.Equal(t, "user 1000", s.lookup(200, 0, 1).Domain)
	require.Equal(t, "user 65534", s.lookup(201, 0, 1).Domain)

	s.exec(300, 1, 1, 0, rank3()...) // gone before it was read
	s.exit(300, 1, 1, 2, 6)
	e := exitOf(t, s.exits, 300)
	require.Equal(t, []any{3, "job", unknownDomain}, []any{e.Rank, e.JobID, e.Domain})
	require.False(t, e.Helper, "it crashed")
	s.exec(303, 999, 1, 0, rank3()...) // a program of a subshell that is gone as well
	s.exit(303, 999, 1, 2, 1<<8)
	e = exitOf(t, s.exits, 303)
	require.True(t, e.Helper, "nothing says that it was the rank")
	require.Zero(t, e.RankPID)
	s.exec(301, 201, 1, 0, rank3()...) // gone, too, but its parent is known
	s.exit(301, 201, 1, 2, 6)
	require.Equal(t, "user 65534", exitOf(t, s.exits, 301).Domain)
	s.exit(302, 200, 1, 2, 6) // a worker forked without exec
	require.Equal(t, "user 1000", exitOf(t, s.exits, 302).Domain)
}

// TestADrillIsKnownByItsToken also in what its process forks, and in nothing that only
// calls itself one.
func TestADrillIsKnownByItsToken(t *testing.T) {
	proves := func(token string, start time.Time) bool { return token == "right" && time.Since(start) < time.Hour }
	s := newScripted(t, Options{Drill: proves}, func(_ *Tracker, proc fakeProc, base uint64) {
		proc.add(200, 1, base, "python", "/c", append(rank3(), DrillVariable+"=right")...)
		proc.add(201, 1, base, "python", "/c", append(rank3(), DrillVariable+"=wrong")...)
		proc.add(202, 1, base, "python", "/c", append(rank3(), "JOB_ID=tracecore-drill")...)
	})
	require.True(t, s.lookup(200, 0, 1).Drill)
	require.False(t, s.lookup(201, 0, 1).Drill)
	require.False(t, s.lookup(202, 0, 1).Drill)
	s.exit(300, 200, 1, 2, 6)
	require.True(t, exitOf(t, s.exits, 300).Drill)
	s.exit(301, 202, 1, 2, 6)
	require.False(t, exitOf(t, s.exits, 301).Drill)
}

// What somebody remembers of before has ended unseen where /proc shows it, and nobody told of the end.
func TestWhoEndedUnseen(t *testing.T) {
	s := newScripted(t, Options{}, func(_ *Tracker, proc fakeProc, base uint64) {
		proc.add(500, 1, base, "python", "/a", rank3()...)
	})
	unseen := func(pid uint32, start float64) bool {
		return s.EndedUnseen(Born{pid, s.ns(start) / uint64(tick) * uint64(tick)})
	}
	require.False(t, unseen(500, 0), "it lives")
	require.True(t, unseen(500, -10), "another had its number")
	require.True(t, unseen(501, 0))
	require.False(t, s.EndedUnseen(Born{PID: 501}), "which one is not known")
	s.proc.remove(500)
	s.exit(500, 1, 0, 10, 6)
	require.False(t, unseen(500, 0), "its end is in the ring at least")
	s.Tracker.proc.SetForeign(true)
	require.False(t, unseen(501, 0), "nothing shows it")
}
