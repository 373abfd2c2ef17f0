// Package panics is a test binary that takes the kernel down with it.
package panics

import (
	"os"
	"testing"
)

func TestKernelDies(t *testing.T) {
	if name, err := os.Hostname(); err != nil || name != "vmtest" {
		t.Fatalf("this test crashes the kernel and this is no test machine: %s %v", name, err)
	}
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0); err != nil {
		t.Fatal(err)
	}
	select {}
}
