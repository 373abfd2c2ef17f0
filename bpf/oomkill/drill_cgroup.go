//go:build linux && (amd64 || arm64)

package oomkill

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// drillPrefix begins the name of every cgroup made here; the pid of its maker follows.
const drillPrefix = "tracecore-drill-"

// removeTimeout bounds the wait for a cgroup to become empty after its last process died. On a
// machine where 17 programs wanted two processors one took longer than 5 s to end.
const removeTimeout = time.Minute

// drillCgroup is a memory cgroup made for one drill.
type drillCgroup struct {
	dir string
	v2  bool
}

// newDrillCgroup makes the cgroup as near to the root of the hierarchy as it may:
// below a cgroup that is itself near its limit the drill could hit its neighbours.
func newDrillCgroup(limit uint64) (*drillCgroup, error) {
	hierarchy, err := findMemoryHierarchy()
	if err != nil {
		return nil, err
	}
	parents := hierarchy.parents()
	sweep(parents)
	var failures []error
	for _, parent := range parents {
		group, err := makeDrillCgroup(parent, hierarchy.v2, limit)
		if err == nil {
			return group, nil
		}
		failures = append(failures, err)
	}
	return nil, fmt.Errorf("%w; run as root with the host's cgroup namespace and %s writable",
		errors.Join(failures...), hierarchy.mountPoint)
}

func makeDrillCgroup(parent string, v2 bool, limit uint64) (*drillCgroup, error) {
	if v2 {
		if err := enableMemory(parent); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(parent, drillPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	group := &drillCgroup{dir: dir, v2: v2}
	if err := group.setLimit(limit); err != nil {
		return nil, errors.Join(err, group.remove())
	}
	return group, nil
}

// enableMemory gives the children of a v2 cgroup the memory controller.
func enableMemory(parent string) error {
	file := filepath.Join(parent, "cgroup.subtree_control")
	enabled, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for controller := range bytes.FieldsSeq(enabled) {
		if string(controller) == "memory" {
			return nil
		}
	}
	return writeFile(file, "+memory")
}

// setLimit bounds memory and forbids swap, which would otherwise take the excess.
func (g *drillCgroup) setLimit(limit uint64) error {
	bytes := strconv.FormatUint(limit, 10)
	if g.v2 {
		return errors.Join(
			writeFile(g.file("memory.max"), bytes),
			writeIfPresent(g.file("memory.swap.max"), "0"), // absent without CONFIG_SWAP or with swapaccount=0
		)
	}
	return errors.Join(
		writeFile(g.file("memory.limit_in_bytes"), bytes),
		writeIfPresent(g.file("memory.memsw.limit_in_bytes"), bytes),
		// A v1 child inherits its parent's oom_kill_disable and would hang instead.
		writeFile(g.file("memory.oom_control"), "0"),
	)
}

func (g *drillCgroup) add(pid int) error {
	return writeFile(g.file("cgroup.procs"), strconv.Itoa(pid))
}

func (g *drillCgroup) file(name string) string { return filepath.Join(g.dir, name) }

// pathOf returns the memory cgroup of a process as /proc shows it.
func (g *drillCgroup) pathOf(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	cgroupPath, ok := memoryCgroup(text, g.v2)
	if !ok || path.Base(cgroupPath) != filepath.Base(g.dir) {
		return "", fmt.Errorf("process %d is not in the drill's cgroup %s but in %q", pid, g.dir, cgroupPath)
	}
	return cgroupPath, nil
}

// checkOOMKill asks the kernel whether the SIGKILL was an OOM kill: both files
// have a line "oom_kill N" (since Linux 4.13, fe6bdfc8e1e1).
func (g *drillCgroup) checkOOMKill() error {
	file := g.file("memory.oom_control")
	if g.v2 {
		file = g.file("memory.events")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok && strings.TrimSpace(count) != "0" {
			return nil
		}
	}
	return fmt.Errorf("the drill's child was killed, but not by the kernel for want of memory (%s counts no oom_kill)", file)
}

// remove deletes the cgroup as soon as the kernel lets go of its last process.
func (g *drillCgroup) remove() error {
	deadline := time.Now().Add(removeTimeout)
	for {
		err := os.Remove(g.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the drill's cgroup (rmdir it when it is empty): %w", err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// sweep removes cgroups that drills left behind when they were killed. Only an
// empty cgroup can be removed, so this can hit nothing alive.
func sweep(parents []string) {
	for _, parent := range parents {
		left, _ := filepath.Glob(filepath.Join(parent, drillPrefix+"*"))
		for _, dir := range left {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), drillPrefix), "-")
			if _, err := os.Stat("/proc/" + pid); err != nil {
				_ = os.Remove(dir)
			}
		}
	}
}

// writeFile writes a cgroup file, which exists or the kernel lacks the feature.
func writeFile(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func writeIfPresent(file, text string) error {
	if err := writeFile(file, text); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
