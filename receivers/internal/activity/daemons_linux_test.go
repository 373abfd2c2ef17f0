package activity

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// pretends is what the test binary does that has a file of its own by the name of the device open.
const pretends = "pretends to serve a mount"

func pretend() {
	err := syscall.Mount("none", "/dev", "tmpfs", 0, "")
	if err == nil {
		err = os.WriteFile(fuseDevice, nil, 0o600)
	}
	if err == nil {
		_, err = syscall.Open(fuseDevice, syscall.O_RDONLY, 0)
	}
	fmt.Println(err) // it is heard
	time.Sleep(time.Hour)
}

// A user who may make namespaces has all rights in them, and any file under any name.
func TestWhoPretendsToServeAMount(t *testing.T) {
	hosttest.Require(t, "it makes namespaces and opens the device of FUSE")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variable+"="+pretends)
	cmd.Stderr = os.Stderr
	rootAlone := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: rootAlone, GidMappings: rootAlone,
	}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "<nil>\n", line)

	fs, other := thisProc(), uint32(cmd.Process.Pid)
	holds, _, err := fs.Holds(other, fuseDevice, func(string) bool { return true })
	require.NoError(t, err)
	require.True(t, holds, "by its name it does")
	holds, _, err = fs.Holds(other, fuseDevice, isFUSE)
	require.NoError(t, err)
	require.False(t, holds)
	all, err := fs.Administers(other)
	require.NoError(t, err)
	require.False(t, all)

	me := uint32(os.Getpid())
	all, err = fs.Administers(me)
	require.NoError(t, err)
	require.True(t, all, "root of the host")
	device, err := os.OpenFile(fuseDevice, os.O_RDWR, 0)
	if err != nil {
		t.Log("this kernel has no FUSE")
		return
	}
	defer device.Close()
	d := daemons{isFUSE: isFUSE}
	found, _ := d.look(fs, time.Now(), me)
	require.NotNil(t, found)
	require.True(t, found.all)
}
