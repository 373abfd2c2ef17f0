//go:build linux && (amd64 || arm64)

package acceptance

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// pythonJob is a job in Python without a socket and without a library that is known. A rank
// waits in its collective until all have come and the test lets them go on.
type pythonJob struct {
	ranks   []*pythonRank
	stop    chan struct{}
	running sync.WaitGroup
}

type pythonRank struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	comes chan struct{} // into the collective
	in    bool          // it is
}

// enters waits until the rank is in its collective.
func (r *pythonRank) enters(stop <-chan struct{}) bool {
	if !r.in {
		select {
		case <-stop:
			return false
		case <-r.comes:
			r.in = true
		}
	}
	return true
}

// goes lets it leave with an order.
func (r *pythonRank) goes(order string) {
	r.in = false
	_, _ = io.WriteString(r.stdin, order+"\n")
}

// The file of the collective is named as PyTorch's: by that a wait in it is known.
const (
	pythonCollective = `import sys

def all_reduce():
    print(flush=True)
    return sys.stdin.readline()
`
	pythonProgram = `import time
from torch.distributed.distributed_c10d import all_reduce

def evaluate(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(10_000))

def forward(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100_000))

def save_checkpoint(seconds):
    time.sleep(seconds)

def main():
    while True:
        order = all_reduce().split()
        if not order:
            return
        if order[0] == "forward":
            forward(float(order[1]))
        if order[0] == "evaluate":
            evaluate(float(order[1]))
        if order[0] == "save":
            save_checkpoint(float(order[1]))
        time.sleep(0.01)

main()
`
)

func startPythonJob(t *testing.T, name string, size int) *pythonJob {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"job.py": pythonProgram, "torch/__init__.py": "", "torch/distributed/__init__.py": "", "torch/distributed/distributed_c10d.py": pythonCollective} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	j := &pythonJob{}
	for rank := range size {
		cmd := exec.Command("/usr/bin/python3", filepath.Join(dir, "job.py"))
		cmd.Env = append(os.Environ(), fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", size), "JOB_ID="+name)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start(), "install python3")
		r := &pythonRank{cmd: cmd, stdin: stdin, comes: make(chan struct{}, 1)}
		lines := bufio.NewScanner(stdout)
		go func() {
			for lines.Scan() {
				r.comes <- struct{}{} // one order, one line
			}
		}()
		t.Cleanup(func() {
			_ = r.stdin.Close()
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		})
		j.ranks = append(j.ranks, r)
	}
	return j
}

// run lets all ranks make steps until halt, ten a second at most. The first has an order of its own.
func (j *pythonJob) run(first string) {
	j.stop = make(chan struct{})
	j.running.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, r := range j.ranks {
				if !r.enters(j.stop) {
					return
				}
			}
			select {
			case <-j.stop:
				return
			case <-tick.C:
			}
			for i, r := range j.ranks {
				r.goes([]string{first, "step"}[min(i, 1)])
			}
		}
	})
}

func (j *pythonJob) halt() {
	close(j.stop)
	j.running.Wait()
}

// TestARankIsNamedByStacksAlone: no socket of the job is seen, and no library that it calls.
func TestARankIsNamedByStacksAlone(t *testing.T) {
	privtest.Require(t)
	if testing.Short() || inTestMachine(t) {
		t.Skip("slow: it waits until the job is known")
	}
	t.Parallel()
	a := startAgent(t, t.TempDir(), "--set=receivers.stacks.look_interval=1s")
	job := startPythonJob(t, "stands", 3)
	of := func() (all []verdict.Verdict) {
		for _, v := range a.verdicts(t) {
			if v.Culprit["job"] == "stands" {
				all = append(all, v)
			}
		}
		return all
	}
	job.run("step")
	time.Sleep(25 * time.Second)
	job.halt()
	require.True(t, job.ranks[0].enters(nil))
	job.ranks[0].goes("evaluate 8")
	time.Sleep(9 * time.Second)
	require.Empty(t, of(), "rank 0 evaluates")
	job.run("step")
	time.Sleep(3 * time.Second)

	job.halt()
	began := time.Now()
	require.True(t, job.ranks[1].enters(nil))
	job.ranks[1].goes("save 30")
	v := a.await(t, "the rank outside", about("nccl_hang", "job", "stands"))
	t.Logf("named after %v: %s", time.Since(began).Round(time.Millisecond), v.Headline)
	require.Equal(t, "1", v.Culprit["rank"])
	require.Equal(t, verdict.Partial, v.Confidence)
	require.Regexp(t, `^2 ranks wait in a collective for rank 1 on \S+: its main thread is asleep in \S+, at 0 % CPU, at job.py:\d+ in save_checkpoint < main$`, v.Headline)
	time.Sleep(max(0, 30*time.Second-time.Since(began)))
	job.run("step")
	a.await(t, "its end", func(w verdict.Verdict) bool { return w.ID == v.ID && w.Status == verdict.Resolved })
	job.halt()
	ids := map[string]bool{}
	for _, v := range of() {
		ids[v.IncidentID] = true
	}
	require.Len(t, ids, 1, strings.TrimSpace(fmt.Sprint(of())))
}

// TestTheSlowestRankOfAHealthyJobIsNotNamed: at nearly every look it does the same, and the others
// wait for it, each time in another collective.
func TestTheSlowestRankOfAHealthyJobIsNotNamed(t *testing.T) {
	privtest.Require(t)
	if testing.Short() || inTestMachine(t) {
		t.Skip("slow: it waits until the job is known")
	}
	t.Parallel()
	a := startAgent(t, t.TempDir(), "--set=receivers.stacks.look_interval=1s", "--set=receivers.stacks.patience=5s")
	jobs := map[string]string{"computes": "forward 0.3", "sleeps": "save 0.4", "sleeps-long": "save 4"}
	for name, order := range jobs {
		job := startPythonJob(t, name, 3)
		job.run(order)
		defer job.halt()
	}
	time.Sleep(75 * time.Second)
	for _, v := range a.verdicts(t) {
		require.NotContains(t, jobs, v.Culprit["job"], v.Headline)
	}
}
