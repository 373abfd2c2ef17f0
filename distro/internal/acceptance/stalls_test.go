//go:build linux

package acceptance

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/standin"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var (
	trials = flag.Int("trials", 1, "how often each fault of a job is made")
	soak   = flag.Duration("soak", 20*time.Second, "how long a healthy job is watched")
)

// nameAStuckMount stops the daemon of a mount that a rank reads: it is named while it
// is stuck.
func nameAStuckMount(t *testing.T, a agent) {
	d, err := fusefault.StartDrill(fusefault.DrillOptions{Env: []string{"RANK=6", "WORLD_SIZE=8", "JOB_ID=mounts"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	stuck := cause(t, "fusefault", "fuse")
	stuck.cause = d.Began
	v := a.await(t, "the stuck mount", about("fuse_stall", "device", fmt.Sprintf("%d:%d", d.Device.Major, d.Device.Minor)))
	stuck.named()
	require.Equal(t, verdict.RootCause, v.Role)
	require.Equal(t, verdict.Ranks{6}, v.BlastRadius)
	said := fmt.Sprint(v)
	for _, want := range []string{d.MountPoint, strconv.Itoa(int(d.DaemonPID)), "stopped"} {
		require.Contains(t, said, want)
	}
	require.NoError(t, d.Release())
	a.await(t, "its end", func(v verdict.Verdict) bool { return v.Pattern == "fuse_stall" && v.Status == verdict.Resolved })
}

// startKnownJob is startJob, and waits until the agent knows the pauses of the job:
// until then only what is stopped, dead or unreachable counts as a stall. Data moves
// between any two snapshots of a job that computes for milliseconds.
func (a agent) startKnownJob(t *testing.T, o standin.Options) *standin.Job {
	t.Helper()
	job := startJob(t, o)
	known := a.snapshots(t) + learning + 2 // the first and the last may see half of it
	require.Eventually(t, func() bool { return a.snapshots(t) >= known }, hosttest.Patience, 20*time.Millisecond, "the agent takes no snapshots")
	return job
}

// learning is how many snapshots with data that moved make the pauses of a job known
// (receivers/ncclsockreceiver/README.md).
const learning = 10

var snapshotCount = regexp.MustCompile(`(?m)^otelcol_receiver_ncclsock_snapshots(?:_total)?\{[^}]*outcome="ok"[^}]*\} ([0-9]+)$`)

// snapshots is how many the agent has taken of all sockets.
func (a agent) snapshots(t *testing.T) int {
	t.Helper()
	found := snapshotCount.FindStringSubmatch(fetch(a.metrics))
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// startJob starts a stand-in job and waits until it works.
func startJob(t *testing.T, o standin.Options) *standin.Job {
	t.Helper()
	job, err := standin.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, job.Close()) })
	require.Eventually(t, func() bool { return job.Steps(0) > 5 }, hosttest.Patience, 10*time.Millisecond, "the job does not get on: %s", job.Error(0))
	return job
}

// inJob matches verdicts of a pattern that name a rank of a job.
func inJob(pattern, job, rank string) func(verdict.Verdict) bool {
	return func(v verdict.Verdict) bool {
		return v.Pattern == pattern && v.Culprit["job"] == job && v.Culprit["rank"] == rank
	}
}

// nameAStoppedRank stops one rank of four; the three others wait for it in a circle.
func nameAStoppedRank(t *testing.T, a agent) {
	job := startJob(t, standin.Options{JobID: "ring", Phase: 20 * time.Millisecond})
	stalled := cause(t, "ncclsock", "socket")
	require.NoError(t, job.Signal(2, syscall.SIGSTOP))
	v := a.await(t, "the stopped rank", inJob("nccl_socket_stall", "ring", "2"))
	stalled.named()
	require.Equal(t, verdict.RootCause, v.Role)
	require.Contains(t, fmt.Sprint(v), "stopped")
	require.NoError(t, job.Signal(2, syscall.SIGCONT))
	a.await(t, "its end", func(v verdict.Verdict) bool {
		return inJob("nccl_socket_stall", "ring", "2")(v) && v.Status == verdict.Resolved
	})
}

// inTestMachine reports that this machine is one of vmtests, where each probe has
// one fault: under software emulation the whole table takes too long.
func inTestMachine(t *testing.T) bool {
	t.Helper()
	if name, err := os.Hostname(); err != nil || name != "vmtest" {
		return false
	}
	t.Log("made on the machine that runs make host")
	return true
}

// jobFault is something that happens to rank 2 of four, and what must be said.
type jobFault struct {
	name string
	make func(t *testing.T, job *standin.Job)
	// named matches the verdict that says it.
	pattern, rank string
	says          string
}

func jobFaults() []jobFault {
	must := func(f func(job *standin.Job) error) func(*testing.T, *standin.Job) {
		return func(t *testing.T, job *standin.Job) { require.NoError(t, f(job)) }
	}
	return []jobFault{
		{"stopped", must(func(j *standin.Job) error { return j.Signal(2, syscall.SIGSTOP) }), "nccl_socket_stall", "2", "stopped"},
		{"main thread asleep", must(func(j *standin.Job) error { return j.Sleep(2) }), "nccl_socket_stall", "2", ""},
		{"stops reading", must(func(j *standin.Job) error { return j.StopReading(2) }), "nccl_socket_stall", "2", ""},
		{"killed", must(func(j *standin.Job) error { return j.Signal(2, syscall.SIGKILL) }), "rank_exit", "2", "SIGKILL"},
		{"killed for want of memory", outOfMemory, "host_oom_kill", "2", "memory cgroup"},
		{"stuck in a FUSE fault", stuckInFUSE, "nccl_socket_stall", "2", "FUSE"},
	}
}

// outOfMemory lets rank 2 take more memory than its cgroup has.
func outOfMemory(t *testing.T, job *standin.Job) {
	remove, err := oomkill.Confine(int(job.PID(2)), 32<<20)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, remove()) })
	require.NoError(t, job.Grow(2))
}

// stuckInFUSE has rank 2 touch a file of a mount whose daemon is stopped.
func stuckInFUSE(t *testing.T, job *standin.Job) {
	fs, err := hangfs.Start(hangfs.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fs.Close()) })
	require.NoError(t, fs.Freeze())
	require.NoError(t, job.TouchFile(2, fs.Path(hangfs.Cached)))
}

// TestFaultsOfARankAreNamed breaks a job of each library in each way, every rank in
// a network namespace of its own.
func TestFaultsOfARankAreNamed(t *testing.T) {
	privtest.Require(t)
	if inTestMachine(t) {
		t.Skip("slow: faults of jobs, emulated")
	}
	a := startAgent(t, t.TempDir())
	for _, library := range []standin.Library{standin.NCCL, standin.Gloo} {
		for _, fault := range jobFaults() {
			for trial := range *trials {
				t.Run(fmt.Sprintf("%s %s %d", library, fault.name, trial), func(t *testing.T) {
					t.Parallel()
					name := strings.ReplaceAll(fmt.Sprintf("%s-%s-%d", library, fault.name, trial), " ", "-")
					job := a.startKnownJob(t, standin.Options{Library: library, Namespaces: true, JobID: name, Phase: 200 * time.Millisecond})
					made := cause(t, "ncclsock", fault.name)
					fault.make(t, job)
					v := a.await(t, fault.name, inJob(fault.pattern, name, fault.rank))
					made.named()
					t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
					require.Contains(t, fmt.Sprint(v), fault.says)
				})
			}
		}
	}
}

// TestAStuckMountIsTheCauseOfTheStall: the incident of a rank that hangs on a mount
// begins with the mount.
func TestAStuckMountIsTheCauseOfTheStall(t *testing.T) {
	privtest.Require(t)
	if inTestMachine(t) {
		t.Skip("slow: faults of jobs, emulated")
	}
	a := startAgent(t, t.TempDir())
	job := a.startKnownJob(t, standin.Options{Library: standin.Gloo, JobID: "mount", Phase: 20 * time.Millisecond})
	stuckInFUSE(t, job)
	stall := a.await(t, "the stall as a symptom", func(v verdict.Verdict) bool {
		return inJob("nccl_socket_stall", "mount", "2")(v) && v.Role == verdict.Symptom
	})
	root := a.await(t, "the stuck mount", func(v verdict.Verdict) bool { return v.ID == stall.RootCause })
	require.Equal(t, "fuse_stall", root.Pattern)
	require.Equal(t, root.IncidentID, stall.IncidentID)
}

// TestADeadPathNamesBothEnds drops packets one way, and both ways.
func TestADeadPathNamesBothEnds(t *testing.T) {
	privtest.Require(t)
	if inTestMachine(t) {
		t.Skip("slow: faults of jobs, emulated")
	}
	a := startAgent(t, t.TempDir())
	for name, pairs := range map[string][][2]int{"one way": {{1, 2}}, "both ways": {{1, 2}, {2, 1}}} {
		t.Run(name, func(t *testing.T) {
			jobID := "path-" + strings.ReplaceAll(name, " ", "-")
			job := startJob(t, standin.Options{Namespaces: true, JobID: jobID, Phase: 20 * time.Millisecond})
			made := cause(t, "ncclsock", "packets dropped "+name)
			for _, pair := range pairs {
				require.NoError(t, job.Drop(pair[0], pair[1]))
			}
			v := a.await(t, "the dead path", func(v verdict.Verdict) bool {
				return v.Pattern == "nccl_socket_stall" && v.Culprit["job"] == jobID
			})
			made.named()
			t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
			require.NotEmpty(t, v.Culprit["peer"], v)
			ends := map[string]bool{v.Culprit["rank"]: true, v.Culprit["peer_rank"]: true}
			require.Equal(t, map[string]bool{"1": true, "2": true}, ends, v)
		})
	}
}

// TestAHealthyJobIsNotAccused watches jobs that compute, wait and move slowly, as
// long as -soak says.
func TestAHealthyJobIsNotAccused(t *testing.T) {
	privtest.Require(t)
	if inTestMachine(t) {
		t.Skip("slow: faults of jobs, emulated")
	}
	a := startAgent(t, t.TempDir())
	for _, o := range []standin.Options{
		{JobID: "busy", Size: 2, Busy: true, Phase: 2 * time.Second},
		{JobID: "asleep", Phase: time.Second, Library: standin.Gloo},
	} {
		startJob(t, o)
	}
	slow := startJob(t, standin.Options{JobID: "slow", Phase: 20 * time.Millisecond})
	require.NoError(t, slow.Limit(1, 1<<20))
	until := time.NewTimer(*soak)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for watching := true; watching; {
		select {
		case <-until.C:
			watching = false
		case <-look.C:
		}
		for _, v := range a.verdicts(t) { // of other tests' ranks there can be some
			require.NotContains(t, []string{"busy", "asleep", "slow"}, v.Culprit["job"], v)
		}
	}
	before := slow.Steps(0)
	require.Eventually(t, func() bool { return slow.Steps(0) > before }, hosttest.Patience, 10*time.Millisecond, "the slow job stands still")
}
