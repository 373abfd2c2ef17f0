package procfs

import (
	"errors"
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
	for range 3 {
		_, err := Patiently(r.FS, "42/maps", hang)
		require.ErrorIs(t, err, ErrHung)
	}
	require.Equal(t, 1, r.Left())
	require.EqualValues(t, 3, r.Hung())
	r.patience = time.Minute
	v, err := Patiently(r.FS, "43/maps", func() (int, error) { return 7, nil })
	require.NoError(t, err, "others are read")
	require.Equal(t, 7, v)
	close(release)
	require.Eventually(t, func() bool { return r.Left() == 0 }, time.Minute, time.Millisecond)
	_, err = Patiently(r.FS, "42/maps", hang)
	require.NoError(t, err, "it is read again when it answers")
}

func TestReadsLeftBehindAreBounded(t *testing.T) {
	r := newTree(t)
	r.patience = time.Millisecond
	release := make(chan struct{})
	for i := range maxLeft {
		_, err := Patiently(r.FS, string(rune('a'+i)), func() (int, error) { <-release; return 0, nil })
		require.ErrorIs(t, err, ErrHung)
	}
	require.Equal(t, maxLeft, r.Left())
	_, err := Patiently(r.FS, "one more", func() (int, error) { t.Error("read although too many hang"); return 0, nil })
	require.ErrorIs(t, err, ErrHung)
	close(release)
	require.Eventually(t, func() bool { return r.Left() == 0 }, time.Minute, time.Millisecond)
}
