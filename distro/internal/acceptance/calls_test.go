//go:build linux && (amd64 || arm64)

package acceptance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// callJob is a job whose ranks call a stand-in for NCCL, and have no socket.
type callJob struct {
	name  string
	ranks []*fakejob.Job
	id    []byte
	stop  chan struct{}
	done  sync.WaitGroup
	mu    sync.Mutex
	gone  map[int]bool // ranks that call no more
	past  uint64       // launches that communicators say they had before
	steps atomic.Int64
}

// startCallJob starts the ranks of a job, which have the library mapped.
func startCallJob(t *testing.T, name, library string, size int) *callJob {
	t.Helper()
	j := &callJob{name: name, gone: map[int]bool{}, id: make([]byte, fakejob.IDBytes)}
	copy(j.id, name)
	for rank := range size {
		l := fakejob.Library{RankOffset: rankOffset}
		job, err := l.Start(library, fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", size), "JOB_ID="+name)
		require.NoError(t, err)
		t.Cleanup(func() { _ = job.Close() }) // one that was killed says so
		j.ranks = append(j.ranks, job)
	}
	return j
}

// init has a rank make the communicator of the job.
func (j *callJob) init(t *testing.T, rank int) {
	t.Helper()
	size := int32(len(j.ranks))
	require.NoError(t, j.ranks[rank].Do(
		fakejob.Call{Function: "plant", Comm: 1, Planted: fakejob.Communicator{Hash: ncclcall.IDHash(j.id), Rank: int32(rank), Size: size, Launches: j.past}},
		fakejob.Call{Function: "ncclCommInitRank", Comm: 2, ID: j.id, Rank: int32(rank), Size: size},
	))
}

// step has all ranks call, but those that are gone.
func (j *callJob) step() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for rank, job := range j.ranks {
		if !j.gone[rank] {
			_ = job.Do(fakejob.AllReduce(1, 4096)) // one that was killed cannot
		}
	}
	j.steps.Add(1)
}

// run makes steps until halt.
func (j *callJob) run() {
	j.stop = make(chan struct{})
	j.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-j.stop:
				return
			case <-tick.C:
				j.step()
			}
		}
	})
}

// halt ends the steps. A rank that is stopped before answers none: then who waits for it waits on.
func (j *callJob) halt() {
	close(j.stop)
	j.done.Wait()
}

// stepWithout is a collective that one rank does not call.
func (j *callJob) stepWithout(rank int) {
	j.gone[rank] = true
	j.step()
	j.gone[rank] = false
}

// learned waits until the receiver knows the job: it calls for so many of its scans, and the agent
// looks again. It counts the calls of all jobs as one.
func (j *callJob) learned(t *testing.T, a agent) {
	t.Helper()
	const scans = 130
	made := j.steps.Load()
	require.Eventually(t, func() bool { return j.steps.Load()-made > scans }, hosttest.Patience, 100*time.Millisecond, "the job does not call")
	for range 2 { // one look may have begun before
		seen := callsSeen(a)
		require.Eventually(t, func() bool { return callsSeen(a) > seen }, hosttest.Patience, 100*time.Millisecond, "the calls are not seen")
	}
}

var (
	watchesNCCL = regexp.MustCompile(`otelcol_receiver_ncclcall_libraries(\{[^}]*\})? 1\n`)
	callsOf     = regexp.MustCompile(`otelcol_receiver_ncclcall_calls(?:_total)?\{[^}]*operation="AllReduce"[^}]*\} ([0-9.e+]+)\n`)
)

func callsSeen(a agent) float64 {
	found := callsOf.FindStringSubmatch(fetch(a.metrics))
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(found[1], 64)
	return n
}

// TestRanksAreNamedByTheirCalls: most of its time it waits, for the pauses of jobs and for
// thresholds, so it runs beside other tests, and its cases run beside each other. An agent watches
// all libraries of NCCL on its machine: the jobs of all cases have one, so that who watches it
// watches every job. The last case stops daemons of mounts, which is evidence about any
// job of the host: it comes when the others have ended.
func TestRanksAreNamedByTheirCalls(t *testing.T) {
	privtest.Require(t)
	if testing.Short() || inTestMachine(t) {
		t.Skip("slow: it waits until the pauses of jobs are known, and compares ranks at many collectives")
	}
	t.Parallel()
	library, err := (fakejob.Library{RankOffset: rankOffset}).Install(t.TempDir())
	require.NoError(t, err)
	var cases sync.WaitGroup
	for name, test := range map[string]func(*testing.T, string){
		"one that does not call, without a socket":       nameWhoDoesNotCall,
		"one that calls late, without a word of the job": nameWhoCallsLate,
		"by an agent that is younger than the job":       nameByAYoungerAgent,
	} {
		cases.Go(func() { t.Run(name, func(t *testing.T) { test(t, library) }) }) // they wait: at once, whatever -parallel is
	}
	cases.Wait()
	t.Run("each fault of a job without a socket", func(t *testing.T) { nameEachFaultWithoutASocket(t, library) })
}

// rankOffset is where communicators of the library have their rank.
const rankOffset = 0x1206d8

// awaitWatched waits until the agent watches the library that the jobs have.
func (a agent) awaitWatched(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return watchesNCCL.MatchString(fetch(a.metrics)) }, hosttest.Patience, 20*time.Millisecond, "nobody watches the library: %s", a.Stderr)
}

// nameWhoDoesNotCall breaks a job whose data no socket carries.
func nameWhoDoesNotCall(t *testing.T, library string) {
	a := startAgent(t, t.TempDir(), "--set=receivers.ncclcall.look_interval=1s")
	job := startCallJob(t, "calls", library, 4)
	absent := startCallJob(t, "absent", library, 4)
	a.awaitWatched(t)
	for rank := range 4 {
		job.init(t, rank)
		if rank != 3 { // it never calls ncclCommInitRank
			absent.init(t, rank)
		}
	}
	job.run()
	job.learned(t, a)
	said := func(name string) (all []verdict.Verdict) {
		for _, v := range a.verdicts(t) {
			if v.Culprit["job"] == name {
				all = append(all, v)
			}
		}
		return all
	}
	require.Empty(t, said("calls"), "a healthy job")

	// Rank 0 computes while the others have called the next: no fault.
	job.halt()
	job.stepWithout(0)
	began := time.Now()
	for time.Since(began) < 8*time.Second {
		require.NoError(t, job.ranks[0].Do(fakejob.Call{Function: "ncclCommUserRank", Comm: 1, Times: 1_000_000}))
	}
	require.NoError(t, job.ranks[0].Do(fakejob.AllReduce(1, 4096)))
	job.run()
	job.learned(t, a)
	require.Empty(t, said("calls"), "rank 0 evaluates")

	for _, fault := range []struct {
		name, says  string
		make, clear func() error
	}{
		{"asleep", "is asleep", func() error { return nil }, func() error { return nil }},
		{
			"stopped", "its process is stopped", func() error { return syscall.Kill(int(job.ranks[2].PID()), syscall.SIGSTOP) },
			func() error { return syscall.Kill(int(job.ranks[2].PID()), syscall.SIGCONT) },
		},
	} {
		before := len(said("calls"))
		job.halt()
		require.NoError(t, fault.make())
		made := cause(t, "ncclcall", fault.name)
		job.stepWithout(2)
		v := a.await(t, fault.name, func(v verdict.Verdict) bool {
			return about("nccl_hang", "job", "calls")(v) && v.Status == verdict.Open && strings.Contains(v.Headline, fault.says)
		})
		made.named()
		t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
		require.Equal(t, verdict.Full, v.Confidence, v)
		require.Equal(t, "2", v.Culprit["rank"])
		require.Contains(t, v.Headline, "has not called AllReduce #")
		require.Contains(t, v.Headline, "(4,096 x bf16), which 3 ranks have called")
		require.NoError(t, fault.clear())
		require.NoError(t, job.ranks[2].Do(fakejob.AllReduce(1, 4096)))
		job.run()
		a.await(t, "its end", func(w verdict.Verdict) bool { return w.ID == v.ID && w.Status == verdict.Resolved })
		require.Greater(t, len(said("calls")), before)
		job.learned(t, a)
	}

	job.halt()
	job.stepWithout(2)
	require.NoError(t, syscall.Kill(int(job.ranks[2].PID()), syscall.SIGKILL))
	v := a.await(t, "the killed rank", inJob("rank_exit", "calls", "2"))
	require.Equal(t, verdict.RootCause, v.Role)

	v = a.await(t, "the rank that never joins", about("nccl_hang", "job", "absent"))
	require.Equal(t, "3", v.Culprit["culprits"])
	// By then the host of a rank that never called is known or is not.
	require.Regexp(t, `rank 3( on \S+)? never called ncclCommInitRank, which 3 ranks have called`, v.Headline)
}

// together has all ranks call at once, each as late as late says.
func (j *callJob) together(late func(rank int) time.Duration) {
	var calls sync.WaitGroup
	for rank, job := range j.ranks {
		calls.Go(func() {
			time.Sleep(late(rank))
			_ = job.Do(fakejob.AllReduce(1, 4096))
		})
	}
	calls.Wait() // they leave a collective together
}

// nameWhoCallsLate slows a rank of a job that reports nothing, by so much that what else the
// machine does is little beside it: who is late lies outside of the spread of its peers.
func nameWhoCallsLate(t *testing.T, library string) {
	a := startAgent(t, t.TempDir(), "--set=receivers.ncclcall.look_interval=1s", "--set=receivers.ncclcall.arrival_interval=2s",
		"--set=processors.patterndetector.lateness=3s", "--set=processors.patterndetector.patterns.straggler.lasting=4s")
	job := startCallJob(t, "late", library, 4)
	a.awaitWatched(t)
	for rank := range job.ranks {
		job.init(t, rank)
	}
	slow := func(is func(rank, step int) bool) func(step int) func(int) time.Duration {
		return func(step int) func(int) time.Duration {
			return func(rank int) time.Duration {
				if is(rank, step) {
					return 1800 * time.Millisecond
				}
				return 300 * time.Millisecond
			}
		}
	}
	named := func(v verdict.Verdict) bool { return about("straggler", "job", "late")(v) }
	// Ranks take turns, as where each one collects garbage now and then.
	turns := slow(func(rank, step int) bool { return step%4 == rank })
	for step := range 24 {
		job.together(turns(step))
	}
	for _, v := range a.verdicts(t) {
		require.False(t, named(v), "a healthy job: %s", v.Headline)
	}
	until := func(what string, of func(step int) func(int) time.Duration, holds func(verdict.Verdict) bool) verdict.Verdict {
		for step, began := 0, time.Now(); time.Since(began) < hosttest.Patience; step++ {
			job.together(of(step))
			for _, v := range a.verdicts(t) {
				if holds(v) {
					return v
				}
			}
		}
		require.Fail(t, what)
		return verdict.Verdict{}
	}
	began := time.Now()
	v := until("nobody is named", slow(func(rank, _ int) bool { return rank == 2 }), named)
	t.Logf("named after %v: %s", time.Since(began).Round(time.Millisecond), v.Headline)
	require.Equal(t, "2", v.Culprit["rank"])
	require.Contains(t, v.Headline, "it calls its collectives ")
	if !strings.Contains(v.Headline, "; a mount of its host stalls") { // that another test makes
		require.Equal(t, verdict.Partial, v.Confidence)
	}
	until("it does not end", slow(func(int, int) bool { return false }), func(w verdict.Verdict) bool { return w.ID == v.ID && w.Status == verdict.Resolved })
}

// nameByAYoungerAgent: each rank's calls are counted from some
// call on, and what NCCL counts itself says what was before.
func nameByAYoungerAgent(t *testing.T, library string) {
	job := startCallJob(t, "older", library, 4)
	job.past = 10_000
	for rank := range job.ranks {
		job.init(t, rank)
	}
	job.run()
	a := startAgent(t, t.TempDir(), "--set=receivers.ncclcall.look_interval=1s")
	a.awaitWatched(t)
	job.learned(t, a)
	job.halt()
	job.stepWithout(2)
	v := a.await(t, "the rank that does not call", about("nccl_hang", "job", "older"))
	require.Equal(t, "2", v.Culprit["rank"], v)
	require.Equal(t, verdict.Partial, v.Confidence, v)
	require.Contains(t, v.Headline, "(4,096 x bf16), which 3 ranks have called")
	seq, err := strconv.Atoi(v.Culprit["seq"])
	require.NoError(t, err)
	require.Greater(t, seq, 10_000, v.Headline)
}
