package fusefaultreceiver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// newNode is a machine whose /proc and /sys are folders of the test's.
func newNode(t *testing.T, files map[string]string) machine {
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	t.Setenv("HOST_SYS", filepath.Join(root, "sys"))
	m := openMachine(&Config{ProcRoot: filepath.Join(root, "proc")})
	m.(node).WithPatience(hosttest.Patience)
	return m
}

func TestWaitingIsTheConnectionsOwnCount(t *testing.T) {
	n := newNode(t, map[string]string{
		"sys/fs/fuse/connections/52/waiting": "17\n", "sys/fs/fuse/connections/8388609/waiting": "2\n", "sys/fs/fuse/connections/53/waiting": "many\n",
	})
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

func TestMountIsGoneOnlyWhereTheTableCanBeRead(t *testing.T) {
	n := newNode(t, map[string]string{"proc/1/mountinfo": "40 22 0:52 / /mnt/data rw - fuse.juicefs JuiceFS:vol rw\n"})
	found, ok := n.Mount(0, 52, "42", procfs.OfInit)
	require.True(t, ok)
	require.Equal(t, procfs.Mount{Point: "/mnt/data", Source: "JuiceFS:vol", Type: "fuse.juicefs", Minor: 52, SeenBy: "1"}, found)
	require.False(t, n.Gone(0, 52, "1"))
	require.True(t, n.Gone(0, 99, "1"))
	require.False(t, n.Gone(0, 52, "42"))
	require.True(t, n.Ended(42, 42))
	require.Equal(t, procfs.Gone, n.Process(42).State)
	require.Zero(t, n.StuckReads())
}
