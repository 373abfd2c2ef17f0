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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
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

// The file of the collective is named as PyTorch's: by that a wait in it is known. A job that has a
// stand-in for NCCL calls it before it waits.
const (
	pythonCollective = `import sys
import nccl

def all_reduce():
    nccl.all_reduce()
    print(flush=True)
    return sys.stdin.readline()
`
	pythonNCCL = `import ctypes, os, struct

file, *numbers = os.environ.get("STANDIN_NCCL", "").split(":")
communicator = None

class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]

if file:
    init_at, reduce_at, group_at, rank_at, comm_hash = map(int, numbers)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    PAGE = 65536
    code = libc.mmap(None, PAGE, 5, 2, os.open(file, os.O_RDONLY), init_at // PAGE * PAGE)
    comm_init_rank = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int)(code + init_at % PAGE)
    reduce = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(code + reduce_at % PAGE)
    group_start = ctypes.CFUNCTYPE(ctypes.c_int)(code + group_at % PAGE)

def init():
    global communicator
    if file:
        rank, size = int(os.environ["STANDIN_RANK"]), int(os.environ["STANDIN_SIZE"])
        communicator = libc.mmap(None, rank_at + 2 * PAGE, 3, 0x22, -1, 0)
        planted = struct.pack("<Q7iiq8x", comm_hash, rank, size, 0, 0, 0, 0, 0, 0, 0)
        ctypes.memmove(communicator + rank_at - 8, planted, len(planted))
        comm_init_rank(None, size, UniqueId(os.environ["STANDIN_ID"].encode()), rank)

def all_reduce():
    if communicator:
        reduce(None, None, 4096, 9, 0, communicator, None)
`
	// Its file is named as PyTorch's, too. CUDA polls.
	pythonCUDA = `import ctypes

def synchronize(library):
    held = ctypes.c_int()
    library.pthread_spin_init(ctypes.byref(held), 1)
    library.pthread_spin_lock(ctypes.byref(held))
    library.pthread_spin_lock(ctypes.byref(held))
`
	pythonProgram = `import ctypes, mmap, signal, threading, time
import nccl, torch.cuda
from torch.distributed.distributed_c10d import all_reduce

def evaluate(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(10_000))

def forward(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100_000))

class Woken(Exception): pass

def wake(*_):
    raise Woken

signal.signal(signal.SIGWINCH, wake)

def save_checkpoint(seconds):
    try:
        time.sleep(seconds)
    except Woken:
        pass

def coalesce(seconds):
    nccl.group_start()
    nccl.all_reduce()
    save_checkpoint(seconds)

def deadlock(seconds):
    one, other, has = threading.Lock(), threading.Lock(), threading.Event()
    def cross():
        with other:
            has.set()
            one.acquire(timeout=seconds)
    one.acquire()
    threading.Thread(target=cross, daemon=True).start()
    has.wait()
    other.acquire(timeout=seconds)

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass

def spin_in_c(library):
    held = ctypes.c_int()
    library = ctypes.PyDLL(None) if library == "gil" else ctypes.CDLL(None)
    library.pthread_spin_init(ctypes.byref(held), 1)
    library.pthread_spin_lock(ctypes.byref(held))
    library.pthread_spin_lock(ctypes.byref(held))

def synchronize(library):
    torch.cuda.synchronize(ctypes.CDLL(None))

def hold_gil(seconds):
    ctypes.PyDLL(None).sleep(int(seconds))

# A rank opens its file while all is well.
def open_file(path):
    global opened, batch
    opened = open(path, "r+b", buffering=0)
    batch = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)

def load_batch(at):
    return batch[at]

def save_model(size):
    opened.write(bytes(size))

def fail(words):
    raise ValueError(words)

orders = {
    "forward": (forward, float), "evaluate": (evaluate, float), "save": (save_checkpoint, float), "coalesce": (coalesce, float), "deadlock": (deadlock, float), "spin": (spin, float), "spin_in_c": (spin_in_c, str), "synchronize": (synchronize, str),
    "hold_gil": (hold_gil, float), "load": (load_batch, int), "write": (save_model, int), "fail": (fail, str),
}

def main():
    while True:
        order, _, argument = all_reduce().strip().partition(" ")
        if not order:
            return
        if order == "init":
            nccl.init()
            if argument:
                open_file(argument)
        if order in orders:
            does, kind = orders[order]
            does(kind(argument))
        time.sleep(0.01)

main()
`
)

func startPythonJob(t *testing.T, name string, size int, environment ...string) *pythonJob {
	t.Helper()
	return startPythonRanks(t, name, size, func(rank int) []string {
		return append([]string{fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", size), "JOB_ID=" + name}, environment...)
	})
}

// startPythonRanks starts the ranks of a job with these environments. What they tell the stand-in for
// NCCL nothing else reads.
func startPythonRanks(t *testing.T, name string, size int, environment func(rank int) []string) *pythonJob {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"job.py": pythonProgram, "nccl.py": pythonNCCL, "torch/__init__.py": "", "torch/distributed/__init__.py": "", "torch/cuda/__init__.py": pythonCUDA, "torch/distributed/distributed_c10d.py": pythonCollective} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	j := &pythonJob{}
	for rank := range size {
		cmd := exec.Command("/usr/bin/python3", filepath.Join(dir, "job.py"))
		cmd.Env = append(os.Environ(), fmt.Sprint("STANDIN_RANK=", rank), fmt.Sprint("STANDIN_SIZE=", size), "STANDIN_ID="+name)
		cmd.Env = append(cmd.Env, environment(rank)...)
		hosttest.OnOneCPU(t, func() { j.ranks = append(j.ranks, startPythonRank(t, cmd)) })
	}
	return j
}

// startPythonRank starts one that says when it comes into its collective, a line each time.
func startPythonRank(t *testing.T, cmd *exec.Cmd) *pythonRank {
	t.Helper()
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
	return r
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

// kill ends all ranks, so that those which take CPUs take no more.
func (j *pythonJob) kill() {
	for _, r := range j.ranks {
		_ = r.cmd.Process.Kill()
	}
}

// all lets all ranks leave the collective in which they are, one of them with an order of its own;
// "" leaves it there.
func (j *pythonJob) all(t *testing.T, one int, order string) {
	t.Helper()
	for rank, r := range j.ranks {
		require.True(t, r.enters(t.Context().Done()))
		switch {
		case rank != one:
			r.goes("step")
		case order != "":
			r.goes(order)
		}
	}
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
	job.ranks[1].goes("save 600")
	v := a.await(t, "the rank outside", about("nccl_hang", "job", "stands"))
	t.Logf("named after %v: %s", time.Since(began).Round(time.Millisecond), v.Headline)
	require.Equal(t, "1", v.Culprit["rank"])
	require.Equal(t, verdict.Partial, v.Confidence)
	require.Regexp(t, `^2 ranks wait in a collective \(all_reduce\) for rank 1 on \S+: its main thread is asleep in \S+, at 0 % CPU, at job.py:\d+ in save_checkpoint < main$`, v.Headline)
	require.NoError(t, job.ranks[1].cmd.Process.Signal(syscall.SIGWINCH)) // it sleeps no more
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
	jobs := map[string]string{"computes": "forward 0.3", "computes-long": "forward 8", "sleeps": "save 0.4", "sleeps-long": "save 4"}
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
