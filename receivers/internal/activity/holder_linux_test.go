package activity

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// variable makes the test binary a rank that polls the pipe of a child.
const variable = "TRACECORE_ACTIVITY_STAND_IN"

func TestMain(m *testing.M) {
	switch os.Getenv(variable) {
	case "":
		os.Exit(m.Run())
	case mainEnds:
		onMainThread(func() { _, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0) })
		time.Sleep(time.Hour)
	default:
		if does := standIns[os.Getenv(variable)]; does != nil {
			onMainThread(does)
			time.Sleep(time.Hour)
		}
		os.Exit(poll())
	}
}

const mainEnds = "main thread ends"

// onMainThread has a goroutine do so on the first thread of the process.
func onMainThread(do func()) {
	var found atomic.Bool
	done := make(chan struct{})
	for !found.Load() {
		go func() {
			runtime.LockOSThread() // and never unlocked: the others are in the way
			if unix.Gettid() != unix.Getpid() {
				<-done
				return
			}
			found.Store(true)
			do()
		}()
		time.Sleep(time.Millisecond)
	}
}

// standIn starts this test binary as a rank that does something, until the test's end.
func standIn(t *testing.T, does string) identity.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+does)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := uint32(cmd.Process.Pid) //nolint:gosec // a pid
	stat, err := thisProc().Stat(pid)
	require.NoError(t, err)
	return identity.Process{PID: pid, StartNS: stat.StartNS()}
}

// thisProc is the /proc of this machine, however slow.
func thisProc() *procfs.FS { return procfs.Open("").WithPatience(hosttest.Patience) }

// TestMainThreadAloneHasEnded: on this kernel, of a process whose other threads live on.
func TestMainThreadAloneHasEnded(t *testing.T) {
	rank := standIn(t, mainEnds)
	r := New(thisProc())
	var p Process
	require.Eventually(t, func() bool {
		p = r.Read(rank, false)
		return p.State == socketstall.Zombie
	}, hosttest.Patience, time.Millisecond)
	require.True(t, p.Ending, "a thread that ends looks alive for a moment")
	now := time.Now()
	r.clock = func() time.Time { return now.Add(aloneFor) }
	require.False(t, r.Read(rank, false).Ending)
}

// poll waits on its first thread, as a rank does for its data loader.
func poll() int {
	reads, writes, err := os.Pipe()
	if err != nil {
		return 1
	}
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = []*os.File{writes}
	if child.Start() != nil || writes.Close() != nil {
		return 1
	}
	fd := int32(reads.Fd()) //nolint:gosec // a small number
	onMainThread(func() {
		for {
			_, _ = unix.Poll([]unix.PollFd{{Fd: -1}, {Fd: fd, Events: unix.POLLIN}}, 5000)
		}
	})
	time.Sleep(time.Hour)
	return 0
}

// TestChildrenOfRealProcesses: what this kernel says of a shell, and of a rank that polls, which
// wait for a child.
func TestChildrenOfRealProcesses(t *testing.T) {
	for name, tc := range map[string]struct {
		command []string
		child   string
		where   string
	}{
		"waits for its end":                     {[]string{"sh", "-c", "sleep 1000; true"}, "sleep", "clock_nanosleep"},
		"reads its pipe":                        {[]string{"sh", "-c", "x=$(sleep 1000; true)"}, "sleep", "clock_nanosleep"},
		"reads the pipe of a child of its":      {[]string{"sh", "-c", "x=$(cat | sleep 1000; true)"}, "sleep", "clock_nanosleep"},
		"waits for a child that reads a pipe":   {[]string{"sh", "-c", "sleep 1000 | cat; true"}, "sleep", "clock_nanosleep"},
		"polls its pipe, as a data loader does": {[]string{os.Args[0]}, "sleep", "clock_nanosleep"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(tc.command[0], tc.command[1:]...)
			cmd.Env = append(os.Environ(), variable+"=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
			fs := procfs.Open("").WithPatience(hosttest.Patience)
			pid := uint32(cmd.Process.Pid) //nolint:gosec // a pid
			stat, err := fs.Stat(pid)
			require.NoError(t, err)
			r := New(fs)
			until := func(what string, is func(*Inside) bool) *Holder {
				var in *Inside
				require.Eventually(t, func() bool {
					r.Begin()
					p := r.Read(identity.Process{PID: pid, StartNS: stat.StartNS()}, false)
					r.Inspect(&p, func(uint32) bool { return false })
					in = p.Inside
					return in != nil && is(in)
				}, hosttest.Patience, 20*time.Millisecond, what)
				return in.Holder
			}
			h := until("asleep", func(in *Inside) bool {
				return in.Holder != nil && in.Holder.Comm == tc.child && in.Holder.State == socketstall.Sleeping && in.Holder.Syscall == tc.where
			})
			require.True(t, h.Awaited)

			require.NoError(t, syscall.Kill(int(h.PID), syscall.SIGSTOP))
			stopped := until("stopped", func(in *Inside) bool {
				return in.Holder != nil && in.Holder.State == socketstall.Stopped && in.Holder.Awaited
			})
			require.Equal(t, h.PID, stopped.PID)
			require.NoError(t, syscall.Kill(int(h.PID), syscall.SIGCONT))
			until("asleep again", func(in *Inside) bool { return in.Holder != nil && in.Holder.State == socketstall.Sleeping })

			name, err := os.ReadFile("/proc/" + procfs.OfProcess(h.PID) + "/comm")
			require.NoError(t, err)
			require.Equal(t, tc.child, string(bytes.TrimSpace(name)))
		})
	}
}
