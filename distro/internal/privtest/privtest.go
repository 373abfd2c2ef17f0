// Package privtest decides whether a test of the whole distribution that needs
// a kernel's probes runs. Its name marks such tests for the virtual machines.
package privtest

import (
	"os"
	"testing"
)

// Require skips the test, with the reason, for anybody but root. With CI=true in
// the environment it fails instead: there a skipped test is a test that never
// runs. That root may load BPF is for the tests below bpf/ to find out.
func Require(tb testing.TB) {
	tb.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		tb.Fatalf("CI must run this test as root: effective uid is %d", os.Geteuid())
	default:
		tb.Skipf("needs root for BPF and /dev/kmsg: effective uid is %d", os.Geteuid())
	}
}
