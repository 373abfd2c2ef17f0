package hosttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// MemoryCgroup is a cgroup with a memory limit, of version 1 or 2.
type MemoryCgroup struct {
	dir string
	v2  bool
}

// NewMemoryCgroup makes a cgroup with a memory limit below the root of the hierarchy;
// the test's end removes it. The test has asked Require.
func NewMemoryCgroup(tb testing.TB, limitBytes int64) MemoryCgroup {
	tb.Helper()
	g := MemoryCgroup{dir: "/sys/fs/cgroup/memory"}
	if _, err := os.Stat(filepath.Join(g.dir, "memory.limit_in_bytes")); err != nil {
		g = MemoryCgroup{dir: "/sys/fs/cgroup", v2: true}
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	return g.child(tb, "tracecore-test-"+strconv.Itoa(os.Getpid()), limitBytes)
}

// Child makes a cgroup below this one; 0 leaves it without a limit of its own.
func (g MemoryCgroup) Child(tb testing.TB, limitBytes int64) MemoryCgroup {
	tb.Helper()
	if g.v2 {
		g.write(tb, "cgroup.subtree_control", "+memory")
	}
	return g.child(tb, "child", limitBytes)
}

func (g MemoryCgroup) child(tb testing.TB, prefix string, limitBytes int64) MemoryCgroup {
	tb.Helper()
	dir, err := os.MkdirTemp(g.dir, prefix+"-")
	if err != nil {
		tb.Fatalf("make a memory cgroup: %v", err)
	}
	made := MemoryCgroup{dir: dir, v2: g.v2}
	tb.Cleanup(func() { made.remove(tb) })
	if limitBytes > 0 {
		made.write(tb, map[bool]string{true: "memory.max", false: "memory.limit_in_bytes"}[g.v2], strconv.FormatInt(limitBytes, 10))
	}
	return made
}

func (g MemoryCgroup) write(tb testing.TB, file, text string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0); err != nil {
		tb.Fatal(err)
	}
}

// remove waits until the last process of the cgroup is gone.
func (g MemoryCgroup) remove(tb testing.TB) {
	deadline := time.Now().Add(Patience)
	for {
		err := os.Remove(g.dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			tb.Errorf("remove a memory cgroup: %v", err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Start starts a command inside the cgroup: it sees the limit from its first instruction.
func (g MemoryCgroup) Start(cmd *exec.Cmd) error {
	if g.v2 {
		return g.startV2(cmd)
	}
	// In version 1 a child begins in the cgroup of the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := homeOfThread()
	if err != nil {
		return err
	}
	tid := []byte(strconv.Itoa(syscall.Gettid()))
	if err := os.WriteFile(filepath.Join(g.dir, "tasks"), tid, 0); err != nil {
		return err
	}
	err = cmd.Start()
	return errors.Join(err, os.WriteFile(filepath.Join(home, "tasks"), tid, 0))
}

// homeOfThread is the folder of this thread's cgroup of version 1. In a cgroup
// namespace of its own the path in /proc begins at the folder that is mounted.
func homeOfThread() (string, error) {
	text, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if _, path, found := strings.Cut(strings.TrimSpace(line), ":memory:"); found {
			return filepath.Join("/sys/fs/cgroup/memory", path), nil
		}
	}
	return "", errors.New("/proc/thread-self/cgroup names no memory cgroup")
}

func (g MemoryCgroup) startV2(cmd *exec.Cmd) error {
	folder, err := os.Open(g.dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(folder.Fd())
	return cmd.Start()
}

// OOMKills is how often the kernel killed a process of the cgroup for want of memory.
func (g MemoryCgroup) OOMKills(tb testing.TB) int {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, map[bool]string{true: "memory.events", false: "memory.oom_control"}[g.v2]))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); found {
			kills, _ := strconv.Atoi(n)
			return kills
		}
	}
	tb.Fatalf("no oom_kill in %q", text)
	return 0
}

// Peak is the most memory that the cgroup had at once, with the page cache, or 0
// where the kernel does not say (version 2 before Linux 5.19).
func (g MemoryCgroup) Peak(tb testing.TB) int64 {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, map[bool]string{true: "memory.peak", false: "memory.max_usage_in_bytes"}[g.v2]))
	if err != nil {
		return 0
	}
	peak, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return peak
}
