package ncclfrreceiver

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// withoutRights runs fn as a user to whom nothing here belongs: root may read
// every file. The other threads stay who they are (setfsuid(2)).
func withoutRights(t *testing.T, fn func()) {
	if os.Geteuid() != 0 {
		fn()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const nobody = 65534
	_, err := unix.SetfsuidRetUid(nobody)
	require.NoError(t, err)
	defer func() {
		_, err := unix.SetfsuidRetUid(0)
		require.NoError(t, err)
	}()
	fn()
}

// TestAFileThatMayNotBeReadIsSaidOnceAndTriedAgain until it may.
func TestAFileThatMayNotBeReadIsSaidOnceAndTriedAgain(t *testing.T) {
	r := newRig(t)
	require.NoError(t, os.Chmod(filepath.Dir(r.dir), 0o755))
	r.put("rank_0", "missing/rank_0.pickle")
	path := filepath.Join(r.dir, "rank_0")
	require.NoError(t, os.Chmod(path, 0))
	r.make()
	withoutRights(t, func() {
		r.receiver.poll(t.Context())
		r.receiver.poll(t.Context())
		_, err := readWhole(path, 1<<20)
		require.ErrorContains(t, err, "permission denied: give the collector the right to read it")
	})
	require.Equal(t, map[string]int64{"unreadable": 1}, r.refusals())
	require.NoError(t, os.Chmod(path, 0o644))
	withoutRights(t, func() { r.receiver.poll(t.Context()) })
	require.Equal(t, []string{waits}, r.sink.said())
}
