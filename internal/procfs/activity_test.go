package procfs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// put writes a file of a proc file system of a test.
func put(t *testing.T, root, name, content string) {
	t.Helper()
	file := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

func TestIOOfAProcess(t *testing.T) {
	root := t.TempDir()
	fs := Open(root)
	_, err := fs.IOBytes(42)
	require.ErrorIs(t, err, ErrGone)
	put(t, root, "42/io", "rchar: 1000\nwchar: 200\nsyscr: 7\nsyscw: 7\nread_bytes: 30\nwrite_bytes: 4\ncancelled_write_bytes: 99\n")
	n, err := fs.IOBytes(42)
	require.NoError(t, err)
	require.EqualValues(t, 1234, n)
	for _, bad := range []string{"", "rchar: 1\n", "rchar: many\nwchar: 2\nread_bytes: 3\nwrite_bytes: 4\n"} {
		put(t, root, "42/io", bad)
		_, err = fs.IOBytes(42)
		require.Error(t, err, "%q", bad)
	}
}

func TestStatusOfAMainThread(t *testing.T) {
	root := t.TempDir()
	put(t, root, "42/status", "Name:\tx\nState:\tR (running)\nMems_allowed:\t"+strings.Repeat("00000000,", 256)+"\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t2\n")
	status, err := Open(root).Status(42)
	require.NoError(t, err)
	require.Equal(t, ThreadStatus{State: 'R', Sleeps: 17, Switches: 19}, status)
	_, err = Open(root).Status(7)
	require.ErrorIs(t, err, ErrGone)
}

func TestWhatTwoLooksAtAThreadSay(t *testing.T) {
	of := func(state byte, sleeps, switches uint64) ThreadStatus {
		return ThreadStatus{State: state, Sleeps: sleeps, Switches: switches}
	}
	for name, tc := range map[string]struct {
		before, now  ThreadStatus
		ready, woken bool
	}{
		"it runs on, or had no turn":     {of('R', 3, 9), of('R', 3, 9), true, false},
		"it had a turn":                  {of('R', 3, 9), of('R', 3, 10), false, false},
		"it slept in between":            {of('R', 3, 9), of('R', 4, 10), false, true},
		"it sleeps":                      {of('S', 3, 9), of('S', 3, 9), false, false},
		"it was woken, and had no turn":  {of('S', 3, 9), of('R', 3, 9), false, true},
		"a disk answered":                {of('D', 3, 9), of('R', 3, 9), false, true},
		"it fell asleep":                 {of('R', 3, 9), of('S', 4, 10), false, true},
		"it was stopped, and goes on":    {of('T', 3, 9), of('R', 3, 9), false, false},
		"it was woken, and sleeps again": {of('S', 3, 9), of('D', 4, 10), false, true},
		"it has ended":                   {of('R', 3, 9), of('Z', 3, 10), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.ready, tc.now.Ready(tc.before))
			require.Equal(t, tc.woken, tc.now.Woken(tc.before))
		})
	}
}

func TestTurnsOfAThread(t *testing.T) {
	root := t.TempDir()
	put(t, root, "42/task/43/schedstat", "1 200 1\n")
	put(t, root, "42/task/44/schedstat", "nothing")
	turns, err := Open(root).ThreadTurns(42, 43)
	require.NoError(t, err)
	require.Equal(t, Turns{1, 200}, turns)
	for _, tid := range []uint32{44, 45} {
		_, err = Open(root).ThreadTurns(42, tid)
		require.Error(t, err)
	}
}

func TestWhereAThreadSleeps(t *testing.T) {
	read, futex := int64(0), int64(202)
	if runtime.GOARCH == "arm64" {
		read, futex = 63, 98
	}
	for name, tc := range map[string]struct {
		syscall, channel string
		want             Wait
	}{
		"in a lock":      {fmt.Sprintf("%d 0x55 0x189 0x0 0x0 0x0 0x0 0x7f 0x7f\n", futex), "futex_do_wait", Wait{"futex", "futex_do_wait", Negative, false, [3]uint64{0x55, 0x189}}},
		"reads a file":   {fmt.Sprintf("%d 0x1f 0x7f 0x1000 0x0 0x0 0x0 0x7f 0x7f\n", read), "fuse_simple_request", Wait{"read", "fuse_simple_request", 31, false, [3]uint64{0x1f, 0x7f, 0x1000}}},
		"a page fault":   {"-1 0x7ffd 0x7f01\n", "folio_wait_bit_common", Wait{Channel: "folio_wait_bit_common", FD: Negative}},
		"runs":           {"running\n", "0", Wait{FD: Negative, Awake: true}},
		"a new call":     {"9999 0x1 0x2\n", "x", Wait{"system call 9999", "x", Negative, false, [3]uint64{1, 2}}},
		"absurd numbers": {fmt.Sprintf("%d 0xffffffffffffffff 0x2\n", read), "", Wait{"read", "", Negative, false, [3]uint64{math.MaxUint64, 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root, "42/syscall", tc.syscall)
			put(t, root, "42/wchan", tc.channel)
			w, err := Open(root).Wait(42)
			require.NoError(t, err)
			require.Equal(t, tc.want, w)
		})
	}
	root := t.TempDir()
	put(t, root, "42/syscall", "read me 0x1\n")
	_, err := Open(root).Wait(42)
	require.Error(t, err)
}

// TestPipesOfAProcess: both ends are open in a process that has forked nobody yet.
func TestPipesOfAProcess(t *testing.T) {
	root := t.TempDir()
	put(t, root, "42/fdinfo/3", "pos:\t0\nflags:\t00\n")
	put(t, root, "42/fdinfo/4", "pos:\t0\nflags:\t02000001\nmnt_id:\t14\n")
	put(t, root, "42/fdinfo/5", "pos:\t0\nflags:\t01\n")
	put(t, root, "42/fdinfo/7", "flags:\tmany\n")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "42/fd"), 0o755))
	for fd, file := range map[string]string{"3": "pipe:[7]", "4": "pipe:[7]", "5": "pipe:[8]", "6": "pipe:[9]", "7": "pipe:[10]", "8": "/dev/null", "9": "socket:[11]"} {
		require.NoError(t, os.Symlink(file, filepath.Join(root, "42/fd", fd)))
	}
	pipes, err := Open(root).Pipes(42, 100)
	require.NoError(t, err)
	require.Equal(t, map[string]Ends{"pipe:[7]": {true, true}, "pipe:[8]": {false, true}, "pipe:[10]": {}}, pipes)
	pipes, err = Open(root).Pipes(42, 1)
	require.NoError(t, err)
	require.LessOrEqual(t, len(pipes), 1)
	_, err = Open(root).Pipes(7, 100)
	require.ErrorIs(t, err, ErrGone)
}

func TestFilesThatAnEpollWatches(t *testing.T) {
	root := t.TempDir()
	put(t, root, "42/fdinfo/5", "pos:\t0\nflags:\t02\ntfd:        8 events:       19 data:                8 pos:0\ntfd: 9 events: 1\ntfd: -4 events: 1\ntfd:\ntfd: 10 events: 1\n")
	watched, err := Open(root).Watched(42, 5, 2)
	require.NoError(t, err)
	require.Equal(t, []int{8, 9}, watched)
	_, err = Open(root).Watched(42, 6, 2)
	require.ErrorIs(t, err, ErrGone)
}

func TestProcessOfAPIDFD(t *testing.T) {
	root := t.TempDir()
	put(t, root, "42/fdinfo/3", "pos:\t0\nflags:\t02000002\nPid:\t4711\nNSpid:\t4711\t7\n")
	put(t, root, "42/fdinfo/4", "pos:\t0\nPid:\t-1\n") // it has ended
	put(t, root, "42/fdinfo/5", "pos:\t0\n")
	pid, err := Open(root).ProcessOf(42, 3)
	require.NoError(t, err)
	require.EqualValues(t, 4711, pid)
	for fd := 4; fd < 7; fd++ {
		_, err := Open(root).ProcessOf(42, fd)
		require.Error(t, err)
	}
}

func TestPathOfAnOpenFile(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "42/fd"), 0o755))
	require.NoError(t, os.Symlink("/mnt/ckpt/"+strings.Repeat("m", 600), filepath.Join(root, "42/fd/7")))
	path, err := Open(root).OpenFile(42, 7)
	require.NoError(t, err)
	require.Len(t, path, maxName)
	_, err = Open(root).OpenFile(42, 8)
	require.ErrorIs(t, err, ErrGone)
}

func TestFreezersOfBothVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		cgroup, file, content string
		frozen                bool
	}{
		"v1":                  {"6:freezer:/docker/c\n0::/\n", "freezer/docker/c/freezer.state", "FROZEN\n", true},
		"v1, thawed":          {"6:freezer:/docker/c\n", "freezer/docker/c/freezer.state", "THAWED\n", false},
		"v1, on its way":      {"6:freezer:/docker/c\n", "freezer/docker/c/freezer.state", "FREEZING\n", false},
		"v2":                  {"0::/kubepods.slice/c.scope\n", "kubepods.slice/c.scope/cgroup.events", "populated 1\nfrozen 1\n", true},
		"v2, thawed":          {"0::/kubepods.slice/c.scope\n", "kubepods.slice/c.scope/cgroup.events", "populated 1\nfrozen 0\n", false},
		"v2 beside v1":        {"6:freezer:/\n0::/c\n", "unified/c/cgroup.events", "populated 1\nfrozen 1\n", true},
		"another namespace's": {"0::/../../c\n", "c/cgroup.events", "frozen 1\n", true},
		"no cgroup":           {"", "x", "", false},
		"no lines of cgroups": {"freezer\nx:y\n", "x", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			t.Setenv("HOST_SYS", filepath.Join(root, "sys"))
			put(t, root, "42/cgroup", tc.cgroup)
			put(t, root, filepath.Join("sys/fs/cgroup", tc.file), tc.content)
			frozen, err := Open(root).Frozen(42)
			require.NoError(t, err)
			require.Equal(t, tc.frozen, frozen)
		})
	}
}

func TestSocketsOfAProcess(t *testing.T) {
	root := t.TempDir()
	fs := Open(root)
	_, _, err := fs.Sockets(42, 9)
	require.ErrorIs(t, err, ErrGone)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "42/fd"), 0o755))
	for fd, name := range []string{
		"socket:[12345]", "socket:[7]", "socket:[7]", "socket:[8]", // one is there twice
		"", "pipe:[12345]", "socket:[12345", "socket:[]", "socket:[-1]", "/tmp/socket:[1]", "/", "socket:[99999999999999999999]",
	} {
		if name != "" {
			require.NoError(t, os.Symlink(name, filepath.Join(root, "42/fd", fmt.Sprint(fd))))
		}
	}
	inodes, over, err := fs.Sockets(42, 9)
	require.NoError(t, err)
	require.ElementsMatch(t, []uint64{12345, 7, 8}, inodes)
	require.Zero(t, over)
	inodes, over, err = fs.Sockets(42, 1)
	require.NoError(t, err)
	require.Len(t, inodes, 1)
	require.GreaterOrEqual(t, over, 2)
	fs.SetForeign(true)
	_, _, err = fs.Sockets(42, 9)
	require.ErrorIs(t, err, ErrForeign)
	_, err = fs.OpenNamespace(42, "net")
	require.ErrorIs(t, err, ErrForeign)
}

func TestWhoHoldsAFile(t *testing.T) {
	root := t.TempDir()
	for link, name := range map[string]string{"42/fd/3": "/dev/fuse", "42/fd/4": "/dev/fuse", "43/fd/0": "/dev/null", "50/fd/7": "/dev/fuse"} {
		file := filepath.Join(root, link)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.Symlink(name, file))
	}
	fs := Open(root)
	for pid, want := range map[uint32]bool{42: true, 43: false, 50: false} {
		holds, names, err := fs.Holds(pid, "/dev/fuse", func(file string) bool { return file == filepath.Join(root, "42/fd/4") })
		require.NoError(t, err)
		require.Equal(t, want, holds, "%d: the other files of that name are none", pid)
		require.Positive(t, names)
	}
	_, _, err := fs.Holds(44, "/dev/fuse", nil)
	require.ErrorIs(t, err, ErrGone)
	fs.SetForeign(true)
	_, _, err = fs.Holds(42, "/dev/fuse", nil)
	require.ErrorIs(t, err, ErrForeign)
}
