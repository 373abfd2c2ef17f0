//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds on what is read of one process.
const (
	maxStat    = 4 << 10
	maxCgroup  = 16 << 10
	maxEnviron = 256 << 10
)

// environPatience is how long to wait for one environment, maxStuckReads how many
// reads may be going on, waited for or not.
const (
	environPatience = 500 * time.Millisecond
	maxStuckReads   = 4
)

// tick is the unit of start times in /proc: 1/USER_HZ seconds, and USER_HZ is 100
// on every architecture we build for.
const tick = 10 * time.Millisecond

// errStuck says that the kernel did not give an environment in time.
var errStuck = errors.New("read environment: the process holds its memory map lock")

// procfs reads processes under one root, "/proc" or a mount of the host's.
type procfs struct {
	root  string
	slots chan struct{} // one token per environment being read
	// foreign is true when the root shows another pid namespace than the kernel's
	// events: a number there is somebody else.
	foreign bool

	unreadable atomic.Uint64 // environments or cgroups that could not be read
	truncated  atomic.Uint64 // environments longer than maxEnviron
}

func newProcfs(root string) *procfs {
	return &procfs{root: root, slots: make(chan struct{}, maxStuckReads)}
}

// stat is what is read of /proc/<pid>/stat.
type stat struct {
	pid, parentPID uint32
	startTicks     uint64 // since boot
	comm           string
	kernel         bool // a kernel thread
	dead           bool // a zombie, all threads gone
}

// errForeign says that this root cannot answer for the kernel's pids.
var errForeign = errors.New("its process numbers are not the kernel's")

func (s stat) startNS() uint64 { return s.startTicks * uint64(tick) }

func (fs *procfs) read(pid uint32, file string, limit int) ([]byte, bool, error) {
	if fs.foreign {
		return nil, false, fmt.Errorf("read %s: %w", fs.root, errForeign)
	}
	return readFile(filepath.Join(fs.root, strconv.FormatUint(uint64(pid), 10), file), limit)
}

// pids lists the processes there are.
func (fs *procfs) pids() ([]uint32, error) {
	if fs.foreign {
		return nil, nil
	}
	var names []string
	directory, err := os.Open(fs.root)
	if err == nil {
		defer directory.Close()
		names, err = directory.Readdirnames(-1)
	}
	if err != nil {
		return nil, fmt.Errorf("list processes in %s: %w: mount the host's /proc there, or set HOST_PROC", fs.root, err)
	}
	pids := make([]uint32, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 32); err == nil && pid != 0 {
			pids = append(pids, uint32(pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

func (fs *procfs) stat(pid uint32) (stat, error) {
	raw, _, err := fs.read(pid, "stat", maxStat)
	if err != nil {
		return stat{}, fmt.Errorf("read stat of process %d: %w", pid, err)
	}
	return parseStat(pid, string(raw))
}

// Flag and fields of /proc/<pid>/stat, proc_pid_stat(5), counted from the state,
// which is field 3 there.
const (
	flagKernelThread = 0x00200000 // PF_KTHREAD, include/linux/sched.h
	fieldState       = 0
	fieldParent      = 1
	fieldFlags       = 6
	fieldThreads     = 17
	fieldStart       = 19
)

// parseStat reads a stat line. The name in parentheses may contain anything,
// parentheses and spaces too, so the fields begin after the last one.
func parseStat(pid uint32, line string) (stat, error) {
	bad := func(what string) (stat, error) {
		return stat{}, fmt.Errorf("read stat of process %d: no %s in it", pid, what)
	}
	head, rest, ok := cutLast(line, ")")
	_, comm, found := strings.Cut(head, "(")
	fields := strings.Fields(rest)
	if !ok || !found || len(fields) <= fieldStart {
		return bad("name and 20 fields")
	}
	parent, err := strconv.ParseUint(fields[fieldParent], 10, 32)
	if err != nil {
		return bad("parent")
	}
	flags, err := strconv.ParseUint(fields[fieldFlags], 10, 64)
	if err != nil {
		return bad("flags")
	}
	start, err := strconv.ParseUint(fields[fieldStart], 10, 64)
	if err != nil {
		return bad("start time")
	}
	state := fields[fieldState]
	return stat{
		pid: pid, parentPID: uint32(parent), startTicks: start, comm: text([]byte(comm)),
		kernel: flags&flagKernelThread != 0,
		dead:   state == "X" || state == "Z" && (fields[fieldThreads] == "0" || fields[fieldThreads] == "1"),
	}, nil
}

func (fs *procfs) cgroup(pid uint32) (membership, bool) {
	raw, _, err := fs.read(pid, "cgroup", maxCgroup)
	if err != nil {
		fs.unreadable.Add(1)
		return membership{}, false
	}
	return parseCgroup(string(raw)), true
}

// environ reads an environment, bounded in size and time: the kernel takes the
// process's memory map lock for it (access_remote_vm(), mm/memory.c), and a
// process that is stuck in a page fault may hold that for as long as it is stuck.
// Such a read cannot be taken back, so it is left behind, and when too many are,
// environments are not read at all.
func (fs *procfs) environ(pid uint32) ([]byte, bool) {
	raw, cut, err := fs.patiently(func() ([]byte, bool, error) {
		return fs.read(pid, "environ", maxEnviron)
	})
	if err != nil {
		fs.unreadable.Add(1)
		return nil, false
	}
	if cut {
		fs.truncated.Add(1)
	}
	return raw, true
}

func (fs *procfs) patiently(read func() ([]byte, bool, error)) ([]byte, bool, error) {
	select {
	case fs.slots <- struct{}{}:
	default:
		return nil, false, errStuck
	}
	type result struct {
		raw []byte
		cut bool
		err error
	}
	done := make(chan result, 1)
	go func() {
		raw, cut, err := read()
		<-fs.slots
		done <- result{raw, cut, err}
	}()
	timer := time.NewTimer(environPatience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.raw, r.cut, r.err
	case <-timer.C:
		return nil, false, errStuck
	}
}

// readFile reads at most limit bytes and says whether there were more. It is
// plain system calls, because os.Open asks the poller about each file first.
func readFile(path string, limit int) (content []byte, cut bool, err error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(fd)
	buffer := make([]byte, 0, min(limit+1, 4096))
	for len(buffer) <= limit {
		if len(buffer) == cap(buffer) {
			buffer = slices.Grow(buffer, len(buffer))
		}
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, buffer[len(buffer):cap(buffer)]) })
		if err != nil {
			return nil, false, err
		}
		if n == 0 {
			return buffer, false, nil
		}
		buffer = buffer[:len(buffer)+n]
	}
	return buffer[:limit], true, nil
}

func open(path string, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
