//go:build linux && (amd64 || arm64)

package stacks

import (
	"bufio"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/unwind/unwindtest"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

func open(t *testing.T) *Reader {
	t.Helper()
	privtest.Require(t)
	r, err := Open(procfs.Open("").WithPatience(hosttest.Patience))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// until looks at a process until a look is what is wanted: it may not wait yet.
func until(t *testing.T, r *Reader, pid uint32, wanted func(*Process) bool) *Process {
	t.Helper()
	for end := time.Now().Add(hosttest.Patience); ; time.Sleep(time.Millisecond) {
		p, err := r.Read(pid)
		require.NoError(t, err)
		if wanted(p) {
			return p
		}
		require.True(t, time.Now().Before(end), "%+v", p)
	}
}

func TestAProgramWithoutPython(t *testing.T) {
	r := open(t)
	pid, returns := unwindtest.Start(t)
	p := until(t, r, pid, func(p *Process) bool { return p.Threads[0].State == 'S' && len(p.Threads[0].Native) == len(returns)+1 })
	require.Empty(t, p.Python)
	require.Empty(t, p.Errors)
	require.Len(t, p.Threads, 1)
	thread := p.Threads[0]
	require.Equal(t, []any{pid, true, byte('S'), "frames"}, []any{thread.TID, thread.Main, thread.State, thread.Name})
	for i, address := range returns {
		require.Equal(t, address, thread.Native[i+1].PC)
	}
	require.Contains(t, thread.Wait.Function, "read")
}

// script has a main thread that sleeps, one that waits for a lock, one that reads a pipe and
// one that computes.
const script = `
import os, threading, time
lock = threading.Lock(); lock.acquire()
def waits(): lock.acquire()
def reads(): os.read(os.pipe()[0], 1)
def spins():
    while True: sum(range(100))
for f in waits, reads, spins: threading.Thread(target=f, daemon=True).start()
def save_checkpoint():
    print("ready", flush=True)
    time.sleep(1000)
save_checkpoint()
`

// startPython starts the script, or returns 0 in a machine, which has no Python.
func startPython(t *testing.T) (pid uint32, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "train.py")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	return start(t, file), file
}

// start starts a program of Python and waits until it says something, or returns 0 in a machine.
func start(t *testing.T, arguments ...string) (pid uint32) {
	t.Helper()
	if os.Getenv("VMTESTS_KERNEL") != "" {
		return 0
	}
	cmd := exec.Command("/usr/bin/python3", arguments...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start(), "install python3")
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return uint32(cmd.Process.Pid)
}

// in returns the thread of that function of the script, innermost, or nil.
func (p *Process) in(function string) *Thread {
	for i, t := range p.Threads {
		for _, f := range t.Python[:min(1, len(t.Python))] {
			if f.Function == function {
				return &p.Threads[i]
			}
		}
	}
	return nil
}

func TestThreadsOfPythonInEachLayer(t *testing.T) {
	r := open(t)
	pid, file := startPython(t)
	if pid == 0 {
		return
	}
	asleep := func(t *Thread, in string) bool {
		return t != nil && len(t.Native) > 0 && strings.Contains(t.Wait.Function, in)
	}
	p := until(t, r, pid, func(p *Process) bool {
		spins := p.in("spins")
		return asleep(p.in("save_checkpoint"), "nanosleep") && asleep(p.in("waits"), "futex") && asleep(p.in("reads"), "pipe_read") && spins != nil && len(spins.Native) > 0
	})
	require.Contains(t, p.Python, "CPython 3.")
	require.Len(t, p.Threads, 4)
	main := p.Threads[0]
	require.True(t, main.Main)
	require.Equal(t, []any{"save_checkpoint", file, 11}, []any{main.Python[0].Function, main.Python[0].File, main.Python[0].Line})
	require.Equal(t, waitclass.OwnCode, main.Wait.Class)
	require.Equal(t, waitclass.Lock, p.in("waits").Wait.Class)
	require.NotEqual(t, waitclass.Lock, p.in("reads").Wait.Class, "every thread begins in threading.py")
}

// A program is over, and its process is not: functions of atexit run, or it waits for a thread that is no daemon.
func TestTheProgramOfAProcessIsOver(t *testing.T) {
	r := open(t)
	for name, tc := range map[string]struct {
		script string
		over   bool
	}{
		"a function of atexit":       {"import atexit, time\natexit.register(time.sleep, 1000)\nprint('ready', flush=True)\nraise SystemExit(1)\n", true},
		"one that is written in it":  {"import atexit, time\ndef flush(): time.sleep(1000)\natexit.register(flush)\nprint('ready', flush=True)\n", true},
		"a thread that is no daemon": {"import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\nprint('ready', flush=True)\n", true},
		"multiprocessing": {
			"import multiprocessing.process, threading, time\nclass P(multiprocessing.process.BaseProcess):\n  _start_method = None\n  def run(self):\n    threading.Thread(target=time.sleep, args=(1000,)).start()\n    print('ready', flush=True)\n" +
				"P()._bootstrap()\n", true,
		},
		"it sleeps":      {"import time\nprint('ready', flush=True)\ntime.sleep(1000)\n", false},
		"it joins":       {"import threading, time\nt = threading.Thread(target=time.sleep, args=(1000,))\nt.start()\nprint('ready', flush=True)\nt.join()\n", false},
		"another sleeps": {"import threading, time\ndef _shutdown(): time.sleep(1000)\nprint('ready', flush=True)\n_shutdown()\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			pid := start(t, "-c", tc.script)
			if pid == 0 {
				return
			}
			p := until(t, r, pid, func(p *Process) bool {
				main := &p.Threads[0]
				return main.Main && main.State == 'S' && len(main.Errors) == 0 && (strings.Contains(main.Wait.Function, "nanosleep") || strings.Contains(main.Wait.Function, "futex")) && main.Ending == tc.over
			})
			require.Equal(t, tc.over, p.Threads[0].Ending)
			for _, other := range p.Threads[1:] {
				require.False(t, other.Ending)
			}
		})
	}
}

func TestWithoutTheKernelPythonIsRead(t *testing.T) {
	r := open(t)
	pid, _ := startPython(t)
	if pid == 0 {
		return
	}
	require.NoError(t, r.kernel.Close())
	r.kernel, r.lacks = nil, errors.New("no rung")
	p := until(t, r, pid, func(p *Process) bool { return p.in("save_checkpoint") != nil })
	require.ErrorIs(t, errors.Join(p.Errors...), r.lacks)
	require.Empty(t, p.Threads[0].Kernel)
}

func TestAProcessThatIsGone(t *testing.T) {
	_, err := open(t).Read(math.MaxInt32)
	require.ErrorIs(t, err, procfs.ErrGone)
}
