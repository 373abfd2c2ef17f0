package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxName bounds the path of an open file.
const maxName = 512

// IOBytes is what a process has read and written since it began, through system calls and
// on block devices: proc_pid_io(5). Sockets that are used by send and recv do not count.
func (f *FS) IOBytes(pid uint32) (uint64, error) {
	file, err := f.of(pid, maxStat, "io")
	if err != nil {
		return 0, err
	}
	total := uint64(0)
	for _, name := range [...]string{"rchar", "wchar", "read_bytes", "write_bytes"} {
		n, err := numberAfter(file.Content, name)
		if err != nil {
			return 0, fmt.Errorf("read io of process %d: %w", pid, err)
		}
		total += n
	}
	return total, nil
}

// maxStatus is the most that a status may have: the masks of memory nodes make it long.
const maxStatus = 16 << 10

// numberAfter finds the number of a line "name: number".
func numberAfter(content []byte, name string) (uint64, error) {
	for line := range bytes.Lines(content) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
		}
	}
	return 0, errors.New("no " + name + " in it")
}

// Wait is where a thread sleeps.
type Wait struct {
	Syscall string // name of the system call, its number where it has no name here, "" for none
	Channel string // function of the kernel, "" when not known
	FD      int    // file that the call is about, Negative when it is about none
	Awake   bool   // it runs, or is ready to: it sleeps nowhere

	Arguments [3]uint64 // of the call, the first ones
}

// ForATime reports whether the thread sleeps until a time comes, and for nothing else: nanosleep(2), clock_nanosleep(2), or
// select(2), poll(2) and their like without a file, as Python's time.sleep does up to 3.10.
func (w Wait) ForATime() bool {
	switch w.Syscall {
	case "nanosleep", "clock_nanosleep":
		return true
	case "select", "pselect6":
		return w.Arguments[0] == 0
	case "poll", "ppoll":
		return w.Arguments[1] == 0
	}
	return false
}

// Negative is no file descriptor.
const Negative = -1

// Wait tells where the first thread of a process sleeps: proc_pid_syscall(5),
// proc_pid_wchan(5). Neither stops the thread. One that runs waits nowhere.
func (f *FS) Wait(pid uint32) (Wait, error) { return f.wait(pid) }

// ThreadWait tells where a thread of a process sleeps, as Wait does.
func (f *FS) ThreadWait(pid, tid uint32) (Wait, error) {
	return f.wait(pid, "task", strconv.FormatUint(uint64(tid), 10))
}

func (f *FS) wait(pid uint32, folder ...string) (Wait, error) {
	w := Wait{FD: Negative}
	channel, err := f.of(pid, maxName, append(slices.Clone(folder), "wchan")...)
	if name := text(channel.Content); err == nil && name != "0" {
		w.Channel = name
	}
	call, err := f.of(pid, maxStat, append(slices.Clone(folder), "syscall")...)
	if err != nil {
		return w, err
	}
	fields := strings.Fields(string(call.Content))
	if len(fields) < 2 {
		w.Awake = len(fields) == 1 && fields[0] == "running"
		return w, nil
	}
	number, err := strconv.ParseInt(fields[0], 10, 32)
	if err != nil {
		return w, fmt.Errorf("read syscall of process %d: %w", pid, err)
	}
	if number < 0 { // it sleeps outside of a system call, as in a page fault
		return w, nil
	}
	known, named := syscalls[number]
	if !named {
		known.name = "system call " + fields[0]
	}
	w.Syscall = known.name
	for i, field := range fields[1:min(len(fields), 1+len(w.Arguments))] {
		w.Arguments[i], _ = strconv.ParseUint(field, 0, 64) // 0: the kernel prints numbers
	}
	if fd, err := strconv.ParseUint(fields[1], 0, 64); known.file && err == nil && fd < 1<<31 {
		w.FD = int(fd)
	}
	return w, nil
}

// call is a system call by its name; file says that its first argument is one.
type call struct {
	name string
	file bool
}

// OpenFile is the path of an open file as the kernel prints it ("pipe:[7]" of a pipe).
// Its file system is not asked.
func (f *FS) OpenFile(pid uint32, fd int) (string, error) {
	file := f.path(pid, "fd", strconv.Itoa(fd))
	if f.Foreign() {
		return "", fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	link, err := Patiently(f, file, func() (string, error) { return os.Readlink(file) })
	return strings.ToValidUTF8(link[:min(len(link), maxName)], "?"), err
}

// SocketOf is the inode of an open file that is a socket.
func (f *FS) SocketOf(pid uint32, fd int) (inode uint64, is bool) {
	name, err := f.OpenFile(pid, fd)
	if err != nil {
		return 0, false
	}
	return inodeOf(name, "socket")
}

// Sockets are the inodes of the sockets that a process has open ("socket:[7]"), each once, so
// many of them at most. Over counts the files beyond that are sockets, too.
func (f *FS) Sockets(pid uint32, most int) (inodes []uint64, over int, err error) {
	folder := f.path(pid, "fd")
	if f.Foreign() {
		return nil, 0, fmt.Errorf("read %s: %w", folder, ErrForeign)
	}
	type sockets struct {
		inodes []uint64
		over   int
	}
	found, err := Patiently(f, folder, func() (s sockets, err error) {
		seen := map[uint64]struct{}{}
		err = eachOpen(folder, math.MaxInt, func(_, name string) (more bool) {
			inode, isSocket := inodeOf(name, "socket")
			_, known := seen[inode]
			switch {
			case !isSocket || known:
			case len(s.inodes) >= most:
				s.over++
			default:
				seen[inode] = struct{}{}
				s.inodes = append(s.inodes, inode)
			}
			return true
		})
		return s, err
	})
	return found.inodes, found.over, err
}

// eachOpen shows the open files of a process, so many at most, with their numbers and their names as the
// kernel prints them, until no more is wanted. What was just closed is left out.
func eachOpen(folder string, most int, show func(number, name string) (more bool)) error {
	opened, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer opened.Close()
	for most > 0 {
		numbers, err := opened.Readdirnames(min(most, 1024))
		for _, number := range numbers {
			if name, gone := os.Readlink(filepath.Join(folder, number)); gone == nil && !show(number, name) {
				return nil
			}
		}
		if most -= len(numbers); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxHeld bounds the open files of one process whose names Holds reads: who serves a mount has fewer.
const maxHeld = 4096

// Holds reports whether a process has a file open that the kernel prints by this name, and that is
// what it seems to be: a file of any kind can have any name in a mount namespace of one's own. It reads
// the names of the first 4,096 open files, and tells how many it has read.
func (f *FS) Holds(pid uint32, name string, is func(file string) bool) (holds bool, names int, err error) {
	folder := f.path(pid, "fd")
	if f.Foreign() {
		return false, 0, fmt.Errorf("read %s: %w", folder, ErrForeign)
	}
	type look struct {
		holds bool
		names int
	}
	l, err := Patiently(f, folder, func() (l look, err error) {
		err = eachOpen(folder, maxHeld, func(number, one string) (more bool) {
			l.names++
			l.holds = one == name && is(filepath.Join(folder, number))
			return !l.holds
		})
		return l, err
	})
	return l.holds, l.names, err
}

// inodeOf is the number in the name of a file that has no path: "socket:[7]", "net:[7]".
func inodeOf(name, kind string) (uint64, bool) {
	number, found := strings.CutPrefix(name, kind+":[")
	number, closed := strings.CutSuffix(number, "]")
	inode, err := strconv.ParseUint(number, 10, 64)
	return inode, found && closed && err == nil
}

// Ends are those of a pipe that a process has open.
type Ends struct{ Reads, Writes bool }

// Pipes are the pipes that a process has open, by their names ("pipe:[7]"), among so many of
// its files at most.
func (f *FS) Pipes(pid uint32, most int) (map[string]Ends, error) {
	folder := f.path(pid, "fd")
	if f.Foreign() {
		return nil, fmt.Errorf("read %s: %w", folder, ErrForeign)
	}
	return Patiently(f, folder, func() (map[string]Ends, error) {
		pipes := map[string]Ends{}
		err := eachOpen(folder, most, func(number, name string) (more bool) {
			if !strings.HasPrefix(name, "pipe:[") {
				return true
			}
			if info, err := os.ReadFile(f.path(pid, "fdinfo", number)); err == nil {
				ends := pipes[name]
				ends.take(info)
				pipes[name] = ends
			}
			return true
		})
		return pipes, err
	})
}

// take takes the flags of an open file: proc_pid_fdinfo(5), O_ACCMODE of open(2).
func (e *Ends) take(info []byte) {
	for line := range bytes.Lines(info) {
		rest, ok := bytes.CutPrefix(line, []byte("flags:"))
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 8, 64)
		mode := flags & 3
		e.Reads = e.Reads || err == nil && mode != 1
		e.Writes = e.Writes || err == nil && mode != 0
	}
}

// Watched are the files that an epoll file watches, so many of them at most: lines "tfd:" of
// proc_pid_fdinfo(5).
func (f *FS) Watched(pid uint32, epoll, most int) ([]int, error) {
	info, err := f.of(pid, maxStatus, "fdinfo", strconv.Itoa(epoll))
	if err != nil {
		return nil, err
	}
	var watched []int
	for line := range bytes.Lines(info.Content) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || string(fields[0]) != "tfd:" || len(watched) >= most {
			continue
		}
		if fd, err := strconv.ParseUint(string(fields[1]), 10, 31); err == nil {
			watched = append(watched, int(fd))
		}
	}
	return watched, nil
}

// ProcessOf is the process that a pidfd of a process is of, as this /proc numbers it (pidfd_open(2)).
func (f *FS) ProcessOf(pid uint32, pidfd int) (uint32, error) {
	info, err := f.of(pid, maxStat, "fdinfo", strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	n, err := numberAfter(info.Content, "Pid")
	if err != nil || n == 0 || n > 1<<31 {
		return 0, fmt.Errorf("read pidfd %d of process %d: %w", pidfd, pid, errors.Join(err, errors.New("no process")))
	}
	return uint32(n), nil
}

// Frozen reports whether a freezer holds the cgroups of a process: docker pause, a
// checkpoint of a container. cgroup v1 has the state in freezer.state of its own
// hierarchy, v2 in cgroup.events; both count the cgroups above too
// (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst, cgroup-v2.rst).
func (f *FS) Frozen(pid uint32) (bool, error) {
	content, err := f.Cgroup(pid)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(content)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[1] == "freezer":
			if state, err := f.cgroupFile("freezer", parts[2], "freezer.state"); err == nil && strings.HasPrefix(state, "FROZEN") {
				return true, nil
			}
		case parts[0] == "0" && parts[2] != "/": // the root of v2 cannot be frozen
			if events, err := f.cgroupFile("", parts[2], "cgroup.events"); err == nil && strings.Contains(events, "frozen 1") {
				return true, nil
			}
		}
	}
	return false, nil
}

// cgroupFile reads a file of a cgroup below HOST_SYS, else /sys, as the host has it. v2
// stands alone there, or in "unified" beside v1.
func (f *FS) cgroupFile(hierarchy, path, name string) (string, error) {
	roots := []string{hierarchy}
	if hierarchy == "" {
		roots = []string{"", "unified"}
	}
	var problem error
	for _, root := range roots {
		file, err := f.ReadFile(filepath.Join(f.sys, "fs/cgroup", root, filepath.Join("/", path), name), maxStat)
		if err == nil {
			return string(file.Content), nil
		}
		problem = err
	}
	return "", problem
}
