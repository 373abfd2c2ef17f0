//go:build linux

package acceptance

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/standin"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// pause is twice as long as an agent waits for a rank at rest.
const pause = 7 * time.Second

// begins is within what a rank begins to do what it was told, and its child has its program.
const begins = time.Second

// pausingJob is a job that pauses and hangs in turn, and what was said of it.
type pausingJob struct {
	*standin.Job
	agent
	name  string
	slow  *hangfs.FS // answers each request late
	said  int        // verdicts that are accounted for
	frost *hosttest.Freezer
	cpu   *hosttest.CPUCgroup // of rank 2
	disk  *hosttest.CPUCgroup // of the daemon of slow
}

// healthy lets rank 2 pause, and expects no fault.
func (j *pausingJob) healthy(t *testing.T, what string, order func() error) {
	t.Helper()
	before := j.Steps(2)
	t.Logf("%s at %v, after %d steps", what, time.Now().UTC().Format(time.TimeOnly+".000"), before)
	require.NoError(t, order(), what)
	require.Eventually(t, func() bool { return j.Steps(2) >= before+5 }, hosttest.Patience, 20*time.Millisecond, "%s: the job does not go on: %s", what, j.Error(2))
	for _, v := range j.news(t) {
		require.False(t, v.Severity == verdict.Error && v.Status != verdict.Resolved, "%s: %s\n%s", what, v.Headline, j.story(t))
	}
}

// story is all that was said of the job.
func (j *pausingJob) story(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, v := range j.verdicts(t) {
		if v.Culprit["job"] == j.name {
			fmt.Fprintf(&b, "%v %s revision %d %s: %s\n", v.Updated.Format(time.TimeOnly+".000"), v.ID, v.Revision, v.Status, v.Headline)
			for _, e := range v.Evidence {
				fmt.Fprintf(&b, "\t%v %s %s\n", e.Time.Format(time.TimeOnly+".000"), e.Name, e.Shows)
			}
		}
	}
	return b.String()
}

// starved is healthy while somebody has hardly a CPU: a turn every few seconds, however idle the machine.
func (j *pausingJob) starved(t *testing.T, what string, who *hosttest.CPUCgroup, order func() error) {
	t.Helper()
	j.healthy(t, what, func() error {
		before := j.Obeyed(2)
		if err := order(); err != nil {
			return err
		}
		require.Eventually(t, func() bool { return j.Obeyed(2) > before }, hosttest.Patience, 20*time.Millisecond)
		time.Sleep(begins)
		if err := who.Starve(); err != nil {
			return err
		}
		time.Sleep(pause)
		return who.Release()
	})
}

// news are the verdicts of the job since it was last asked.
func (j *pausingJob) news(t *testing.T) []verdict.Verdict {
	t.Helper()
	all := j.verdicts(t)
	fresh := all[min(j.said, len(all)):]
	j.said = len(all)
	var mine []verdict.Verdict
	for _, v := range fresh {
		if v.Culprit["job"] == j.name {
			mine = append(mine, v)
		}
	}
	return mine
}

// hangs holds rank 2, and expects that it is named as it is held, and cleared.
func (j *pausingJob) hangs(t *testing.T, held, words string, hold, release func() error) {
	t.Helper()
	made := cause(t, "ncclsock", held)
	require.NoError(t, hold())
	named := j.awaitNews(t, held+" rank", func(v verdict.Verdict) bool { return v.Severity == verdict.Error && v.Status != verdict.Resolved })
	made.named()
	require.Equal(t, "2", named.Culprit["rank"], named.Headline)
	if held != "asleep" { // silent, or not_reading where the others had sent it something
		require.Equal(t, held, named.Culprit["held"], "%s %s, revision %d: %s", named.Status, named.ID, named.Revision, named.Headline)
	}
	require.Contains(t, named.Headline, words)
	t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), named.Headline)
	require.NoError(t, release())
	j.awaitNews(t, "its end", func(v verdict.Verdict) bool { return v.ID == named.ID && v.Status == verdict.Resolved })
	before := j.Steps(2)
	require.Eventually(t, func() bool { return j.Steps(2) >= before+5 }, hosttest.Patience, 20*time.Millisecond, "the job does not go on")
	for _, v := range j.news(t) { // a rank that gets its CPU back reads what stood, sleeps on, and is told again
		require.True(t, v.Severity != verdict.Error || v.Culprit["rank"] == "2", "%s\n%s", v.Headline, j.story(t))
	}
}

// awaitNews returns the next verdict of the job that matches.
func (j *pausingJob) awaitNews(t *testing.T, what string, match func(verdict.Verdict) bool) verdict.Verdict {
	t.Helper()
	var found *verdict.Verdict
	require.Eventually(t, func() bool {
		for _, v := range j.news(t) {
			if found == nil && match(v) {
				found = &v
			}
		}
		return found != nil
	}, hosttest.Patience, 20*time.Millisecond, "no verdict: %s", what)
	return *found
}

// TestPausesAreNoHangsAndHangsAreNoPauses: a job makes healthy pauses of each kind and hangs
// in each way, again and again. No pause is told as a fault, and each hang is named, however
// often it came before.
func TestPausesAreNoHangsAndHangsAreNoPauses(t *testing.T) {
	privtest.Require(t)
	if testing.Short() || inTestMachine(t) {
		t.Skip("slow: it waits for pauses and hangs of jobs")
	}
	t.Parallel()
	a := startAgent(t, t.TempDir())
	for _, library := range []standin.Library{standin.NCCL, standin.Gloo} {
		t.Run(string(library), func(t *testing.T) {
			t.Parallel()
			name := "pauses-" + string(library)
			disk, _ := hosttest.NewCPUCgroup(t) // before what is in it, as it outlives that
			slow, err := hangfs.Start(hangfs.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, slow.Close()) })
			frost, freezes := hosttest.NewFreezer(t)
			cpu, limits := hosttest.NewCPUCgroup(t)
			// Phases of many ticks of the kernel's clock: ranks that fall silent within one are tied.
			job := a.startKnownJob(t, standin.Options{Library: library, JobID: name, Phase: 200 * time.Millisecond})
			j := &pausingJob{Job: job, agent: a, name: name, slow: slow}
			if freezes {
				frost.Add(t, job.PID(2))
				j.frost = &frost
			}
			if limits {
				cpu.Add(t, job.PID(2))
				disk.Add(t, uint32(slow.PID())) //nolint:gosec // a pid
				j.cpu, j.disk = cpu, disk
			}
			require.NoError(t, slow.Delay(100*time.Millisecond))
			if limits {
				j.hungry(t)
			}
			for range 1 + *trials {
				j.round(t)
			}
		})
	}
}

// round is each pause and each hang, once.
func (j *pausingJob) round(t *testing.T) {
	t.Helper()
	j.healthy(t, "a child computes", func() error { return j.ComputeInChild(2, pause) })
	j.healthy(t, "a thread computes", func() error { return j.ComputeInThread(2, pause) })
	j.healthy(t, "a slow write that is answered", func() error { return j.WriteFile(2, 8<<20, j.slow.Path(hangfs.Cached)) })
	j.hangs(t, "asleep", "asleep in futex", func() error { return j.Compute(2, 2*pause) }, func() error { return nil })
	j.hangs(t, "stopped", "stopped", func() error { return j.Signal(2, syscall.SIGSTOP) }, func() error { return j.Signal(2, syscall.SIGCONT) })
	if j.frost != nil {
		j.hangs(t, "frozen", "a freezer holds its cgroup", j.frost.Freeze, j.frost.Thaw)
	}
}

// hungry is each pause, and a hang, while somebody has hardly a CPU.
func (j *pausingJob) hungry(t *testing.T) {
	t.Helper()
	j.starved(t, "a child computes, and has hardly a CPU", j.cpu, func() error { return j.ComputeInChild(2, 2*pause) })
	j.starved(t, "a thread computes, and has hardly a CPU", j.cpu, func() error { return j.ComputeInThread(2, 2*pause) })
	j.starved(t, "a slow write that is answered, to who has hardly a CPU", j.cpu, func() error { return j.WriteFile(2, 16<<20, j.slow.Path(hangfs.Cached)) })
	j.starved(t, "a slow write, whose daemon has hardly a CPU", j.disk, func() error { return j.WriteFile(2, 8<<20, j.slow.Path(hangfs.Cached)) })
	// Nobody knows that it rests before each of its threads has had a turn.
	j.hangs(t, "asleep", "asleep in futex", func() error { return errors.Join(j.Compute(2, 5*pause), j.cpu.Starve()) }, j.cpu.Release)
}
