package pystack

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// look reads a job's stacks with every thread in place: in these scenes all hold still, or
// stay where they are, once they have got there.
func look(tb testing.TB, p *Process, threads int) Stacks {
	tb.Helper()
	s, err := p.Stacks(Options{})
	require.NoError(tb, err)
	require.Len(tb, s.Threads, threads)
	require.False(tb, s.Cut)
	return s
}

func open(tb testing.TB, pid uint32) *Process {
	tb.Helper()
	p, err := New(procfs.Open("").WithPatience(hosttest.Patience)).Open(pid)
	require.NoError(tb, err)
	tb.Cleanup(func() { p.Close() })
	return p
}

// settle waits until all threads sleep and do not run any more: faulthandler may crash a
// process whose threads run while it looks at them.
func settle(tb testing.TB, j *job) {
	tb.Helper()
	fs := procfs.Open("").WithPatience(hosttest.Patience)
	require.Eventually(tb, func() bool {
		threads, err := fs.Threads(j.pid, mostThreads)
		require.NoError(tb, err)
		before := map[uint32]procfs.ThreadStatus{}
		for range 2 {
			for _, tid := range threads {
				status, err := fs.ThreadStatus(j.pid, tid)
				if known, again := before[tid]; err != nil || !status.Asleep() || again && known != status {
					return false
				}
				before[tid] = status
			}
			time.Sleep(10 * time.Millisecond) // longer than a thread waits for the lock before it asks again
		}
		return true
	}, hosttest.Patience, 10*time.Millisecond)
}

// same compares all threads of a job with faulthandler.
func same(tb testing.TB, j *job) Stacks {
	tb.Helper()
	if !j.spins {
		settle(tb, j)
	}
	p := open(tb, j.pid)
	var s Stacks
	var problem string
	for range 100 {
		oracle := j.oracle(tb)
		s = look(tb, p, len(j.threads))
		if problem = compare(tb, j, oracle, s); problem == "" {
			return s
		}
	}
	require.Fail(tb, "not what faulthandler says", problem)
	return s
}

func compare(tb testing.TB, j *job, oracle map[uint32][]Frame, s Stacks) string {
	tb.Helper()
	fs := procfs.Open("").WithPatience(hosttest.Patience)
	for _, t := range s.Threads {
		require.NotZero(tb, t.TID)
		status, err := fs.ThreadStatus(j.pid, t.TID)
		require.NoError(tb, err)
		want, known := oracle[status.Inner]
		switch {
		case !known:
			return fmt.Sprintf("faulthandler knows no thread %d", status.Inner)
		case t.Torn:
			return fmt.Sprintf("thread %d is torn: %v", t.TID, t.Err)
		case t.Main != (t.TID == j.pid):
			return fmt.Sprintf("thread %d of process %d is not told right as the main thread", t.TID, j.pid)
		}
		if d := difference(want, t.Frames); d != "" {
			return fmt.Sprintf("thread %d: %s\n%v\n%v", t.TID, d, want, t.Frames)
		}
	}
	return ""
}

// scenes are compared on each interpreter.
func scenes(t *testing.T, py python) {
	t.Run("waiting", func(t *testing.T) {
		j := start(t, py, "scene.py", "still")
		for _, one := range same(t, j).Threads {
			require.False(t, one.GIL, "%v", one)
		}
	})
	t.Run("spinning", func(t *testing.T) {
		j := start(t, py, "scene.py", "spin")
		j.spins = true
		same(t, j)
	})
	t.Run("forked", func(t *testing.T) {
		parent := start(t, py, "scene.py", "fork")
		j := &job{pid: child(t, parent.pid), threads: parent.threads, dumps: parent.dumps}
		// The parent's main thread, which waits, has the ident of the child's.
		same(t, j)
	})
	t.Run("holding the lock in C", func(t *testing.T) {
		j := start(t, py, "scene.py", "still")
		settle(t, j)
		_, err := j.stdin.Write([]byte("x"))
		require.NoError(t, err)
		p := open(t, j.pid)
		require.Eventually(t, func() bool {
			s, err := p.Stacks(Options{OnlyMain: true})
			require.NoError(t, err)
			main := s.Threads[0]
			return !main.Torn && main.Frames[0].Function == "in_c_with_the_lock"
		}, hosttest.Patience, 10*time.Millisecond)
		s := same(t, j)
		for _, one := range s.Threads {
			require.Equal(t, one.Main, one.GIL, "%v", one)
		}
		require.True(t, s.GILKnown)
	})
}

// child is the only child of a process.
func child(tb testing.TB, pid uint32) uint32 {
	tb.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	require.NoError(tb, err)
	var c uint32
	_, err = fmt.Sscan(string(content), &c)
	require.NoError(tb, err)
	return c
}

func TestStacksAreThoseOfFaulthandler(t *testing.T) {
	scenes(t, hostPython(t))
}

// TestEveryInterpreterOfTheHost compares those that pyenv has made, which are shared
// libraries, where it has made any.
func TestEveryInterpreterOfTheHost(t *testing.T) {
	hosttest.NotShort(t, "one interpreter is enough for a look")
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.*/bin/python3"))
	require.NoError(t, err)
	for _, path := range found {
		version := filepath.Base(filepath.Dir(filepath.Dir(path)))
		t.Run(version, func(t *testing.T) {
			var minor int
			_, err := fmt.Sscanf(version, "3.%d", &minor)
			require.NoError(t, err)
			if minor < 8 {
				j := start(t, python{path: path}, "idle.py")
				_, err := New(procfs.Open("").WithPatience(hosttest.Patience)).Open(j.pid)
				var unknown *UnknownVersionError
				require.ErrorAs(t, err, &unknown)
				return
			}
			scenes(t, python{path: path})
		})
	}
}

func TestOtherNamespaces(t *testing.T) {
	hosttest.Require(t, "it makes namespaces")
	py := hostPython(t)
	py.spawned = syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	j := start(t, py, "scene.py", "still")
	inner := false
	for ident, number := range j.threads {
		inner = inner || number != j.pid && number < 100
		require.NotZero(t, ident)
	}
	require.True(t, inner, "its threads are not numbered in a namespace of their own: %v", j.threads)
	same(t, j)
}
