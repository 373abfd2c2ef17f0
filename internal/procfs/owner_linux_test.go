package procfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that may not be dumped has files of root; its folder is its user's.
func TestOwnerIsWhoAProcessActsAs(t *testing.T) {
	fs := Open("/proc")
	require.EqualValues(t, os.Geteuid(), fs.Owner(uint32(os.Getpid())))
	require.Zero(t, fs.Owner(1<<31), "there is no such process")
	if os.Getuid() != 0 {
		t.Skip("starts a program as another user: run as root")
	}
	const nobody = 65534
	program, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/tmp", "owner") // others may go through it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	hidden := filepath.Join(dir, "sleep") // who may not read a program may not dump it
	require.NoError(t, os.WriteFile(hidden, program, 0o600))
	require.NoError(t, os.Chmod(hidden, 0o711))
	cmd := exec.Command(hidden, "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pid := uint32(cmd.Process.Pid) //nolint:gosec // pid_t
	info, err := os.Lstat(fs.path(pid, "environ"))
	require.NoError(t, err)
	require.Zero(t, info.Sys().(*syscall.Stat_t).Uid)
	require.EqualValues(t, nobody, fs.Owner(pid))
}
