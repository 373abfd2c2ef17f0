//go:build linux && (amd64 || arm64)

package oomkill

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// hierarchy is the mounted cgroup hierarchy that accounts memory.
type hierarchy struct {
	mountPoint string
	root       string // cgroup that is mounted there, as this cgroup namespace sees it
	own        string // cgroup of this process
	v2         bool
}

var errNoHierarchy = errors.New("no cgroup hierarchy with the memory controller is mounted; mount -t cgroup2 none /sys/fs/cgroup")

// findMemoryHierarchy prefers v1: when v1 has the memory controller, v2 has not.
func findMemoryHierarchy() (hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return hierarchy{}, fmt.Errorf("find the memory cgroups: %w", err)
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return hierarchy{}, fmt.Errorf("find the own memory cgroup: %w", err)
	}
	h, ok := memoryMount(mounts)
	if !ok {
		return hierarchy{}, errNoHierarchy
	}
	h.own, _ = memoryCgroup(cgroups, h.v2)
	return h, nil
}

// memoryMount reads mountinfo (Documentation/filesystems/proc.rst, section 3.5).
func memoryMount(mountinfo []byte) (hierarchy, bool) {
	var found hierarchy
	var ok bool
	for line := range strings.Lines(string(mountinfo)) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if len(mount) < 6 || len(super) < 3 {
			continue
		}
		h := hierarchy{root: mount[3], mountPoint: mount[4], v2: super[0] == "cgroup2"}
		switch {
		case super[0] == "cgroup" && slices.Contains(strings.Split(super[2], ","), "memory"):
			return h, true
		case h.v2 && !ok:
			found, ok = h, true
		}
	}
	return found, ok
}

// memoryCgroup picks the memory cgroup from /proc/<pid>/cgroup: lines of
// "id:controllers:path", with neither id nor controllers on v2.
func memoryCgroup(text []byte, v2 bool) (string, bool) {
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if v2 && fields[0] == "0" && fields[1] == "" ||
			!v2 && slices.Contains(strings.Split(fields[1], ","), "memory") {
			return fields[2], true
		}
	}
	return "", false
}

// parents lists the directories a new cgroup can be made in: the mount point and
// the cgroups from there down to the own one.
func (h hierarchy) parents() []string {
	dirs := []string{h.mountPoint}
	below, ok := strings.CutPrefix(h.own, strings.TrimSuffix(h.root, "/")+"/")
	if !ok || strings.Contains(below, "..") {
		return dirs
	}
	for name := range strings.SplitSeq(below, "/") {
		if name != "" {
			dirs = append(dirs, path.Join(dirs[len(dirs)-1], name))
		}
	}
	return dirs
}
