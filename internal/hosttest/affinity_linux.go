package hosttest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OnOneCPU has the processes that start starts, and their children, share one CPU: ranks that
// spin until they are found leave the others to what looks for them, and to other tests.
func OnOneCPU(tb testing.TB, start func()) {
	tb.Helper()
	runtime.LockOSThread() // processes inherit from the thread that starts them; no thread does from one that is locked
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		tb.Fatalf("ask for the CPUs of this process: %v", err)
	}
	for cpu, found := len(all)*64-1, false; cpu >= 0 && !found; cpu-- {
		if found = all.IsSet(cpu); found {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		tb.Fatalf("take one CPU: %v", err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			tb.Errorf("take all CPUs back: %v", err)
		}
	}()
	start()
}
