package peer

import (
	"cmp"
	"encoding/binary"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileIDKernfs is the type of a handle that is the number of a cgroup (FILEID_KERNFS,
// include/linux/exportfs.h, since Linux 5.5).
const fileIDKernfs = 0xfe

// pathOf is the path of a cgroup of the unified hierarchy, as /proc/PID/cgroup shows it, "" where
// it is gone, or where tracecore may not ask (CAP_DAC_READ_SEARCH) or does not see the mount.
func pathOf(cgroup uint64) string {
	sys := cmp.Or(os.Getenv("HOST_SYS"), "/sys")
	for _, mount := range []string{sys + "/fs/cgroup", sys + "/fs/cgroup/unified"} { // the second where v1 has the controllers
		if path, found := pathBelow(mount, cgroup); found {
			return path
		}
	}
	return ""
}

func pathBelow(mount string, cgroup uint64) (path string, found bool) {
	root, err := unix.Open(mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer func() { _ = unix.Close(root) }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(root, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return "", false
	}
	fd, err := unix.OpenByHandleAt(root, unix.NewFileHandle(fileIDKernfs, binary.NativeEndian.AppendUint64(nil, cgroup)), unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", false
	}
	defer func() { _ = unix.Close(fd) }()
	full, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", false
	}
	if path, found = strings.CutPrefix(full, mount); !found || path != "" && path[0] != '/' {
		return "", false
	}
	return cmp.Or(path, "/"), true
}
