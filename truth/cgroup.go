//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const cgroups = "/sys/fs/cgroup"

// cgroup is one that this program made, of a controller of version 1, or of version 2
// where the machine has that.
type cgroup struct {
	path, parent string
	v2           bool
}

func newCgroup(controller, name string) (*cgroup, error) {
	c := &cgroup{parent: filepath.Join(cgroups, controller)}
	if _, err := os.Stat(c.parent); errors.Is(err, os.ErrNotExist) {
		c.parent, c.v2 = cgroups, true
		if controller != "freezer" { // version 2 freezes without a controller
			if err := os.WriteFile(filepath.Join(cgroups, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
				return nil, fmt.Errorf("let cgroups have %s: %w", controller, err)
			}
		}
	}
	c.path = filepath.Join(c.parent, name)
	return c, os.MkdirAll(c.path, 0o755)
}

func (c *cgroup) write(file, value string) error {
	return os.WriteFile(filepath.Join(c.path, file), []byte(value), 0)
}

func (c *cgroup) add(pid int) error { return c.write("cgroup.procs", strconv.Itoa(pid)) }

func (c *cgroup) freeze(on bool) error {
	switch {
	case c.v2 && on:
		return c.write("cgroup.freeze", "1")
	case c.v2:
		return c.write("cgroup.freeze", "0")
	case on:
		return c.write("freezer.state", "FROZEN")
	default:
		return c.write("freezer.state", "THAWED")
	}
}

func (c *cgroup) limit(bytes int) error {
	if c.v2 {
		return c.write("memory.max", strconv.Itoa(bytes))
	}
	return c.write("memory.limit_in_bytes", strconv.Itoa(bytes))
}

// kills is how many processes of it the kernel has killed for want of memory.
func (c *cgroup) kills() int {
	name := "memory.oom_control"
	if c.v2 {
		name = "memory.events"
	}
	text, _ := os.ReadFile(filepath.Join(c.path, name)) // nothing: none is known
	for line := range strings.Lines(string(text)) {
		if count, is := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); is {
			n, _ := strconv.Atoi(count) // digits
			return n
		}
	}
	return 0
}

// close moves a process back and takes the cgroup away.
func (c *cgroup) close(pids ...int) error {
	for _, pid := range pids {
		_ = os.WriteFile(filepath.Join(c.parent, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) // it may be dead
	}
	var err error
	for range 100 { // a process that was killed leaves when it can
		if err = os.Remove(c.path); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
