package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// CPUCgroup is a cgroup of version 1 or 2 whose processes can be kept from the CPUs.
type CPUCgroup struct {
	dir   string
	v2    bool
	eater *exec.Cmd // takes what there is, while the others starve
}

// NewCPUCgroup makes one; the test's end removes it once its processes are gone. The test has
// asked Require. ok is false where no cgroup has a CPU limit.
func NewCPUCgroup(tb testing.TB) (g *CPUCgroup, ok bool) {
	tb.Helper()
	g = &CPUCgroup{}
	root := "/sys/fs/cgroup/cpu"
	if _, err := os.Stat(root); err != nil {
		root, g.v2 = "/sys/fs/cgroup", true
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return g, false
		}
	}
	dir, err := os.MkdirTemp(root, "tracecore-test-")
	if err != nil {
		tb.Fatalf("make a CPU cgroup: %v", err)
	}
	g.dir = dir
	tb.Cleanup(func() { MemoryCgroup{dir: dir}.remove(tb) })
	return g, true
}

// Add puts a process into it. The test's end lets it go.
func (g *CPUCgroup) Add(tb testing.TB, pid uint32) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.FormatUint(uint64(pid), 10)), 0); err != nil {
		tb.Fatalf("put process %d into a CPU cgroup: %v", pid, err)
	}
	tb.Cleanup(func() { _ = g.Release() })
}

// Starve gives all that is in the cgroup a millisecond of each second together, the least there is, and
// has a process take of that what it gets. The kernel takes time away in ticks of 1 to 10 ms, and has them
// paid back: on an idle machine, too, a thread has a turn every few seconds.
func (g *CPUCgroup) Starve() error {
	if err := g.limit(); err != nil {
		return err
	}
	g.eater = exec.Command("sh", "-c", "while :; do :; done")
	g.eater.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no test leaves it behind
	if err := g.eater.Start(); err != nil {
		return err
	}
	return g.write("cgroup.procs", strconv.Itoa(g.eater.Process.Pid))
}

func (g *CPUCgroup) limit() error {
	if g.v2 {
		return g.write("cpu.max", "1000 1000000")
	}
	if err := g.write("cpu.cfs_period_us", "1000000"); err != nil {
		return err
	}
	return g.write("cpu.cfs_quota_us", "1000")
}

// Release takes the limit away, and then what took the rest: to end, that needs a turn, too.
func (g *CPUCgroup) Release() error {
	file, none := "cpu.cfs_quota_us", "-1"
	if g.v2 {
		file, none = "cpu.max", "max"
	}
	err := g.write(file, none)
	if g.eater != nil {
		_ = g.eater.Process.Kill()
		_ = g.eater.Wait()
		g.eater = nil
	}
	return err
}

func (g *CPUCgroup) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0)
}
