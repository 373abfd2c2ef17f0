//go:build linux && (amd64 || arm64)

package stacks

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// engine waits as _engine_run_backward does, whose lock is of compiled code.
const engine = `
import threading
def _engine_run_backward():
    lock = threading.Lock(); lock.acquire(); lock.acquire()
`

// collectives wait for others as a hook of FSDP does.
const collectives = `
import threading
def all_reduce():
    lock = threading.Lock(); lock.acquire(); lock.acquire()
`

// trains has threads with the names and functions that its arguments say, and waits for them.
const trains = `
import ctypes, sys, threading, time
sys.path.insert(0, sys.argv[1])
from torch.autograd import graph
from torch.distributed import distributed_c10d
def sleeps(): time.sleep(1000)
def sums(): distributed_c10d.all_reduce()
def deadlocks():
    lock = threading.Lock(); lock.acquire(); lock.acquire()
def computes():
    while True: sum(range(100))
def thread(name, does):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0) # PR_SET_NAME
    begun.release()
    globals()[does]()
begun = threading.Semaphore(0)
for says in sys.argv[2:]:
    threading.Thread(target=thread, args=says.split("="), daemon=True).start()
    begun.acquire()
def train():
    print("ready", flush=True)
    graph._engine_run_backward()
train()
`

// startBackward starts a program whose main thread waits for its threads of backward, or returns
// 0 in a machine, which has no Python.
func startBackward(t *testing.T, threads ...string) (pid uint32) {
	t.Helper()
	site := filepath.Join(t.TempDir(), "site-packages")
	for file, text := range map[string]string{"torch/autograd/graph.py": engine, "torch/distributed/distributed_c10d.py": collectives, "../train.py": trains} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(site, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(site, file), []byte(text), 0o600))
	}
	return start(t, append([]string{filepath.Join(site, "../train.py"), site}, threads...)...)
}

// Who waits for its threads of backward stands where the one does for which the others may wait.
func TestWhoWaitsForBackwardStandsWhereItsThreadDoes(t *testing.T) {
	r := open(t)
	for name, tc := range map[string]struct {
		threads []string
		class   waitclass.Class
		thread  string // "": the main thread itself
		in      string // function of its own code
	}{
		"a hook sleeps":                              {[]string{"pt_autograd_0=sleeps"}, waitclass.OwnCode, "pt_autograd_0", "sleeps"},
		"a hook waits for a lock":                    {[]string{"pt_autograd_0=deadlocks"}, waitclass.Lock, "pt_autograd_0", "deadlocks"},
		"a hook computes":                            {[]string{"pt_autograd_0=computes"}, waitclass.OwnCode, "pt_autograd_0", "computes"},
		"a hook waits for other ranks":               {[]string{"pt_autograd_0=sums"}, waitclass.Collective, "pt_autograd_0", "sums"},
		"of two GPUs, one's hook waits for no ranks": {[]string{"pt_autograd_0=sums", "pt_autograd_1=deadlocks"}, waitclass.Lock, "pt_autograd_1", "deadlocks"},
		"threads of another kind":                    {[]string{"pt_data=sleeps", "other_pt_autogr=sleeps"}, waitclass.Backward, "", "train"},
		"none":                                       {nil, waitclass.Backward, "", "train"},
	} {
		t.Run(name, func(t *testing.T) {
			pid := startBackward(t, tc.threads...)
			if pid == 0 {
				return
			}
			var p *Process
			for end := time.Now().Add(hosttest.Patience); ; time.Sleep(time.Millisecond) {
				var err error
				p, err = r.ReadMain(pid)
				require.NoError(t, err)
				if own, ok := p.Threads[0].Own(); ok && own.Function == tc.in && p.Threads[0].Wait.Class == tc.class {
					break
				}
				require.True(t, time.Now().Before(end), "%+v", p)
			}
			main := p.Threads[0]
			require.True(t, main.Main)
			for _, other := range p.Threads[1:] {
				require.True(t, other.GIL && other.TID != main.TID, "%+v", other)
			}
			if tc.thread != "" {
				require.Equal(t, tc.thread, main.Name)
				require.NotEqual(t, pid, main.TID)
			}
			require.Contains(t, main.Where(), fmt.Sprintf(" in %s", tc.in))
			require.Contains(t, functions(&main), "_engine_run_backward", "its own frames follow")
			require.Equal(t, "train", main.Python[len(main.Python)-2].Function)
		})
	}
}

func functions(t *Thread) (names []string) {
	for _, f := range t.Python {
		names = append(names, f.Function)
	}
	return names
}
