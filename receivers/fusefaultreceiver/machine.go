package fusefaultreceiver

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// node is this machine: mount tables, process states, the connection's own counter.
// It never touches a mount, which would hang like everybody else.
type node struct {
	*procfs.FS
	sys    string
	demand *activity.Demand
}

// openMachine reads below the proc root of the configuration and HOST_SYS, else /sys.
// The probe counts processes in the initial pid namespace.
func openMachine(config *Config) machine {
	fs := procfs.Open(config.ProcRoot)
	n := node{fs, os.Getenv("HOST_SYS"), activity.NewDemand(fs)}
	if n.sys == "" {
		n.sys = "/sys"
	}
	n.SetForeign(n.OtherNamespace())
	return n
}

// Mount finds a mount in the table of the first of these processes that has it.
func (n node) Mount(major, minor uint32, processes ...string) (procfs.Mount, bool) {
	found, err := n.FS.Mount(major, minor, processes...)
	return found, err == nil
}

// Gone reports whether the mount table of a process can be read and has no such mount.
func (n node) Gone(major, minor uint32, process string) bool {
	_, err := n.FS.Mount(major, minor, process)
	return errors.Is(err, procfs.ErrNotMounted)
}

// Starves reports whether a process could run since it was asked for last, and had no CPU.
func (n node) Starves(pid uint32) (starves, known bool) { return n.demand.Starves(pid) }

// Ended reports whether a thread is known to be gone.
func (n node) Ended(pid, tid uint32) bool { return n.Thread(pid, tid).State == procfs.Gone }

// StuckReads counts the reads that were given up.
func (n node) StuckReads() uint64 { return n.Hung() }

// Waiting is the connection's own count of requests that wait to be read by the
// daemon or to be answered (Documentation/filesystems/fuse.rst, "waiting").
// fusectl names a connection by the device number of its file system as one
// number (fs/fuse/control.c, fuse_ctl_add_conn(): fc->dev).
func (n node) Waiting(major, minor uint32) (int64, bool) {
	const maxCount = 64
	connection := uint64(major)<<20 | uint64(minor) // MKDEV(), include/linux/kdev_t.h
	file, err := n.ReadFile(filepath.Join(n.sys, "fs/fuse/connections", strconv.FormatUint(connection, 10), "waiting"), maxCount)
	if err != nil {
		return 0, false
	}
	waiting, err := strconv.ParseInt(strings.TrimSuffix(string(file.Content), "\n"), 10, 64)
	return waiting, err == nil
}
