// Package hosttest decides which tests may change the machine they run on. A test
// asks it before it mounts, makes network interfaces, boots a machine or makes a fault, and
// for a port.
package hosttest

import (
	"os"
	"testing"
	"time"
)

// Patience is how long tests wait for what must come. It keeps a test that fails from
// waiting for ever and measures nothing: a busy host, and an emulated machine, are slow.
const Patience = 5 * time.Minute

// SetSysctl writes a file below /proc/sys, as in "kernel/printk_devkmsg", until the test ends.
func SetSysctl(tb testing.TB, name, value string) {
	tb.Helper()
	file := "/proc/sys/" + name
	before, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(value+"\n"), 0)
	}
	if err != nil {
		tb.Fatalf("set %s: %v", name, err)
	}
	tb.Cleanup(func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			tb.Errorf("set %s back: %v", name, err)
		}
	})
}

// UnlimitKmsg lifts the kernel's limit on writes to /dev/kmsg.
func UnlimitKmsg(tb testing.TB) {
	tb.Helper()
	SetSysctl(tb, "kernel/printk_devkmsg", "on")
}

// SmallVariable is set, in the environment of a test, by who wants tests small: the
// rows of vmtests that make test boots. Emulation is ten times slower than the host.
const SmallVariable = "TRACECORE_SMALL_TESTS"

// Small reports whether a test shall leave to the host and to make verify what is the
// same on every kernel.
func Small() bool { return os.Getenv(SmallVariable) != "" }

// Size is how much of something a test makes.
func Size(full, small int) int {
	if Small() {
		return small
	}
	return full
}

// Require skips the test in `go test -short`, for root too, and for anybody but root.
// With CI=true in the environment it fails for anybody but root: there a skipped
// test is a test that never runs. why says what the test needs root for.
func Require(tb testing.TB, why string) {
	tb.Helper()
	NotShort(tb, why)
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		tb.Fatalf("CI must run this test as root: %s; the effective uid is %d", why, os.Geteuid())
	default:
		tb.Skipf("needs root: %s; the effective uid is %d", why, os.Geteuid())
	}
}

// NotShort skips the test in `go test -short`, which `make check` calls.
func NotShort(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("-short leaves it out: %s", why)
	}
}
