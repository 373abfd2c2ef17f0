//go:build linux

package hangfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// gone is the number of a process that has ended and was waited for.
func gone(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	require.NoError(t, cmd.Run())
	return cmd.Process.Pid
}

func TestFoldersOfKilledProcessesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	namespace, err := pidNamespace()
	require.NoError(t, err)
	of := func(namespace uint64, pid int) string {
		return filepath.Join(dir, fmt.Sprintf("hangfs-%d-%d-1", namespace, pid))
	}
	dead := gone(t)
	left := of(namespace, dead)
	foreign, alive, full := of(namespace+1, dead), of(namespace, os.Getppid()), left+"2"
	other := filepath.Join(dir, fmt.Sprintf("hangfs-%d-x", namespace))
	for _, folder := range []string{left, foreign, alive, full, other} {
		require.NoError(t, os.Mkdir(folder, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(full, "file"), nil, 0o600))
	link := left + "3"
	require.NoError(t, os.Symlink(alive, link))

	made, err := makeFolder()
	require.NoError(t, err)
	require.NoDirExists(t, left)
	for _, kept := range []string{foreign, alive, full, other, made} {
		require.DirExists(t, kept)
	}
	_, err = os.Lstat(link)
	require.NoError(t, err, "a link is no folder of ours")
}
