package activity

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// TestADebuggerHoldsAndAProfilerDoesNot: who is held by ptrace is stopped, and by whom is
// said. Of one that is only looked at and goes on, each look says that it waits as it did.
func TestADebuggerHoldsAndAProfilerDoesNot(t *testing.T) {
	runtime.LockOSThread() // ptrace goes by thread
	defer runtime.UnlockOSThread()
	child := exec.Command("sh", "-c", "while :; do sleep 0.001; done")
	child.Stderr = os.Stderr
	require.NoError(t, child.Start())
	pid := child.Process.Pid
	for end := time.Now().Add(hosttest.Patience); ; time.Sleep(time.Millisecond) { // the end of execve sends SIGTRAP to who is attached to by then
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		require.NoError(t, err)
		if len(children) > 0 {
			break
		}
		require.True(t, time.Now().Before(end))
	}
	defer func() {
		require.NoError(t, child.Process.Kill())
		_ = child.Wait() // killed
	}()
	fs := procfs.Open("").WithPatience(hosttest.Patience)
	stat, err := fs.Stat(uint32(pid))
	require.NoError(t, err)
	p := identity.Process{PID: uint32(pid), StartNS: stat.StartNS()}
	r := New(fs)
	defer r.Wait()
	hold := func() {
		t.Helper()
		require.NoError(t, unix.PtraceAttach(pid))
		for {
			var status unix.WaitStatus
			_, err := unix.Wait4(pid, &status, unix.WALL, nil)
			require.NoError(t, err)
			require.True(t, status.Stopped(), "%#x", int(status))
			if status.StopSignal() == unix.SIGSTOP {
				return
			}
			require.NoError(t, unix.PtraceCont(pid, int(status.StopSignal()))) // the end of a child of its was first
		}
	}
	switches := func() uint64 {
		t.Helper()
		status, err := fs.ThreadStatus(uint32(pid), uint32(pid))
		require.NoError(t, err)
		return status.Switches
	}
	for range 5 { // a profiler
		hold()
		now := r.Read(p, false)
		require.Equal(t, socketstall.Sleeping, now.State)
		require.Zero(t, r.Stopper(&now, nil).Number)
		before := switches()
		require.NoError(t, unix.PtraceDetach(pid))
		for end := time.Now().Add(hosttest.Patience); switches() == before; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(end))
		}
	}
	hold() // a debugger
	r.Read(p, false)
	now := r.Read(p, false)
	require.Equal(t, socketstall.Stopped, now.State)
	signal := r.Stopper(&now, nil)
	require.Equal(t, identity.RelationDebugger, signal.Sender.Relation)
	require.EqualValues(t, unix.Gettid(), signal.Sender.PID)
	require.EqualValues(t, os.Getuid(), signal.Sender.UserID)
	require.NotEmpty(t, signal.Sender.Comm)
	require.Equal(t, int(unix.SIGSTOP), signal.Number)
	require.NoError(t, unix.PtraceDetach(pid))

	require.NoError(t, child.Process.Signal(unix.SIGSTOP))
	for end := time.Now().Add(hosttest.Patience); r.Read(p, false).State != socketstall.Stopped; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	now = r.Read(p, false)
	require.Zero(t, r.Stopper(&now, nil).Number, "no debugger, and nobody knows who sent the signal")
}
