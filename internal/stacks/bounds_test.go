//go:build linux && (amd64 || arm64)

package stacks

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// What a child of a test does instead of testing.
const (
	threadsVariable = "STACKS_THREADS" // it has so many threads more
	readsVariable   = "STACKS_READS"   // it reads this process, and says what it learnt
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(threadsVariable) != "":
		n, _ := strconv.Atoi(os.Getenv(threadsVariable))
		sleepers(n)
	case os.Getenv(readsVariable) != "":
		pid, _ := strconv.ParseUint(os.Getenv(readsVariable), 10, 32)
		report(uint32(pid))
	default:
		os.Exit(m.Run())
	}
}

// sleepers are threads that sleep until the standard input ends.
func sleepers(n int) {
	read, write, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	debug.SetMaxThreads(n + 1000)
	begun := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			begun <- struct{}{}
			_, _ = syscall.Read(int(read.Fd()), make([]byte, 1))
		}()
	}
	for range n {
		<-begun
	}
	fmt.Println("sleeping")
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(write)
}

// report reads a process and says how that went.
func report(pid uint32) {
	r, err := Open(procfs.Open("").WithPatience(hosttest.Patience))
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	defer r.Close()
	fmt.Println("rung:", r.Report().Rung)
	p, err := r.Read(pid)
	if err != nil {
		fmt.Println("read:", err)
		return
	}
	frames := 0
	for i := range p.Threads {
		frames += len(p.Threads[i].Kernel) + len(p.Threads[i].Native) + len(p.Threads[i].Python)
	}
	fmt.Println("threads:", len(p.Threads) > 0, "frames:", frames)
	for _, err := range p.Errors {
		fmt.Println("lacks:", err)
	}
}

// sleeping starts a process that has so many threads more; false where there is no room for them.
func sleeping(t *testing.T, n int) (pid uint32, ok bool) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), threadsVariable+"="+strconv.Itoa(n))
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	if _, err = bufio.NewReader(stdout).ReadString('\n'); err != nil {
		_ = child.Wait()
		return 0, false
	}
	t.Cleanup(func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, child.Wait())
	})
	return uint32(child.Process.Pid), true //nolint:gosec // a pid
}

// leastThreads are more than are read.
const leastThreads = MaxThreads + 8

// manyThreads is 100,000 threads, or as many as take a quarter of the numbers, and an eighth of the
// memory, that this machine has left: others run here, too.
func manyThreads(t *testing.T) int {
	const bytesOfEach = 96 << 10
	if testing.Short() || hosttest.Small() {
		return leastThreads
	}
	var system syscall.Sysinfo_t
	require.NoError(t, syscall.Sysinfo(&system))
	n := min(100_000, int(system.Freeram)*int(system.Unit)/8/bytesOfEach)
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		most, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		n = min(n, (most-int(system.Procs))/4)
	}
	return max(leastThreads, n)
}

// TestAProcessOfTooManyThreads: those beyond the bound are not read, and that is said.
func TestAProcessOfTooManyThreads(t *testing.T) {
	r := open(t)
	n := manyThreads(t)
	pid, ok := sleeping(t, n)
	for !ok && n > leastThreads { // its cgroup has room for fewer
		n = max(n/2, leastThreads)
		pid, ok = sleeping(t, n)
	}
	require.True(t, ok)
	t.Logf("%d threads", n)
	p, err := r.Read(pid)
	require.NoError(t, err)
	require.True(t, p.Cut)
	require.LessOrEqual(t, len(p.Threads), MaxThreads)
	require.GreaterOrEqual(t, p.All, n, "they are counted")
	require.True(t, p.Threads[0].Main, "it is the first of them")
	main, err := r.ReadMain(pid)
	require.NoError(t, err)
	require.False(t, main.Cut)
	require.Len(t, main.Threads, 1)
}

// TestAReaderWithoutRightsSaysSo: nobody reads a process of root.
func TestAReaderWithoutRightsSaysSo(t *testing.T) {
	privtest.Require(t)
	const nobody = 65534
	child := exec.Command("/proc/self/exe") // the folder of the test is closed to it
	child.Env = append(os.Environ(), readsVariable+"="+strconv.Itoa(os.Getpid()))
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := child.CombinedOutput()
	require.NoError(t, err, "%s", said)
	text := string(said)
	require.Contains(t, text, "threads: true frames: 0\n")
	for _, layer := range []string{"compiled code", "Python"} {
		require.Regexp(t, "(?m)^lacks: "+layer+": .*permission denied: run as root, with CAP_SYS_PTRACE", text)
	}
}
