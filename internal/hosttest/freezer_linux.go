package hosttest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Freezer is a cgroup that can be frozen, of version 1 or 2.
type Freezer struct{ dir, file, frozen, thawed string }

// NewFreezer makes one; the test's end removes it once its processes are gone. The test has
// asked Require. ok is false where no freezer is mounted.
func NewFreezer(tb testing.TB) (f Freezer, ok bool) {
	tb.Helper()
	root := "/sys/fs/cgroup/freezer"
	f.file, f.frozen, f.thawed = "freezer.state", "FROZEN", "THAWED"
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
		f.file, f.frozen, f.thawed = "cgroup.freeze", "1", "0"
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			return f, false
		}
	}
	dir, err := os.MkdirTemp(root, "tracecore-test-")
	if err != nil {
		tb.Fatalf("make a freezer cgroup: %v", err)
	}
	f.dir = dir
	tb.Cleanup(func() { MemoryCgroup{dir: dir}.remove(tb) })
	return f, true
}

// Add puts a process into it; the test's end thaws it, since nothing frozen can be killed.
func (f Freezer) Add(tb testing.TB, pid uint32) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, "cgroup.procs"), []byte(strconv.FormatUint(uint64(pid), 10)), 0); err != nil {
		tb.Fatalf("put process %d into a freezer cgroup: %v", pid, err)
	}
	tb.Cleanup(func() { _ = f.Thaw() })
}

// Freeze freezes what is in the cgroup.
func (f Freezer) Freeze() error {
	return os.WriteFile(filepath.Join(f.dir, f.file), []byte(f.frozen), 0)
}

// Thaw lets it go on.
func (f Freezer) Thaw() error { return os.WriteFile(filepath.Join(f.dir, f.file), []byte(f.thawed), 0) }
