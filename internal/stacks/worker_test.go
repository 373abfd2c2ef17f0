//go:build linux && (amd64 || arm64)

package stacks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// inThreads does its work in threads, as its arguments say, and waits for them in the first argument.
const inThreads = `
import os, queue, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[1])
from torch.distributed import distributed_c10d
work = queue.Queue()
def sleeps():
    while True: time.sleep(0.001)
def listens(): os.read(os.pipe()[0], 1)
def computes():
    while True: sum(range(100))
def sums(): distributed_c10d.all_reduce()
def consumes(): work.get()
def train(does): globals()[does]()
def join():
    for t in threads: t.join()
    after()
def after(): time.sleep(1000)
def future():
    pool.submit(train, "sleeps").result()
def poll():
    while threads[0].is_alive():
        try: work.get(timeout=0.05)
        except queue.Empty: pass
def deadlock():
    lock = threading.Lock(); lock.acquire(); lock.acquire()
def compute():
    while True: sum(range(100))
pool = ThreadPoolExecutor(1)
threads = [threading.Thread(target=train, args=(does,), daemon=True) for does in sys.argv[3:]]
for t in threads: t.start()
print("ready", flush=True)
def main(): globals()[sys.argv[2]]()
main()
`

func startThreads(t *testing.T, arguments ...string) (pid uint32) {
	t.Helper()
	site := filepath.Join(t.TempDir(), "site-packages")
	for file, text := range map[string]string{"torch/distributed/distributed_c10d.py": collectives, "../train.py": inThreads} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(site, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(site, file), []byte(text), 0o600))
	}
	return start(t, append([]string{filepath.Join(site, "../train.py"), site}, arguments...)...)
}

// A rank whose main thread waits for a thread that does its work stands where that does.
func TestWhoWaitsForItsWorkerStandsWhereThatDoes(t *testing.T) {
	r := open(t)
	for name, tc := range map[string]struct {
		arguments []string
		in        string // function of its own code, "" where no other thread is looked at
		class     waitclass.Class
	}{
		"joins a thread":                              {[]string{"join", "sleeps"}, "sleeps", waitclass.OwnCode},
		"waits for what a pool does":                  {[]string{"future"}, "sleeps", waitclass.OwnCode},
		"polls while a thread lives":                  {[]string{"poll", "sleeps"}, "sleeps", waitclass.OwnCode},
		"one in a collective":                         {[]string{"join", "sums"}, "sums", waitclass.Collective},
		"one in a collective, and one elsewhere":      {[]string{"join", "sums", "sleeps"}, "sums", waitclass.Collective},
		"one that works, and one that waits for work": {[]string{"join", "sleeps", "consumes"}, "sleeps", waitclass.OwnCode},
		"one that runs, and one that hardly does":     {[]string{"join", "listens", "computes"}, "computes", waitclass.OwnCode},
		"two that work":                               {[]string{"join", "sleeps", "sleeps"}, "", ""},
		"two in a collective":                         {[]string{"join", "sums", "sums"}, "", ""},
		"none but one that waits for work":            {[]string{"join", "consumes"}, "", ""},
		"a lock of its own":                           {[]string{"deadlock", "sleeps"}, "", ""},
		"it computes itself":                          {[]string{"compute", "sleeps"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pid := startThreads(t, tc.arguments...)
			if pid == 0 {
				return
			}
			_, err := r.Prepare(pid)
			require.NoError(t, err)
			t.Cleanup(func() { r.Release(pid) })
			look := func(wanted func(*Process) bool) *Process {
				for end := time.Now().Add(hosttest.Patience); ; time.Sleep(time.Millisecond) {
					p, err := r.ReadMain(pid)
					require.NoError(t, err)
					if wanted(p) {
						return p
					}
					require.True(t, time.Now().Before(end), "%+v", p)
				}
			}
			if tc.in == "" {
				look(func(p *Process) bool { // on a busy machine a thread that has just begun is at no work yet
					return slices.Contains(functions(&p.Threads[0]), tc.arguments[0]) && !p.Turned
				})
				for range 3 {
					p := look(func(p *Process) bool {
						return slices.Contains(functions(&p.Threads[0]), tc.arguments[0])
					})
					require.False(t, p.Turned)
					require.Equal(t, pid, p.Threads[0].TID)
				}
				return
			}
			turned := 0
			p := look(func(p *Process) bool {
				if p.Turned {
					turned++
				}
				own, ok := p.Threads[0].Own()
				return ok && own.Function == tc.in && p.Threads[0].Wait.Class == tc.class
			})
			require.Equal(t, 1, turned)
			main := p.Threads[0]
			require.True(t, main.Main)
			require.NotEqual(t, pid, main.TID)
			require.Contains(t, functions(&main), "main", "its own frames follow")
			looked := r.LookAt([]uint32{pid})[0]
			require.NoError(t, looked.Err)
			status, err := r.fs.ThreadStatus(pid, main.TID)
			require.NoError(t, err)
			require.GreaterOrEqual(t, status.Switches, looked.Status.Switches)
			var class waitclass.Class
			require.Eventually(t, func() bool { // it may just be waking up
				class, err = r.Class(pid)
				return err == nil
			}, hosttest.Patience, time.Millisecond)
			require.NotEqual(t, waitclass.Lock, class)
			if tc.class == waitclass.Collective {
				place, err := r.Place(pid)
				require.NoError(t, err)
				require.Equal(t, main.Place, place)
			}
		})
	}
}

// A thread that could not be read may do the work, too.
func TestNobodyWorksWhereAThreadIsNotRead(t *testing.T) {
	r := open(t)
	l := &look{Reader: r, Process: Process{PID: 1}}
	trains := pystack.Thread{Frames: []pystack.Frame{{File: "/app/train.py", Function: "train"}}}
	require.EqualValues(t, 2, l.workerAmong(map[uint32]pystack.Thread{1: {}, 2: trains}))
	require.EqualValues(t, 2, l.workerAmong(map[uint32]pystack.Thread{1: {Torn: true}, 2: trains, 3: {}}), "the main thread waits, and others have no frames of Python")
	require.Zero(t, l.workerAmong(map[uint32]pystack.Thread{1: {}, 2: trains, 3: {Torn: true}}))
}

// The main thread is looked at again once it goes on.
func TestAMainThreadThatGoesOn(t *testing.T) {
	r := open(t)
	pid := startThreads(t, "join", "sleeps")
	if pid == 0 {
		return
	}
	_, err := r.Prepare(pid)
	require.NoError(t, err)
	r.workers[pid] = &worker{tid: pid}
	for i := range goneOn {
		require.NotNil(t, r.workers[pid], i)
		r.LookAt([]uint32{pid})
	}
	require.Nil(t, r.workers[pid], "it waits elsewhere")
	r.workers[pid] = &worker{tid: 1}
	place, err := r.watched[pid].PlaceOf(pid)
	require.NoError(t, err)
	r.workers[pid].wait = place
	look := r.LookAt([]uint32{pid})[0]
	require.NoError(t, look.Err)
	require.Nil(t, r.workers[pid], "the thread has ended")
	wait := func(wanted func(*Process) bool) {
		for end := time.Now().Add(hosttest.Patience); ; time.Sleep(time.Millisecond) {
			p, err := r.ReadMain(pid)
			require.NoError(t, err)
			if wanted(p) {
				return
			}
			require.True(t, time.Now().Before(end), "%+v", p)
		}
	}
	wait(func(p *Process) bool {
		require.False(t, p.Turned, "not at once again: it waits in each step, and works itself")
		return p.Threads[0].Wait.Class == waitclass.Lock && slices.Contains(functions(&p.Threads[0]), "join")
	})
	r.pauses[pid] = time.Now()
	wait(func(p *Process) bool { return p.Turned }) // a thread that wakes all the time is not read at each look
	r.Release(pid)
	require.Empty(t, r.workers)
	require.Empty(t, r.pauses)
}
