//go:build linux && (amd64 || arm64)

package identity

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

func openTracker(t testing.TB, opts Options) *Tracker {
	t.Helper()
	tracker, err := Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tracker.Close()) })
	return tracker
}

// watch collects the exits of a tracker.
func watch(t testing.TB, tracker *Tracker) <-chan Exit {
	exits := make(chan Exit, 2*exitQueue)
	t.Cleanup(tracker.Exits(func(e Exit) { exits <- e }))
	return exits
}

// exitOf waits for the exit of one process, and for nothing else.
func exitOf(t testing.TB, exits <-chan Exit, pid uint32) Exit {
	t.Helper()
	return exitsOf(t, exits, pid)[pid]
}

// exitsOf waits for the exits of some processes, in whatever order they are told. The tracker
// waits a second with some of them: together they take no longer than one.
func exitsOf(t testing.TB, exits <-chan Exit, pids ...uint32) map[uint32]Exit {
	t.Helper()
	told := map[uint32]Exit{}
	timeout := time.After(hosttest.Patience)
	for slices.ContainsFunc(pids, func(pid uint32) bool { return told[pid].PID == 0 }) {
		select {
		case e := <-exits:
			if slices.Contains(pids, e.PID) {
				told[e.PID] = e
			}
		case <-timeout:
			require.FailNow(t, "no exit", "of one of the processes %d", pids)
		}
	}
	return told
}

func TestExitsOfRanksCarryHowTheyEnded(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	startChild(t, "wait", "RANK=0", "WORLD_SIZE=8", "JOB_ID=job-1") // so its parent is a launcher
	environ := []string{"PATH=/bin", "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "JOB_ID=job-1", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "TORCHELASTIC_RESTART_COUNT=1"}

	for name, tc := range map[string]struct {
		mode         string
		code, signal int
	}{
		"killed by SIGABRT": {mode: "abort", signal: 6},
		"returns 7":         {mode: "exit7", code: 7},
		"returns 0":         {mode: "exit0"},
		"its leader first":  {mode: "leaderFirst", code: 9},
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
			require.True(t, p.Ended)
			p.Ended = false
			require.Equal(t, e.Process, p)
			require.Contains(t, []string{"user 0", unknownDomain}, p.Domain, "it may have been gone when it was asked for")
			require.Equal(t, Process{
				PID: c.pid(), ParentPID: p.ParentPID, StartTime: p.StartTime, StartNS: p.StartNS, Comm: "exe", CgroupPath: p.CgroupPath,
				ContainerID: p.ContainerID, PodUID: p.PodUID, Domain: p.Domain,
				Rank: 3, LocalRank: 1, WorldSize: 8, JobID: "job-1", MasterAddr: "10.0.0.1", MasterPort: 29500,
				Attempt: 2, RankPID: c.pid(), RankStart: p.StartTime,
			}, p)
			require.Zero(t, p.StartNS%uint64(tickNS))
			require.NotZero(t, p.StartNS)
		})
	}
	require.Zero(t, tracker.Stats().Dropped)
	require.Equal(t, []probe.Attempt{{Rung: RungSignals, Outcome: probe.OK, Fired: true}}, tracker.Report().Attempts)
}

func TestRanksThatRanBeforeOpenAreKnown(t *testing.T) {
	privtest.Require(t)
	c := startChild(t, "abort", "RANK=5", "WORLD_SIZE=8", "SLURM_JOB_ID=77")
	c.ready(t) // before it has its program, its environment can be empty
	plain := startChild(t, "wait")
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)

	p, known := tracker.Lookup(c.pid(), 0, time.Now())
	require.True(t, known)
	require.Equal(t, []any{5, 8, "77", false}, []any{p.Rank, p.WorldSize, p.JobID, p.Inherited})
	require.EqualValues(t, os.Getpid(), p.ParentPID)
	require.WithinDuration(t, time.Now(), p.StartTime, hosttest.Patience)

	plain.finish()
	c.finish()
	require.Equal(t, 6, exitOf(t, exits, c.pid()).Signal)
	require.Empty(t, exits, "the exit of a process that is no rank is nobody's business")
	p, known = tracker.Lookup(plain.pid(), 0, time.Now())
	require.True(t, known)
	require.False(t, p.IsRank())
}

func TestChildrenOfARankCarryItsIdentity(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	forks := startChild(t, "fork", "RANK=2", "WORLD_SIZE=4", "JOB_ID=job-2")
	execs := startChild(t, "bareChild", "RANK=2", "WORLD_SIZE=4", "JOB_ID=job-2")
	forked, bare := forks.printed(t), execs.printed(t)
	told := exitsOf(t, exits, forked, bare)
	for name, tc := range map[string]struct {
		worker, parent uint32
		code           int
	}{
		"forked without a program":          {forked, forks.pid(), 5},
		"a program with a bare environment": {bare, execs.pid(), 7},
	} {
		e := told[tc.worker]
		require.Equal(t, []any{2, "job-2", true, tc.code, "exe"}, []any{e.Rank, e.JobID, e.Inherited, e.Code, e.Comm}, name)
		require.Equal(t, tc.parent, e.ParentPID, name)
	}
	forks.finish()
	execs.finish()
	for _, e := range exitsOf(t, exits, forks.pid(), execs.pid()) {
		require.False(t, e.Inherited)
	}
}

// A process that ends at once is known: its environment came with its start.
func TestShortestLivedRanksAreKnown(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	const many = 50
	job := "short-" + strconv.Itoa(os.Getpid()) // others may run jobs here
	for i := range many {
		c := startChild(t, "exit0", "RANK="+strconv.Itoa(i), "WORLD_SIZE=50", "JOB_ID="+job)
		c.finish()
	}
	ranks := map[int]bool{}
	ended(t, tracker, exits, job, many, func(e Exit) { ranks[e.Rank] = true })
	require.Len(t, ranks, many)
}

// Kernels that preempt within tracepoints run no program for some of the threads that end
// at once on one CPU.
func TestNoEndIsMissedWhereThreadsEndAtOnce(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	job := "crowd-" + strconv.Itoa(os.Getpid())
	const many = 16
	for range 2 {
		var children []*child
		for i := range many {
			children = append(children, startChild(t, "crowd", "RANK="+strconv.Itoa(i), "WORLD_SIZE="+strconv.Itoa(many), "JOB_ID="+job))
		}
		for _, c := range children {
			c.ready(t)
		}
		for _, c := range children {
			_ = c.stdin.Close()
		}
		for _, c := range children {
			c.finish()
		}
		told := map[uint32]bool{}
		ended(t, tracker, exits, job, many, func(e Exit) { told[e.PID] = e.Code == 7 })
		for _, c := range children {
			require.True(t, told[c.pid()])
		}
	}
}

// ended takes so many exits of a job.
func ended(t *testing.T, tracker *Tracker, exits <-chan Exit, job string, many int, take func(Exit)) {
	t.Helper()
	late := time.After(hosttest.Patience)
	for seen := 0; seen < many; {
		select {
		case e := <-exits:
			if e.JobID == job {
				seen++
				take(e)
			}
		case <-late:
			require.FailNow(t, "ends of ranks are missed", "%d of %d were told; %+v, %+v", seen, many, tracker.Stats(), tracker.Counters())
		}
	}
}

// Nobody wakes the reader for a start; who asks must not be told that there was none.
func TestLookupWaitsForWhatIsInTheRing(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	for range 20 {
		c := startChild(t, "exit0", "RANK=1", "WORLD_SIZE=2")
		c.finish() // it is dead, /proc does not help
		asked := time.Now()
		p, known := tracker.Lookup(c.pid(), 0, asked)
		for at := asked; !known && time.Since(at) >= catchingUp; { // the machine gave the reader no turn meanwhile
			at = time.Now()
			p, known = tracker.Lookup(c.pid(), 0, asked)
		}
		require.True(t, known)
		require.Equal(t, 1, p.Rank)
	}
}

func TestLongEnvironmentsOfShortLivedRanksAreKnown(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	junk := func(bytes int) (environ []string) {
		for range bytes / 100 {
			environ = append(environ, "JUNK="+strings.Repeat("x", 94))
		}
		return environ
	}
	ranks, pids := map[string]uint32{}, []uint32{}
	for name, environ := range map[string][]string{
		"fits the small record":          append(junk(3000), "RANK=1", "WORLD_SIZE=2", "JOB_ID=small"),
		"fits the large record":          append([]string{"RANK=1", "WORLD_SIZE=2", "JOB_ID=large"}, junk(30000)...),
		"fits none, the rank at the end": append(junk(100000), "RANK=1", "WORLD_SIZE=2", "JOB_ID=none"),
	} {
		c := startChild(t, "exit0", environ...)
		c.finish()
		ranks[name], pids = c.pid(), append(pids, c.pid())
	}
	told := exitsOf(t, exits, pids...)
	for name, pid := range ranks {
		require.Equal(t, 1, told[pid].Rank, name)
	}
	// One that fits none, with the rank at its start, is read from /proc while it lives.
	c := startChild(t, "wait", append([]string{"RANK=1", "WORLD_SIZE=2"}, junk(100000)...)...)
	require.Eventually(t, func() bool {
		p, _ := tracker.Lookup(c.pid(), 0, time.Now())
		return p.Rank == 1 && p.WorldSize == 2
	}, hosttest.Patience, time.Millisecond)
	c.finish()
	require.Equal(t, 1, exitOf(t, exits, c.pid()).Rank)
}

func TestVictimOfTheOOMKillerIsMarked(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	drill, err := oomkill.Drill(context.Background(), oomkill.DrillOptions{Env: []string{"RANK=1", "WORLD_SIZE=2"}})
	require.NoError(t, err)
	e := exitOf(t, exits, drill.PID)
	require.Equal(t, []any{1, 9, true}, []any{e.Rank, e.Signal, e.OOMVictim})
	require.Equal(t, Sender{Relation: RelationKernel}, e.Signalled.Sender, "whoever needed the memory did not send it")
}

// A ring of 8 KiB holds one start, of 16 KiB no more than three: the others are dropped while
// nobody reads.
func TestFullRingIsCountedAndHealed(t *testing.T) {
	privtest.Require(t)
	proc := newReader("/proc")
	proc.WithPatience(hosttest.Patience)
	ring := max(8<<10, os.Getpagesize())
	source, fired, err := openRing(proc, sizes{ringBytes: uint32(ring)}, bpfProgExecEnviron, bpfProgExitStatus)
	require.NoError(t, err)
	require.True(t, fired)
	opts, err := Options{}.withDefaults()
	require.NoError(t, err)
	tracker := newTracker(opts, source, proc, probe.Report{})
	tracker.healing = 0
	tracker.scan()
	starts := ring/(4<<10) + 1
	for range starts {
		startChild(t, "wait", "RANK=1", "WORLD_SIZE=2")
	}
	// A started child has closed its pipes, which the kernel does before it traces the exec.
	require.Eventually(t, func() bool { return tracker.Stats().Dropped >= 2 }, hosttest.Patience, time.Millisecond)
	go tracker.exits.run()
	go tracker.run()
	t.Cleanup(func() { require.NoError(t, tracker.Close()) })
	require.Eventually(t, func() bool { return tracker.Counters().Ranks >= starts }, hosttest.Patience, 10*time.Millisecond)
}

// A user whose programs fail without end hides the end of nobody else's rank, also while
// nobody reads.
func TestAFloodOfEndsHidesNoRankOfAnother(t *testing.T) {
	privtest.Require(t)
	proc := newReader("/proc")
	proc.WithPatience(hosttest.Patience)
	// Much larger than a start: those of others on the machine may go beyond their part by one
	// for each processor.
	source, fired, err := openRing(proc, sizes{ringBytes: 256 << 10}, bpfProgExecEnviron, bpfProgExitStatus)
	require.NoError(t, err)
	require.True(t, fired)
	opts, err := Options{}.withDefaults()
	require.NoError(t, err)
	tracker := newTracker(opts, source, proc, probe.Report{})
	as := func(user uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	// A user of its own: what else runs as root on the machine shares root's part.
	rank := startChildAs(t, as(23456), "abort", "RANK=1", "WORLD_SIZE=2")
	rank.ready(t)
	tracker.scan()
	require.True(t, tracker.knows(rank.pid()))
	exits := watch(t, tracker)

	const fails = "i=0; while [ $i -lt 4000 ]; do (exit 3); i=$((i+1)); done"
	flood := exec.CommandContext(t.Context(), "sh", "-c", fails)
	flood.SysProcAttr = as(12345)
	require.NoError(t, flood.Run())
	for range 20 { // starts leave room to ends
		startChild(t, "exit0", "JUNK="+strings.Repeat("x", 3000)).finish()
	}
	rank.finish()

	go tracker.exits.run()
	go tracker.run()
	t.Cleanup(func() { require.NoError(t, tracker.Close()) })
	require.Equal(t, 6, exitOf(t, exits, rank.pid()).Signal)
	require.Positive(t, tracker.Stats().Dropped)
}

// Who starts programs without end hides the start of nobody else's rank, also while nobody
// reads.
func TestAFloodOfStartsHidesNoRankOfAnother(t *testing.T) {
	privtest.Require(t)
	as := func(user uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	for name, tc := range map[string]struct {
		programs  []string
		ringBytes uint32
		starts    int // more than the ring has room for
	}{
		RungTracing: {[]string{bpfProgExecEnviron, bpfProgExitStatus}, 1 << 20, 250},
		RungNotice:  {[]string{bpfProgExecNotice}, uint32(os.Getpagesize()), 2 * os.Getpagesize() / 72},
	} {
		t.Run(name, func(t *testing.T) {
			// A tenant and a user of its own: what else runs on the machine shares the part of
			// others.
			rank := startChildAs(t, as(23456), "becomesRank")
			remove, err := oomkill.Confine(int(rank.pid()), 1<<30)
			require.NoError(t, err)
			t.Cleanup(func() {
				_ = rank.Process.Kill()
				_ = rank.Wait()
				require.NoError(t, remove())
			})
			proc := newReader("/proc")
			proc.WithPatience(hosttest.Patience)
			source, fired, err := openRing(proc, sizes{ringBytes: tc.ringBytes}, tc.programs...)
			require.NoError(t, err)
			require.True(t, fired)
			opts, err := Options{}.withDefaults()
			require.NoError(t, err)
			tracker := newTracker(opts, source, proc, probe.Report{})
			tracker.healing = time.Hour // what was dropped is found in /proc by nobody
			tracker.scan()
			require.NoError(t, startsItself(t, as(12345), tc.starts))
			_, err = fmt.Fprintln(rank.stdin)
			require.NoError(t, err)
			rank.printed(t) // it has begun, and nobody has read yet
			require.Positive(t, tracker.Stats().Dropped)

			go tracker.exits.run()
			go tracker.run()
			t.Cleanup(func() { require.NoError(t, tracker.Close()) })
			require.Eventually(t, func() bool { return tracker.knows(rank.pid()) }, hosttest.Patience, 10*time.Millisecond)
		})
	}
}

// startsItself runs one process that starts a program again and again and has no end of its own
// before the last.
func startsItself(t *testing.T, as *syscall.SysProcAttr, times int) error {
	t.Helper()
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	c.SysProcAttr = as
	c.Env = []string{childMode + "=again", fmt.Sprint("TIMES=", times)}
	return c.Run()
}

func TestEveryRungKnowsALivingRank(t *testing.T) {
	privtest.Require(t)
	for rung, hint := range map[string]string{
		RungSignals: "", RungTracing: "exits do not tell who sent the signal", RungNotice: "without kernel BTF no exits are reported", RungScan: "short ones stay unknown and no exits are reported",
	} {
		t.Run(rung, func(t *testing.T) {
			tracker := openTracker(t, Options{Rung: rung, ScanInterval: time.Nanosecond})
			exits := watch(t, tracker)
			report := tracker.Report()
			require.Equal(t, []any{Name, rung, 1}, []any{report.Probe, report.Rung, len(report.Attempts)})
			require.True(t, report.Attempts[0].Fired)
			require.Contains(t, report.Attempts[0].Hint, hint)
			require.Equal(t, hint == "", report.Attempts[0].Hint == "")

			c := startChild(t, "abort", "RANK=1", "WORLD_SIZE=2")
			require.Eventually(t, func() bool { return tracker.knows(c.pid()) }, hosttest.Patience, time.Millisecond)
			c.finish()
			p, known := tracker.Lookup(c.pid(), 0, time.Now())
			require.True(t, known, "after its death")
			require.Equal(t, 1, p.Rank)
			if rung == RungSignals || rung == RungTracing {
				require.Equal(t, 6, exitOf(t, exits, c.pid()).Signal)
			}
		})
	}
}

// knows looks without reading /proc.
func (t *Tracker) knows(pid uint32) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.table.at(pid, bootNow())
	return r != nil && r.IsRank()
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	_, err := Open(Options{Retention: -1})
	require.ErrorContains(t, err, "use 0 for the default")
	_, err = Open(Options{Rung: "kprobe/x"})
	require.ErrorContains(t, err, `unknown rung "kprobe/x": use one of tp_btf/signal_generate, tp_btf/sched_process_exec, raw_tp/sched_process_exec, procfs/scan`)
	_, report, err := Try(Options{Rung: RungScan, ProcRoot: t.TempDir()})
	require.ErrorContains(t, err, "mount the host's /proc")
	require.Equal(t, probe.Broken, report.Attempts[0].Outcome)
}

func TestProcRootComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOST_PROC", "/nowhere")
	_, err := Open(Options{Rung: RungScan})
	require.ErrorContains(t, err, "/nowhere")
	opts, err := Options{ProcRoot: "/else"}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, "/else", opts.ProcRoot)
}
