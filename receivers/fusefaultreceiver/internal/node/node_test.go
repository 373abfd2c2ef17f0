//go:build linux

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// newMachine is a machine whose /proc and /sys are folders of the test's.
func newMachine(t *testing.T) (n *Node, root string) {
	root = t.TempDir()
	return Open(filepath.Join(root, "proc"), filepath.Join(root, "sys")), root
}

func write(t *testing.T, path, content string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

const table = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:52 / /mnt/data rw,nosuid shared:20 - fuse.juicefs JuiceFS:vol rw,user_id=0
41 22 0:52 /set/a /var/lib/kubelet/pods/x/volume-subpaths/a rw shared:20 - fuse.juicefs JuiceFS:vol rw
42 22 0:52 / /a rw - fuse.juicefs JuiceFS:vol rw
43 22 0:53 / /my\040data\012set rw - fuse.s3fs my\040bucket rw
44 22 0:54
45 22 0:54 / /broken\9 rw - fuse x rw
46 22 0:54 / /sound rw - fuse.gcsfuse bucket rw
47 22 10:52 / /other rw - ext4 /dev/sdb rw
`

func TestMountIsFoundByItsDeviceNumber(t *testing.T) {
	n, root := newMachine(t)
	write(t, filepath.Join(root, "proc/1/mountinfo"), table)
	write(t, filepath.Join(root, "proc/42/mountinfo"), "70 1 0:52 /set /data ro - fuse.juicefs JuiceFS:vol rw\n")
	for name, tc := range map[string]struct {
		minor     uint32
		processes []string
		want      Mount
	}{
		"the whole before a part, then the shortest path": {52, []string{"1"}, Mount{"/a", "JuiceFS:vol", "fuse.juicefs", "1"}},
		"as the first process sees it":                    {52, []string{"42", "1"}, Mount{"/data", "JuiceFS:vol", "fuse.juicefs", "42"}},
		"past a process that is gone":                     {52, []string{"77", "1"}, Mount{"/a", "JuiceFS:vol", "fuse.juicefs", "1"}},
		"past a process that does not have it":            {53, []string{"42", "1"}, Mount{"/my data\nset", "my bucket", "fuse.s3fs", "1"}},
		"past odd lines":                                  {54, []string{"1"}, Mount{"/sound", "bucket", "fuse.gcsfuse", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, ok := n.Mount(0, tc.minor, tc.processes...)
			require.True(t, ok)
			require.Equal(t, tc.want, found)
		})
	}
	_, ok := n.Mount(0, 99, "42", "1")
	require.False(t, ok)
}

func TestMountIsGoneOnlyWhereTheTableCanBeRead(t *testing.T) {
	n, root := newMachine(t)
	write(t, filepath.Join(root, "proc/1/mountinfo"), table)
	require.False(t, n.Gone(0, 52, "1"))
	require.True(t, n.Gone(0, 99, "1"))
	require.False(t, n.Gone(0, 52, "42"))
}

func TestHostileMountTable(t *testing.T) {
	n, root := newMachine(t)
	long := "50 1 0:60 / /" + strings.Repeat("x", 5000) + "\xff rw - fuse \xff\xfe rw\n"
	write(t, filepath.Join(root, "proc/1/mountinfo"), long)
	found, ok := n.Mount(0, 60, "1")
	require.True(t, ok)
	require.Len(t, found.Point, maxText)
	require.Equal(t, "?", found.Source)
	write(t, filepath.Join(root, "proc/2/mountinfo"), strings.Repeat("y", maxMountLine+1)+"\n"+table)
	_, ok = n.Mount(0, 52, "2")
	require.False(t, ok)
	require.False(t, n.Gone(0, 52, "2"), "a table that cannot be read says nothing")
}

func FuzzFind(f *testing.F) {
	f.Add(table)
	f.Add("1 2 0:52 / \\ rw - fuse\n\n 0:52")
	f.Fuzz(func(t *testing.T, text string) {
		found, _ := find(strings.NewReader(text), 0, 52)
		if found != nil {
			require.LessOrEqual(t, len(found.Point), 3*maxText)
		}
	})
}

// statLine is a stat line of a process with that state letter.
func statLine(name string, letter byte, threads int, started uint64) string {
	return fmt.Sprintf("7 (%s) %c 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 %d 0 %d 1000 10 0", name, letter, threads, started)
}

func TestProcessStates(t *testing.T) {
	for line, want := range map[string]Process{
		statLine("juicefs", 'S', 9, 77): {Name: "juicefs", State: Alive, StartTicks: 77},
		statLine("a) T (b", 'D', 1, 77): {Name: "a) T (b", State: Alive, StartTicks: 77},
		statLine("x", 'T', 9, 77):       {Name: "x", State: Stopped, StartTicks: 77},
		statLine("x", 't', 9, 77):       {Name: "x", State: Stopped, StartTicks: 77},
		statLine("x", 'Z', 1, 77):       {Name: "x", State: Gone, StartTicks: 77},
		statLine("leader", 'Z', 3, 77):  {Name: "leader", State: Alive, StartTicks: 77},
		statLine("kworker", 'I', 1, 77): {Name: "kworker", State: Alive, StartTicks: 77},
	} {
		got, err := parseStat(line)
		require.NoError(t, err, line)
		require.Equal(t, want, got)
	}
	for _, line := range []string{"", "7", ")(", "7 (x) S", "7 (x) SS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", strings.Replace(statLine("x", 'S', 1, 77), " 77 ", " late ", 1)} {
		_, err := parseStat(line)
		require.Error(t, err, line)
	}
}

func FuzzStat(f *testing.F) {
	f.Add(statLine("x", 'T', 9, 77))
	f.Add("1 (()) Z 0 0 0 0 0 0")
	f.Fuzz(func(t *testing.T, line string) {
		p, err := parseStat(line)
		require.Equal(t, err != nil, p.State == "")
	})
}

func TestProcessesOfThisMachine(t *testing.T) {
	n := Open("", "")
	self := uint32(os.Getpid())
	p := n.Process(self)
	require.Equal(t, Alive, p.State)
	require.NotZero(t, p.StartTicks)
	require.False(t, n.Ended(self, uint32(unix.Gettid())))
	const never = 1 << 30 // above the largest pid, PID_MAX_LIMIT in include/linux/threads.h
	require.Equal(t, Gone, n.Process(never).State)
	require.True(t, n.Ended(never, never))
	major, minor := procDevice(t)
	root, ok := n.Mount(major, minor, OfSelf)
	require.True(t, ok)
	require.Equal(t, "/proc", root.Point)
}

// procDevice is the device number of /proc, which is mounted wherever this runs.
func procDevice(t *testing.T) (major, minor uint32) {
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/proc", &st))
	return unix.Major(st.Dev), unix.Minor(st.Dev)
}

func TestForeignNumbersAreNobody(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/1/ns"), 0o755))
	require.NoError(t, os.Symlink("pid:[4026532999]", filepath.Join(root, "proc/1/ns/pid")))
	write(t, filepath.Join(root, "proc/42/mountinfo"), table)
	write(t, filepath.Join(root, "proc/self/mountinfo"), table)
	write(t, filepath.Join(root, "proc/42/stat"), statLine("x", 'T', 1, 1))
	n := Open(filepath.Join(root, "proc"), "")
	require.True(t, n.Foreign())
	require.Equal(t, filepath.Join(root, "proc"), n.Root())
	_, ok := n.Mount(0, 52, "42")
	require.False(t, ok)
	found, ok := n.Mount(0, 52, "42", OfSelf)
	require.True(t, ok)
	require.Equal(t, OfSelf, found.SeenBy)
	require.Equal(t, Unknown, n.Process(42).State)
	require.False(t, n.Ended(42, 42))
}

func TestHostProcOfTheEnvironment(t *testing.T) {
	t.Setenv("HOST_PROC", "/host/proc")
	require.Equal(t, "/host/proc", Open("", "").Root())
	require.Equal(t, "/other", Open("/other", "").Root())
}

func TestWaitingIsTheConnectionsOwnCount(t *testing.T) {
	n, root := newMachine(t)
	write(t, filepath.Join(root, "sys/fs/fuse/connections/52/waiting"), "17\n")
	write(t, filepath.Join(root, "sys/fs/fuse/connections/8388609/waiting"), "2\n")
	write(t, filepath.Join(root, "sys/fs/fuse/connections/53/waiting"), "many\n")
	waiting, known := n.Waiting(0, 52)
	require.True(t, known)
	require.EqualValues(t, 17, waiting)
	waiting, known = n.Waiting(8, 1)
	require.True(t, known, "a block device has its whole number")
	require.EqualValues(t, 2, waiting)
	for _, minor := range []uint32{53, 54} {
		_, known = n.Waiting(0, minor)
		require.False(t, known)
	}
}

func TestReadThatHangsIsLeftBehindAndBounded(t *testing.T) {
	n, _ := newMachine(t)
	n.patience = time.Millisecond
	release := make(chan struct{})
	hang := func() (int, error) { <-release; return 1, nil }
	for range maxStuck {
		_, err := patiently(n, hang)
		require.ErrorIs(t, err, errStuck)
	}
	_, err := patiently(n, func() (int, error) { t.Error("read although too many hang"); return 0, nil })
	require.ErrorIs(t, err, errStuck)
	require.EqualValues(t, maxStuck+1, n.StuckReads())
	close(release)
	n.patience = time.Minute
	require.Eventually(t, func() bool {
		v, err := patiently(n, func() (int, error) { return 7, nil })
		return err == nil && v == 7
	}, time.Minute, time.Millisecond)
}

func BenchmarkProcess(b *testing.B) {
	n := Open("", "")
	for b.Loop() {
		n.Process(1)
	}
}
