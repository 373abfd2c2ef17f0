//go:build linux && (amd64 || arm64)

package kernellog

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/bpf/kmsg/kmsgtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// named starts a shell whose process has this name.
func named(t *testing.T, name, script string) *exec.Cmd {
	t.Helper()
	shell, err := exec.LookPath("busybox")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Symlink(shell, file))
	cmd := &exec.Cmd{Path: file, Args: []string{"sh", "-c", script}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// The word of the watchdog of CPUs: a CPU does nothing but one interrupt for seconds. The
// process that it interrupted has a name that lies about its number.
func TestASoftLockupIsProven(t *testing.T) {
	if !inMachine(t) {
		return
	}
	hosttest.SetSysctl(t, "kernel/watchdog_thresh", "1") // a CPU may be stuck for twice that
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	const name, cpu = "a:77] [b:78", 1
	victim := named(t, name, "while :; do :; done")
	var set unix.CPUSet
	set.Set(cpu)
	require.NoError(t, unix.SchedSetaffinity(victim.Process.Pid, &set))
	kmsgtest.HoldCPU(t, victim.Process.Pid)
	f := awaitProven(t, probe, "soft lockup", func(f Fault) bool {
		if attributesOf(f)["kernelevents.fault"] == "hard_lockup" { // where one CPU watches the other, which arm64 does
			t.Logf("%s wrote %q", f.Origin, f.Text)
			require.EqualValues(t, cpu, attributesOf(f)["kernelevents.cpu"])
		}
		// On a host without a free CPU the machine's own threads are stuck at times (khugepaged).
		return attributesOf(f)["kernelevents.fault"] == "soft_lockup" && f.OwnerPID == uint32(victim.Process.Pid)
	})
	require.Equal(t, metadata.EventHostLockup, f.Key.Event)
	require.EqualValues(t, cpu, attributesOf(f)["kernelevents.cpu"])
	require.Equal(t, name, f.OwnerName)
}

// The word of the watchdog of tasks: a process waits for a server of FUSE that has its
// question and says nothing, and was killed, so that it waits without end.
func TestAHungTaskIsProven(t *testing.T) {
	if !inMachine(t) {
		return
	}
	hosttest.SetSysctl(t, "kernel/hung_task_timeout_secs", "1")
	probe, err := kmsg.Open(kmsg.Options{})
	require.NoError(t, err)
	defer probe.Close()
	device, point := silentMount(t)
	defer unix.Close(device) // ends every process that waits for it
	const name = "a:77 blocked fo"
	victim := named(t, name, fmt.Sprintf("exec 3<%s/file", point))
	readRequest(t, device)
	require.NoError(t, victim.Process.Kill())
	f := awaitProven(t, probe, "hung task", func(f Fault) bool { return f.Key.Event == metadata.EventHostLockup })
	require.Equal(t, "hung_task", attributesOf(f)["kernelevents.fault"])
	require.EqualValues(t, victim.Process.Pid, f.OwnerPID)
	require.Equal(t, name, f.OwnerName)
	require.EqualValues(t, 1, attributesOf(f)["kernelevents.blocked_seconds"])
}

// silentMount mounts, until the test ends, a file system of FUSE whose server, the device, has
// said that it is there.
func silentMount(t *testing.T) (device int, point string) {
	t.Helper()
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	point = filepath.Join(t.TempDir(), "mount")
	require.NoError(t, os.Mkdir(point, 0o755))
	require.NoError(t, unix.Mount("kernellog", point, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device)))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(point, unix.MNT_DETACH)) })
	init := readRequest(t, device)
	// struct fuse_out_header and struct fuse_init_out of 7.31 (include/uapi/linux/fuse.h).
	const head, body = 16, 64
	answer := make([]byte, head+body)
	binary.NativeEndian.PutUint32(answer, head+body)
	copy(answer[8:], init[8:16])
	binary.NativeEndian.PutUint32(answer[head:], 7)
	binary.NativeEndian.PutUint32(answer[head+4:], 31)
	binary.NativeEndian.PutUint32(answer[head+20:], 4096) // max_write
	_, err = unix.Write(device, answer)
	require.NoError(t, err)
	return device, point
}

// readRequest takes a question of the kernel.
func readRequest(t *testing.T, device int) []byte {
	t.Helper()
	request := make([]byte, 64<<10)
	n, err := unix.Read(device, request)
	require.NoError(t, err)
	return request[:n]
}
