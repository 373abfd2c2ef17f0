package uprobe

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// containerVariable is set for the process that is a container, with the folder of its root.
const containerVariable = "TRACECORE_TEST_CONTAINER"

// contained is code that a container has mapped.
var contained = strings.Repeat("code of a library", 1000)

// contain maps a library in a root of its own, on overlayfs as those of containers are.
func contain(dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", dir, "tmpfs", 0, ""),
		os.Mkdir(in("lower"), 0o755), os.Mkdir(in("upper"), 0o755), os.Mkdir(in("work"), 0o755), os.Mkdir(in("root"), 0o755),
		os.WriteFile(in("lower/libcuda.so.1"), []byte(contained), 0o600),
	} {
		if err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", in("root"), "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", in("lower"), in("upper"), in("work"))); err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return unix.Chdir(in("root")) }, func() error { return unix.PivotRoot(".", ".") },
		func() error { return unix.Unmount(".", unix.MNT_DETACH) }, func() error { return unix.Chdir("/") },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	fd, err := unix.Open("/libcuda.so.1", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Mmap(fd, 0, len(contained), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	}
	return err
}

// TestLibrariesOfAContainerAreOpened, by map_files and by their names.
func TestLibrariesOfAContainerAreOpened(t *testing.T) {
	if dir := os.Getenv(containerVariable); dir != "" {
		fmt.Println(contain(dir)) // it is heard
		time.Sleep(time.Hour)
	}
	hosttest.Require(t, "it makes a container")
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), containerVariable+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWNS}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	if line == unix.ENODEV.Error()+"\n" {
		t.Log("this kernel has no overlayfs")
		return
	}
	require.Equal(t, "<nil>\n", line)

	fs, pid := procfs.Open("").WithPatience(hosttest.Patience), uint32(cmd.Process.Pid)
	found, err := fs.Libraries(pid, "libcuda.so")
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "/libcuda.so.1", found[0].Path)
	byName := found[0]
	byName.Start, byName.End = 1, 2 // as where map_files may not be read
	for _, m := range []procfs.Mapping{found[0], byName} {
		file, err := fs.OpenMapped(pid, m)
		require.NoError(t, err, m.Addresses())
		content, err := io.ReadAll(file)
		require.NoError(t, err)
		require.Equal(t, contained, string(content))
		require.NoError(t, file.Close())
	}
}
