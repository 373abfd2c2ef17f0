package activity

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// call is a line of /proc/PID/syscall.
func call(name string, arguments ...uint64) string {
	numbers := map[string]map[string]int{
		"amd64": {"read": 0, "write": 1, "wait4": 61, "waitid": 247, "futex": 202, "clock_nanosleep": 230, "epoll_pwait": 281, "pselect6": 270, "ppoll": 271, "openat": 257},
		"arm64": {"read": 63, "write": 64, "wait4": 260, "waitid": 95, "futex": 98, "clock_nanosleep": 115, "epoll_pwait": 22, "pselect6": 72, "ppoll": 73, "openat": 56},
	}
	line := fmt.Sprint(numbers[runtime.GOARCH][name])
	for _, one := range arguments {
		line += fmt.Sprintf(" 0x%x", one)
	}
	return line + " 0x0 0x0"
}

// opens gives a process open files by their numbers: pipes with an end ("pipe:[7] r") or paths.
func (p tree) opens(pid uint32, files map[int]string) {
	for fd, file := range files {
		name, flags := file, "00"
		if end := len(file) - 2; end > 0 && file[end] == ' ' {
			name, flags = file[:end], map[byte]string{'r': "00", 'w': "01"}[file[end+1]]
		}
		link := filepath.Join(p.root, fmt.Sprintf("%d/fd/%d", pid, fd))
		require.NoError(p.t, os.MkdirAll(filepath.Dir(link), 0o755))
		require.NoError(p.t, os.Symlink(name, link))
		p.write(fmt.Sprintf("%d/fdinfo/%d", pid, fd), "pos:\t0\nflags:\t"+flags+"\ntfd: 8 events: 19\n")
	}
}

// sleeps says where a process sleeps, and how often it has gone to.
func (p tree) sleeps(pid uint32, sleeps int, call, channel string) {
	status := fmt.Sprintf("State:\tS (x)\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t%d\t%d\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t0\n", pid, pid-40, sleeps)
	p.write(fmt.Sprintf("%d/status", pid), status)
	p.write(fmt.Sprintf("%d/task/%d/status", pid, pid), status)
	p.write(fmt.Sprintf("%d/syscall", pid), call+"\n")
	p.write(fmt.Sprintf("%d/wchan", pid), channel)
}

// The rank is process 42; two looks at it and its children, between which nothing happens.
func held(t *testing.T, arrange func(tree)) *Inside {
	t.Helper()
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.write("42/io", "rchar: 0\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n")
	arrange(tree)
	l := newLooks(tree, p)
	l.look()
	return l.look().Inside
}

const (
	noChild = -1
	results = "pipe:[7]" // workers write to it, the rank reads
	indices = "pipe:[8]" // the rank writes to it
)

// loader is a rank that waits in next() of a DataLoader with two workers.
func loader(tree tree) {
	tree.sleeps(42, 5, call("read", 3, 0x7f00, 4), "pipe_read")
	tree.opens(42, map[int]string{3: results + " r", 4: results + " w", 5: indices + " w", 8: results + " r"})
	for _, worker := range []uint32{50, 51} {
		tree.child(worker, 42, "pt_data_worker", 100, 0)
		tree.opens(worker, map[int]string{4: results + " w", 6: indices + " r", 7: indices + " w", 9: "/data/shard"})
		tree.sleeps(worker, 3, call("read", 6), "pipe_read")
	}
}

func TestWhichChildHoldsARankUp(t *testing.T) {
	inSleep := call("clock_nanosleep", 0, 0)
	for name, tc := range map[string]struct {
		arrange func(tree)
		child   int
		state   socketstall.State
		awaited bool
		where   string
	}{
		"all workers wait for the rank": {loader, noChild, "", false, ""},
		"a worker sleeps": {func(p tree) {
			loader(p)
			p.sleeps(51, 3, inSleep, "hrtimer_nanosleep")
		}, 51, socketstall.Sleeping, true, "clock_nanosleep"},
		"two workers sleep: which of them is waited for nobody knows": {func(p tree) {
			loader(p)
			p.sleeps(50, 3, inSleep, "hrtimer_nanosleep")
			p.sleeps(51, 3, inSleep, "hrtimer_nanosleep")
		}, noChild, "", false, ""},
		"a worker is stopped, and another waits in a lock that it holds": {func(p tree) {
			loader(p)
			p.sleeps(50, 3, call("futex", 1), "futex_do_wait")
			p.childIn("T", 51, 42, "pt_data_worker", 100, 0)
		}, 51, socketstall.Stopped, true, ""},
		"a worker sleeps, the others wait in a lock": {func(p tree) {
			loader(p)
			p.sleeps(50, 3, call("futex", 1), "futex_do_wait")
			p.sleeps(51, 3, inSleep, "hrtimer_nanosleep")
		}, 51, socketstall.Sleeping, true, "clock_nanosleep"},
		"a worker is blocked": {func(p tree) {
			loader(p)
			p.childIn("D", 51, 42, "pt_data_worker", 100, 0)
			p.sleeps(51, 3, call("read", 9), "rpc_wait_bit_killable")
		}, 51, socketstall.DiskSleep, true, "read"},
		"a worker's own child is stopped": {func(p tree) {
			loader(p)
			p.sleeps(51, 3, call("wait4", 1<<64-1), "do_wait")
			p.childIn("T", 60, 51, "ffmpeg", 1, 0)
		}, 60, socketstall.Stopped, true, ""},
		"an epoll file watches the pipe": {func(p tree) {
			loader(p)
			p.sleeps(42, 5, call("epoll_pwait", 5), "do_epoll_wait")
			p.sleeps(51, 3, inSleep, "hrtimer_nanosleep")
		}, 51, socketstall.Sleeping, true, "clock_nanosleep"},
		"it waits for the end of one of two": {func(p tree) {
			p.sleeps(42, 5, call("wait4", 11), "do_wait") // as it calls process 51 in its container
			p.child(50, 42, "sshd", 1, 0)
			p.sleeps(50, 1, inSleep, "x")
			p.child(51, 42, "nvcc", 1, 0)
			p.sleeps(51, 1, call("futex", 1), "futex_do_wait")
		}, 51, socketstall.Sleeping, true, "futex"},
		"waitid": {func(p tree) {
			p.sleeps(42, 5, call("waitid", 1, 10), "do_wait")
			p.child(50, 42, "nvcc", 1, 0)
			p.sleeps(50, 1, inSleep, "x")
		}, 50, socketstall.Sleeping, true, "clock_nanosleep"},
		"waitid of a pidfd": {func(p tree) {
			p.sleeps(42, 5, call("waitid", 3, 6), "do_wait")
			p.write("42/fdinfo/6", "flags:\t02\nPid:\t50\n")
			p.child(50, 42, "nvcc", 1, 0)
			p.sleeps(50, 1, inSleep, "x")
		}, 50, socketstall.Sleeping, true, "clock_nanosleep"},
		"it writes to a child that does not read": {func(p tree) {
			p.sleeps(42, 5, call("write", 5), "pipe_write")
			p.opens(42, map[int]string{5: indices + " w"})
			p.child(50, 42, "gzip", 1, 0)
			p.opens(50, map[int]string{0: indices + " r", 9: "socket:[3]"})
			p.sleeps(50, 1, call("write", 9), "sock_alloc_send_pskb")
		}, 50, socketstall.Sleeping, true, "write"},
		"each waits for the other": {func(p tree) {
			p.sleeps(42, 5, call("write", 5), "pipe_write")
			p.opens(42, map[int]string{5: indices + " w", 6: results + " r"})
			p.child(50, 42, "gzip", 1, 0)
			p.opens(50, map[int]string{0: indices + " r", 1: results + " w"})
			p.sleeps(50, 1, call("write", 1), "pipe_write")
		}, noChild, "", false, ""},
		"a shell in the background is stopped, the rank waits in a lock": {func(p tree) {
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.childIn("T", 50, 42, "bash", 1, 0)
			p.child(51, 42, "tensorboard", 1, 0)
			p.sleeps(51, 1, inSleep, "x")
		}, 50, socketstall.Stopped, false, ""},
		"children that sleep beside a rank in a lock": {func(p tree) {
			p.sleeps(42, 5, call("futex", 1), "futex_do_wait")
			p.child(51, 42, "tensorboard", 1, 0)
			p.sleeps(51, 1, inSleep, "x")
		}, noChild, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := held(t, tc.arrange)
			if tc.child == noChild {
				require.Nil(t, in.Holder)
				return
			}
			require.NotNil(t, in.Holder)
			require.EqualValues(t, tc.child, in.Holder.PID)
			require.Equal(t, tc.state, in.Holder.State)
			require.Equal(t, tc.awaited, in.Holder.Awaited)
			require.Equal(t, tc.where, in.Holder.Syscall)
		})
	}
}

func TestAFrozenChildHoldsARankUp(t *testing.T) {
	sys := t.TempDir()
	t.Setenv("HOST_SYS", sys)
	frozen := filepath.Join(sys, "fs/cgroup/freezer/held/freezer.state")
	require.NoError(t, os.MkdirAll(filepath.Dir(frozen), 0o755))
	require.NoError(t, os.WriteFile(frozen, []byte("FROZEN\n"), 0o600))
	in := held(t, func(p tree) {
		loader(p)
		p.childIn("D", 51, 42, "pt_data_worker", 100, 0)
		p.write("51/cgroup", "6:freezer:/held\n")
	})
	require.Equal(t, socketstall.Frozen, in.Holder.State)
	require.EqualValues(t, 51, in.Holder.PID)
}

// A worker that reads pages of a mapped file moves no bytes that are counted: it is woken.
func TestAWorkerWhoseFileAnswersHoldsNobodyUp(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.write("42/io", "rchar: 0\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n")
	loader(tree)
	tree.childIn("D", 51, 42, "pt_data_worker", 100, 0)
	l := newLooks(tree, p)
	for sleeps := range 4 {
		tree.sleeps(51, sleeps, "-1 0x0 0x0", "folio_wait_bit_common")
		in := l.look().Inside
		require.Nil(t, in.Holder)
		require.Equal(t, sleeps > 0, in.Answered)
	}
	tree.childIn("R", 51, 42, "pt_data_worker", 100, 0)
	tree.sleeps(51, 9, "running", "0")
	require.Nil(t, l.look().Inside.Holder, "answered, it waits for a CPU")
	tree.childIn("D", 51, 42, "pt_data_worker", 100, 0)
	tree.sleeps(51, 9, "-1 0x0 0x0", "folio_wait_bit_common")
	l.look()
	in := l.look().Inside
	require.False(t, in.Answered)
	require.Equal(t, socketstall.DiskSleep, in.Holder.State, "now it is not")
}
