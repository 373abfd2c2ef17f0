package check

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Inode numbers of the initial namespaces, include/uapi/linux/nsfs.h and, before
// it, include/linux/proc_ns.h: PROC_PID_INIT_INO and PROC_USER_INIT_INO.
const (
	initPIDNamespace  = "pid:[4026531836]"
	initUserNamespace = "user:[4026531837]"
)

func pidNamespace(root fs.FS) (string, State, string) {
	return namespace(root, "proc/self/ns/pid", initPIDNamespace,
		"pids of events are the host's: run in the host's pid namespace (Kubernetes: hostPID: true)")
}

func userNamespace(root fs.FS) (string, State, string) {
	return namespace(root, "proc/self/ns/user", initUserNamespace,
		"capabilities of another user namespace load no tracing program: run in the host's")
}

func namespace(root fs.FS, path, initial, hint string) (string, State, string) {
	link, err := fs.ReadLink(root, path)
	if err != nil {
		return unknown(err)
	}
	if link != initial {
		return "no", Limits, hint
	}
	return "yes", Fine, ""
}

// mount is one line of /proc/self/mounts.
type mount struct{ path, kind, options string }

func mounts(root fs.FS) ([]mount, error) {
	text, err := read(root, "proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var list []mount
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 4 {
			list = append(list, mount{path: f[1], kind: f[2], options: f[3]})
		}
	}
	return list, nil
}

func tracefs(root fs.FS) (string, State, string) {
	list, err := mounts(root)
	if err != nil {
		return unknown(err)
	}
	for _, m := range list {
		if m.kind == "tracefs" {
			return m.path, Fine, ""
		}
	}
	return "not mounted", Limits, "rungs on plain tracepoints and kprobes are closed: mount -t tracefs nodev /sys/kernel/tracing"
}

// cgroup says which hierarchy limits memory: that is where an OOM kill's cgroup
// path leads.
func cgroup(root fs.FS) (string, State, string) {
	list, err := mounts(root)
	if err != nil {
		return unknown(err)
	}
	unified := ""
	for _, m := range list {
		if m.kind == "cgroup" && slices.Contains(strings.Split(m.options, ","), "memory") {
			return "v1, memory at " + m.path, Fine, ""
		}
		if m.kind == "cgroup2" && unified == "" {
			unified = m.path
		}
	}
	if unified == "" {
		return "no memory controller mounted", Limits, "limits and usage of a cgroup cannot be read by path: mount the cgroup file system"
	}
	controllers, err := read(root, strings.TrimPrefix(unified, "/")+"/cgroup.controllers")
	if err != nil || !slices.Contains(strings.Fields(controllers), "memory") {
		return fmt.Sprintf("v2 at %s, no memory controller", unified), Limits, "memory limits are not in force: boot without cgroup_disable=memory"
	}
	return "v2 at " + unified, Fine, ""
}
