package procfs

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
)

// Tenant is whose a process is, as the kernel tells it: the Slurm job, the pod or the container
// that its cgroup names, else its user. All containers may run as one user.
func (f *FS) Tenant(pid uint32) (string, error) {
	cgroup, err := f.Cgroup(pid)
	if err != nil {
		return "", err
	}
	user, err := f.User(pid)
	if err != nil {
		return "", err
	}
	return tenant(cgroup, user), nil
}

func tenant(cgroup []byte, user uint32) string {
	return cmp.Or(ParseCgroup(string(cgroup)).tenant(), "user "+strconv.FormatUint(uint64(user), 10))
}

// Of the initial user namespace (PROC_USER_INIT_INO, include/linux/proc_ns.h), and of the right to
// mount for all (CAP_SYS_ADMIN, include/uapi/linux/capability.h).
const (
	initialUsers = 0xEFFFFFFD
	capSysAdmin  = 21
)

// Administers reports whether a process has all rights over this host: CAP_SYS_ADMIN in the initial
// user namespace. Root of a container has it only where that is privileged, as those are that mount
// for other pods.
func (f *FS) Administers(pid uint32) (bool, error) {
	users, err := f.Namespace(pid, "user")
	if err != nil || users != initialUsers {
		return false, err
	}
	status, err := f.of(pid, maxStatus, "status")
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(status.Content) {
		if mask, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			rights, err := strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
			return rights&(1<<capSysAdmin) != 0, err
		}
	}
	return false, fmt.Errorf("read status of process %d: no rights in it", pid)
}
