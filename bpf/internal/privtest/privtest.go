//go:build linux

// Package privtest decides whether a test that needs BPF privileges runs.
package privtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// Require skips the test, with the reason, where this process may not load BPF.
// With CI=true in the environment it fails instead: there a skipped test is a
// test that never runs.
func Require(tb testing.TB) {
	tb.Helper()
	err := allowed()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		tb.Fatalf("CI must run this test with BPF privileges: %v", err)
	default:
		tb.Skipf("needs BPF privileges: %v", err)
	}
}

// allowed makes the smallest BPF object there is. Asking the kernel covers what
// a look at capabilities would miss: lockdown, seccomp, security modules.
func allowed() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("effective uid is %d: run the tests as root", os.Geteuid())
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("make a BPF map: %w", err)
	}
	return m.Close()
}
