//go:build linux

package cudaoom

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// TestNoProbeWhereItEndsProcessesInContainers: the child of the self-test makes a
// system call under its filter, as return probes make one on Linux 6.11 to 6.13. It
// makes it itself, and getpid, since newer kernels let that of return probes pass.
func TestNoProbeWhereItEndsProcessesInContainers(t *testing.T) {
	privtest.Require(t)
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(page)) }()
	copy(page, []byte{0xb8, unix.SYS_GETPID, 0, 0, 0, 0x0f, 0x05, 0xc3}) // mov $39, %eax; syscall; ret
	require.NoError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC))

	_, err = openConfined(Options{}, func(size uint64) (bool, error) {
		return standin.ConfinedCall(uintptr(unsafe.Pointer(unsafe.SliceData(page))), size)
	})
	var none *ladder.NoRung
	require.ErrorAs(t, err, &none)
	require.Empty(t, none.Report.Rung)
	require.Len(t, none.Report.Attempts, 1)
	require.Equal(t, probe.Unsupported, none.Report.Attempts[0].Outcome)
	require.Contains(t, none.Report.Attempts[0].Reason, "ends every process under a seccomp filter")
	require.Contains(t, none.Report.Attempts[0].Hint, "update to Linux 6.14")
}
