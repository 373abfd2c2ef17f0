//go:build linux

// Package privtest decides whether a test that loads probes runs. A package whose
// tests import it also runs on every kernel of vmtests.
package privtest

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// Require skips the test, with the reason, in `go test -short` and where this process
// may not load BPF. With CI=true in the environment the latter is a failure: there a
// skipped test is a test that never runs.
func Require(tb testing.TB) {
	tb.Helper()
	hosttest.Require(tb, "it loads BPF and makes faults")
	err := allowed()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		tb.Fatalf("CI must run this test with BPF privileges: make a BPF map: %v", err)
	default:
		tb.Skipf("needs BPF privileges: make a BPF map: %v", err)
	}
}

// allowed makes the smallest BPF object there is. Asking the kernel covers more than
// a look at capabilities would: lockdown, seccomp, security modules.
func allowed() error {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) // as probes do: before 5.11 maps count against it
	// The head of union bpf_attr for BPF_MAP_CREATE (include/uapi/linux/bpf.h).
	array := struct{ kind, keySize, valueSize, maxEntries uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	fd, _, problem := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&array)), unsafe.Sizeof(array))
	if problem != 0 {
		return problem
	}
	return unix.Close(int(fd))
}
