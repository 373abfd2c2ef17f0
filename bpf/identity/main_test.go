//go:build linux && (amd64 || arm64)

package identity

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
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
	case "exit7wait":
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 7
	case "crowd": // of threads, which all end at once
		crowd()
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 7
	case "wait": // until standard input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "pause": // until it is killed; the end of its parent closes no input that it reads
		for { // a signal of Go's own ends a pause
			_ = unix.Pause()
		}
	case "agent": // that somebody kills
		return watchPinned(os.Getenv(childPin))
	case "abort":
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		abort()
	case "segv":
		_, _ = io.Copy(io.Discard, os.Stdin)
		segv()
	case "raiseAfterTerm": // a handler that tidies up and then aborts
		return afterTerm(abort)
	case "exitAfterTerm":
		return afterTerm(func() {})
	case "killer": // kills whom it is told
		return killOthers()
	case "init": // starts a rank and ends before it
		child := startRank()
		fmt.Println(child)
		_, _ = io.Copy(io.Discard, os.Stdin)
		code, _ := strconv.Atoi(os.Getenv("INIT_CODE"))
		return code
	case "leaderFirst": // the thread that main runs on ends, another ends the process
		leaderFirst(9)
	case "fork": // a worker that never executes a program
		fmt.Println(forkExiting(5))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "stopsOwn": // processes of its own, as many as standard input says
		return stopOwn()
	case "again": // becomes this program again and again, in one process
		left, _ := strconv.Atoi(os.Getenv("TIMES"))
		if left == 0 {
			return 0
		}
		_ = unix.Exec("/proc/self/exe", os.Args, []string{childMode + "=again", fmt.Sprint("TIMES=", left-1)})
		return 99
	case "becomesRank": // once it is told so
		_, _ = fmt.Scanln()
		_ = unix.Exec("/proc/self/exe", os.Args, []string{childMode + "=exitAfterTerm", "RANK=1", "WORLD_SIZE=2"})
		return 99
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

// unhandled takes the Go runtime's handler of a signal away.
func unhandled(signal unix.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	raw := [4]uint64{} // SIG_DFL
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(&raw)), 0, 8, 0, 0)
}

// abort ends this process as abort(3) does.
func abort() {
	unhandled(unix.SIGABRT)
	_ = unix.Kill(os.Getpid(), unix.SIGABRT)
	time.Sleep(time.Minute)
}

// segv reads where nothing is.
func segv() {
	unhandled(unix.SIGSEGV)
	var nowhere *int
	fmt.Println(*nowhere)
}

// afterTerm waits for SIGTERM, does something, and returns the exit code 7.
func afterTerm(then func()) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	fmt.Println(os.Getpid())
	<-asked
	then()
	return 7
}

// killOthers sends the signals that standard input names, under a name of its own choice.
func killOthers() int {
	name, _ := unix.BytePtrFromString(os.Getenv("KILLER_NAME"))
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	for {
		var pid, signal int
		if _, err := fmt.Scan(&pid, &signal); err != nil {
			return 0
		}
		fmt.Println(errno(unix.Kill(pid, unix.Signal(signal))))
	}
}

func errno(err error) int {
	code, _ := err.(unix.Errno) //nolint:errorlint // what kill(2) returned
	return int(code)
}

// startRank starts a rank that waits for ever, and returns its pid.
func startRank() int {
	child := exec.Command("/proc/self/exe")
	child.Env = []string{childMode + "=pause", "RANK=3", "WORLD_SIZE=8"}
	if child.Start() != nil {
		return -1
	}
	return child.Process.Pid
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

// stopOwn forks processes and stops each, until standard input ends.
func stopOwn() int {
	var n int
	if _, err := fmt.Scan(&n); err != nil {
		return 1
	}
	pids := make([]int, 0, n)
	defer func() {
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = ignoringEINTR(func() (int, error) { return unix.Wait4(pid, nil, 0, nil) })
		}
	}()
	for range n {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return 1
		}
		if pid == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
			for {
				_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		pids = append(pids, int(pid))
		if unix.Kill(int(pid), unix.SIGSTOP) != nil {
			return 1
		}
	}
	fmt.Println(n)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// child is a running copy of this binary.
type child struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
}

func startChild(t testing.TB, mode string, environ ...string) *child {
	t.Helper()
	return startChildAs(t, nil, mode, environ...)
}

// startChildAs starts one in namespaces or under a user of its own.
func startChildAs(t testing.TB, as *syscall.SysProcAttr, mode string, environ ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command("/proc/self/exe")}
	c.SysProcAttr = as
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

// ready waits until the child says so.
func (c *child) ready(t testing.TB) {
	t.Helper()
	_, err := fmt.Fscanln(c.stdout, new(string))
	require.NoError(t, err)
}

// printed reads the number the child prints.
func (c *child) printed(t testing.TB) uint32 {
	t.Helper()
	var n uint32
	_, err := fmt.Fscan(c.stdout, &n)
	require.NoError(t, err)
	return n
}

// crowd starts threads that wait for the end of the process.
func crowd() {
	ready := make(chan struct{})
	const threads = 100
	for range threads {
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			for {
				_ = unix.Pause()
			}
		}()
	}
	for range threads {
		<-ready
	}
}
