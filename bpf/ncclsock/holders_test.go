//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// TestHoldersShareTheRoom: processes are read where HOST_PROC has them. A socket counts once, for
// the first that holds it, and one that holds many leaves their part to the others.
func TestHoldersShareTheRoom(t *testing.T) {
	root := t.TempDir()
	holds := func(pid, first, last int) {
		folder := filepath.Join(root, fmt.Sprint(pid))
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "fd"), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "ns"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "ns/net"), nil, 0o600))
		for inode := first; inode <= last; inode++ {
			require.NoError(t, os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(folder, "fd", fmt.Sprint(inode))))
		}
	}
	holds(1, 1, 60)
	holds(2, 51, 62) // has ten of them, too: a child
	holds(3, 101, 105)
	t.Setenv("HOST_PROC", root)

	h := findHolders(procfs.Open("").WithPatience(hosttest.Patience), []uint32{1, 2, 3, 4}, 1000)
	defer h.close()
	require.Len(t, h.sockets, 67)
	require.EqualValues(t, 1, h.sockets[55])
	require.EqualValues(t, 2, h.sockets[62])
	require.EqualValues(t, 3, h.sockets[101])
	require.Len(t, h.namespaces, 3)
	require.Zero(t, h.over)
	require.Zero(t, h.unreadable, "a process that is gone holds none")

	few := findHolders(procfs.Open("").WithPatience(hosttest.Patience), []uint32{1, 3}, 20)
	defer few.close()
	require.Len(t, few.sockets, 20)
	require.EqualValues(t, 3, few.sockets[103])
	require.Equal(t, 45, few.over)

	require.NoError(t, os.Remove(filepath.Join(root, "3/ns/net")))
	require.NoError(t, os.Symlink("net", filepath.Join(root, "3/ns/net"))) // a loop
	broken := findHolders(procfs.Open("").WithPatience(hosttest.Patience), []uint32{3}, 20)
	defer broken.close()
	require.Equal(t, 1, broken.unreadable)
	require.Len(t, broken.sockets, 5)
}
