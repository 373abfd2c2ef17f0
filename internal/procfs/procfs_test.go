package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	patience = time.Minute // a busy machine is no kernel that does not answer
	goleak.VerifyTestMain(m)
}

// tree is a mount of proc that is a folder of the test's.
type tree struct {
	*FS
	t *testing.T
}

func newTree(t *testing.T) tree { return tree{Open(t.TempDir()), t} }

func (r tree) write(name, content string) {
	file := filepath.Join(r.Root(), name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(r.t, os.WriteFile(file, []byte(content), 0o600))
}

func TestRootComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOST_PROC", "/host/proc")
	require.Equal(t, "/host/proc", Open("").Root())
	require.Equal(t, "/other", Open("/other").Root())
	t.Setenv("HOST_PROC", "")
	require.Equal(t, "/proc", Open("").Root())
}

func TestErrorsSayWhy(t *testing.T) {
	r := newTree(t)
	for cause, want := range map[error]error{
		fs.ErrNotExist: ErrGone, syscall.ESRCH: ErrGone, fs.ErrPermission: ErrDenied, syscall.EACCES: ErrDenied, syscall.EPERM: ErrDenied,
	} {
		_, err := Patiently(r.FS, "stat", func() (int, error) { return 0, cause })
		require.ErrorIs(t, err, want)
	}
	other := errors.New("input/output error")
	_, err := Patiently(r.FS, "stat", func() (int, error) { return 0, other })
	require.EqualError(t, err, "read stat: input/output error")
	_, err = r.Stat(7)
	require.ErrorIs(t, err, ErrGone)
	require.ErrorContains(t, err, "7/stat")
}

func TestForeignNumbersAreNobody(t *testing.T) {
	r := newTree(t)
	r.write("42/stat", statLine("x", "S", "0", "1"))
	r.write("42/mountinfo", table)
	r.write("self/mountinfo", table)
	r.SetForeign(true)
	_, statErr := r.Stat(42)
	_, mapsErr := r.Libraries(42, "libc.so")
	_, namespaceErr := r.Namespace(42, "net")
	_, mountErr := r.Mount(0, 52, "42")
	for _, err := range []error{statErr, mapsErr, namespaceErr, mountErr} {
		require.ErrorIs(t, err, ErrForeign)
	}
	found, err := r.Mount(0, 52, "42", OfSelf)
	require.NoError(t, err)
	require.Equal(t, OfSelf, found.SeenBy)
}

func TestAnotherPIDNamespaceIsSeen(t *testing.T) {
	for link, want := range map[string]bool{"pid:[4026532999]": true, "pid:[4026531836]": false, "": false, "net:[1]": false} {
		r := newTree(t)
		require.NoError(t, os.MkdirAll(filepath.Join(r.Root(), "1/ns"), 0o755))
		if link != "" {
			require.NoError(t, os.Symlink(link, filepath.Join(r.Root(), "1/ns/pid")))
		}
		require.Equal(t, want, r.OtherNamespace(), link)
	}
}

func TestFileIsReadUpToItsLimit(t *testing.T) {
	r := newTree(t)
	for name, tc := range map[string]struct {
		size, limit, want int
		cut               bool
	}{
		"shorter": {99, 100, 99, false}, "as long": {100, 100, 100, false}, "longer": {101, 100, 100, true},
		"empty": {0, 100, 0, false}, "much longer": {70000, 9000, 9000, true}, "long": {70000, 80000, 70000, false},
	} {
		t.Run(name, func(t *testing.T) {
			r.write("file", strings.Repeat("x", tc.size))
			file, err := r.ReadFile(filepath.Join(r.Root(), "file"), tc.limit)
			require.NoError(t, err)
			require.Equal(t, tc.cut, file.Cut)
			require.Len(t, file.Content, tc.want)
		})
	}
	_, err := r.ReadFile(r.Root(), 10)
	require.Error(t, err, "a folder")
}

func TestStuckProcessCostsOneRead(t *testing.T) {
	r := newTree(t)
	r.patience = time.Millisecond
	release := make(chan struct{})
	hang := func() (int, error) { <-release; return 1, nil }
	for _, file := range []string{"maps", "environ", "pagemap", "map_files/1000-2000", "maps"} {
		_, err := Patiently(r.FS, r.path(42, file), hang)
		require.ErrorIs(t, err, ErrHung)
	}
	require.Equal(t, 1, r.Left())
	require.GreaterOrEqual(t, r.Hung(), uint64(5))
	r.patience = time.Minute
	for _, file := range []string{r.path(42, "stat"), r.path(42, "task", "42", "wchan"), r.path(43, "maps")} {
		v, err := Patiently(r.FS, file, func() (int, error) { return 7, nil })
		require.NoError(t, err, "what needs no memory is read, and others are")
		require.Equal(t, 7, v)
	}
	close(release)
	require.Eventually(t, func() bool { return r.Left() == 0 }, time.Minute, time.Millisecond)
	_, err := Patiently(r.FS, r.path(42, "maps"), hang)
	require.NoError(t, err, "it is read again when it answers")
}

// A file that processes share is read for the others while one of them hangs.
func TestAFileIsReadWhileItsProcessHangs(t *testing.T) {
	r := newTree(t)
	r.patience = time.Millisecond
	release := make(chan struct{})
	hang := func() (int, error) { <-release; return 1, nil }
	_, err := Patiently(r.FS, r.path(42, "environ"), hang)
	require.ErrorIs(t, err, ErrHung)
	for range 2 {
		_, err = PatientlyOf(r.FS, 42, "/lib/libslow.so", hang)
		require.ErrorIs(t, err, ErrHung)
	}
	require.Equal(t, 2, r.Left())
	r.patience = time.Minute
	_, err = PatientlyOf(r.FS, 42, "/lib/libc.so", func() (int, error) { return 1, nil })
	require.NoError(t, err)
	close(release)
	require.Eventually(t, func() bool { return r.Left() == 0 }, time.Minute, time.Millisecond)
}

// pod puts a process into a pod of that number, as root of its container.
func (r tree) pod(pid uint32, pod int) {
	r.write(fmt.Sprintf("%d/cgroup", pid), fmt.Sprintf("0::/kubepods/pod00000000-0000-0000-0000-%012d/%064d\n", pod, pod))
	r.write(fmt.Sprintf("%d/status", pid), "Uid:\t0\t0\t0\t0\n")
	r.write(fmt.Sprintf("%d/environ", pid), "RANK=3")
	r.write(fmt.Sprintf("%d/stat", pid), statLine("x", "S", "0", "1"))
}

// fills leaves behind reads of so many processes of a pod.
func (r tree) fills(pod, processes int, release chan struct{}) {
	for i := range processes {
		pid := uint32(1000*pod + i)
		r.pod(pid, pod)
		of := r.subjectOf(r.path(pid, "environ"))
		r.patience = time.Minute // a busy machine is no reason not to know
		whose := r.ownerOf(of)
		require.NotEqual(r.t, unknown, whose)
		r.patience = time.Millisecond
		_, err := patiently(r.FS, "environ", of, func() string { return whose }, func() (int, error) { <-release; return 0, nil })
		require.ErrorIs(r.t, err, ErrHung)
	}
	r.patience = time.Minute
}

// Processes of one tenant hang, as many as there may be. All run as root.
func TestStuckReadsOfOneTenantLeaveRoomForOthers(t *testing.T) {
	r := newTree(t)
	release := make(chan struct{})
	r.fills(1, 8, release)
	r.pod(50, 1)
	_, err := r.Environ(50)
	require.NoError(t, err, "eight ranks may hang, and others of the tenant are read")
	r.fills(2, leftOfOne, release)
	r.pod(51, 2)
	_, err = r.Environ(51)
	require.ErrorIs(t, err, ErrHung, "the tenant has its share")
	_, err = r.Stat(51)
	require.NoError(t, err, "what needs no memory is read")
	r.pod(42, 3)
	_, err = r.Environ(42)
	require.NoError(t, err, "a rank of another tenant is read")
	close(release)
	require.Eventually(t, func() bool { return r.Left() == 0 }, time.Minute, time.Millisecond)
	_, err = r.Environ(51)
	require.NoError(t, err)
}

// Many tenants at once leave room for those that have none, until there is no more.
func TestReadsLeftBehindAreBounded(t *testing.T) {
	r := newTree(t)
	release := make(chan struct{})
	for pod := range (maxLeft - leftForNew) / leftOfOne {
		r.fills(1+pod, leftOfOne, release)
	}
	for i := range leftForNew {
		pod := 100 + i
		r.pod(uint32(50+i), pod)
		_, err := r.Environ(uint32(50 + i))
		require.NoError(t, err, "a tenant that has none")
		r.fills(pod, 1, release)
		_, err = r.Environ(uint32(50 + i))
		require.ErrorIs(t, err, ErrHung, "what is left is for others")
	}
	require.Equal(t, maxLeft, r.Left())
	r.pod(42, 1000)
	_, err := r.Environ(42)
	require.ErrorIs(t, err, ErrHung, "no more")
	_, err = r.Stat(42)
	require.NoError(t, err, "what needs no memory")
	_, err = r.PIDs()
	require.NoError(t, err)
	close(release)
	require.Eventually(t, func() bool { return r.Left() == 0 }, time.Minute, time.Millisecond)
}

// Processes that hide whose they are have one share together.
func TestAReadIsItsTenants(t *testing.T) {
	r := newTree(t)
	r.pod(42, 1)
	require.Equal(t, nobody, r.ownerOf(r.subjectOf(r.Root())))
	require.Equal(t, nobody, r.ownerOf(r.subjectOf("/sys/kernel")))
	require.Equal(t, "00000000-0000-0000-0000-000000000001", r.ownerOf(r.subjectOf(r.path(42, "maps"))))
	require.Equal(t, unknown, r.ownerOf(r.subjectOf(r.path(43, "maps"))))
	r.patience = time.Millisecond
	require.NoError(t, os.Remove(r.path(42, "cgroup")))
	require.NoError(t, syscall.Mkfifo(r.path(42, "cgroup"), 0o600)) // holds its reader
	require.Equal(t, unknown, r.ownerOf(r.subjectOf(r.path(42, "maps"))))
	require.Equal(t, 1, r.Left())
	writer, err := os.OpenFile(r.path(42, "cgroup"), os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Eventually(t, func() bool { return r.Left() == 0 }, time.Minute, time.Millisecond)
}
