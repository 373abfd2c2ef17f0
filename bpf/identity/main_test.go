//go:build linux && (amd64 || arm64)

package identity

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
)

// childMode in the environment makes this binary a child that does one thing.
const childMode = "IDENTITY_TEST_CHILD"

func TestMain(m *testing.M) {
	if oomkill.IsDrillChild() {
		os.Exit(oomkill.DrillChild())
	}
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(beChild(mode))
	}
	goleak.VerifyTestMain(m)
}

// beChild returns the exit code, unless the mode ends otherwise.
func beChild(mode string) int {
	switch mode {
	case "exit0":
		return 0
	case "exit7":
		return 7
	case "wait": // until standard input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "abort":
		_, _ = io.Copy(io.Discard, os.Stdin)
		abort()
	case "leaderFirst": // the thread that main runs on ends, another ends the process
		leaderFirst(9)
	case "fork": // a worker that never executes a program
		fmt.Println(forkExiting(5))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "bareChild": // a program whose environment names nothing
		child := exec.Command("/proc/self/exe")
		child.Env = []string{childMode + "=exit7"}
		if err := child.Start(); err != nil {
			return 99
		}
		fmt.Println(child.Process.Pid)
		_ = child.Wait()
		return 0
	}
	return 98
}

// abort ends this process as abort(3) does. The Go runtime would catch the
// signal, so its handler is taken away first.
func abort() {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	raw := [4]uint64{} // SIG_DFL
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGABRT), uintptr(unsafe.Pointer(&raw)), 0, 8, 0, 0)
	_ = unix.Kill(os.Getpid(), unix.SIGABRT)
	time.Sleep(time.Minute)
}

// leaderFirst ends the leader of the thread group and, when it is gone, the process,
// from another thread.
func leaderFirst(code int) {
	go func() {
		runtime.LockOSThread()
		for leader := fmt.Sprintf("/proc/self/task/%d/stat", os.Getpid()); ; time.Sleep(time.Millisecond) {
			if stat, err := os.ReadFile(leader); err == nil && bytes.Contains(stat, []byte(") Z ")) {
				break
			}
		}
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(code), 0, 0)
	}()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 3, 0, 0)
}

// init keeps main on the first thread, which is the leader.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only init runs on the main goroutine before main chooses a thread

// forkExiting forks a child that ends at once with a code, and waits for it.
func forkExiting(code uintptr) int {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	if pid == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
	}
	_, _ = ignoringEINTR(func() (int, error) { return unix.Wait4(int(pid), nil, 0, nil) })
	return int(pid)
}

// child is a running copy of this binary.
type child struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
}

func startChild(t testing.TB, mode string, environ ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command("/proc/self/exe")}
	c.Env = append(environ, childMode+"="+mode)
	var err error
	c.stdin, err = c.StdinPipe()
	require.NoError(t, err)
	c.stdout, err = c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

func (c *child) pid() uint32 { return uint32(c.Process.Pid) }

// finish lets the child go on to its end and waits for that.
func (c *child) finish() {
	_ = c.stdin.Close()
	_ = c.Wait()
}

// printed reads the number the child prints.
func (c *child) printed(t testing.TB) uint32 {
	t.Helper()
	var n uint32
	_, err := fmt.Fscan(c.stdout, &n)
	require.NoError(t, err)
	return n
}
