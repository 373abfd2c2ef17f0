//go:build linux && (amd64 || arm64)

package acceptance

import (
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
// waits in its collective until the test lets all ranks go on.
type pythonJob struct {
	ranks []*pythonRank
	stop  chan struct{}
	done  sync.WaitGroup
}

type pythonRank struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// The file of the collective is named as PyTorch's: by that a wait in it is known.
const (
	pythonCollective = `import sys

def all_reduce():
    return sys.stdin.readline()
`
	pythonProgram = `import time
from torch.distributed.distributed_c10d import all_reduce

def evaluate(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(10_000))

def save_checkpoint(seconds):
    time.sleep(seconds)

def main():
    while True:
        order = all_reduce().split()
        if not order:
            return
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
		require.NoError(t, cmd.Start(), "install python3")
		r := &pythonRank{cmd, stdin}
		t.Cleanup(func() {
			_ = r.stdin.Close()
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		})
		j.ranks = append(j.ranks, r)
	}
	return j
}

// run lets all ranks make steps until halt.
func (j *pythonJob) run() {
	j.stop = make(chan struct{})
	j.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-j.stop:
				return
			case <-tick.C:
				for _, r := range j.ranks {
					_, _ = io.WriteString(r.stdin, "step\n")
				}
			}
		}
	})
}

func (j *pythonJob) halt() {
	close(j.stop)
	j.done.Wait()
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
	job.run()
	time.Sleep(25 * time.Second)
	job.halt()
	_, err := io.WriteString(job.ranks[0].stdin, "evaluate 8\n")
	require.NoError(t, err)
	time.Sleep(9 * time.Second)
	require.Empty(t, of(), "rank 0 evaluates")
	job.run()
	time.Sleep(3 * time.Second)

	job.halt()
	began := time.Now()
	_, err = io.WriteString(job.ranks[1].stdin, "save 30\n")
	require.NoError(t, err)
	v := a.await(t, "the rank outside", about("nccl_hang", "job", "stands"))
	t.Logf("named after %v: %s", time.Since(began).Round(time.Millisecond), v.Headline)
	require.Equal(t, "1", v.Culprit["rank"])
	require.Equal(t, verdict.Partial, v.Confidence)
	require.Regexp(t, `^2 ranks wait in a collective for rank 1 on \S+: its main thread is asleep in \S+, at 0 % CPU, at job.py:\d+ in save_checkpoint < main$`, v.Headline)
	time.Sleep(max(0, 30*time.Second-time.Since(began)))
	job.run()
	a.await(t, "its end", func(w verdict.Verdict) bool { return w.ID == v.ID && w.Status == verdict.Resolved })
	job.halt()
	ids := map[string]bool{}
	for _, v := range of() {
		ids[v.IncidentID] = true
	}
	require.Len(t, ids, 1, strings.TrimSpace(fmt.Sprint(of())))
}
