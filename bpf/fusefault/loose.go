//go:build linux && (amd64 || arm64)

package fusefault

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sighting is a wait with no record of its own: known since it was first seen.
type sighting struct {
	switches uint64 // the same: the thread has not run since
	since    uint64
	device   Device
	known    bool // the device
}

// sightings are the loose waits of the last snapshot, by thread.
type sightings map[uint32]sighting

// follow keeps those that still last, adds the new ones and puts what is old enough
// among the waits. known are the FUSE devices: a file of any other is not waited
// for here.
func (s sightings) follow(p *picture, v *verdicts, known map[Device]bool, deviceOf func(thread) (Device, bool)) {
	still := make(map[uint32]bool, len(v.loose))
	for _, t := range v.loose {
		still[t.tid] = true
		seen, ok := s[t.tid]
		if !ok || seen.switches != t.switches {
			seen = sighting{switches: t.switches, since: p.now}
			seen.device, seen.known = deviceOf(t)
			s[t.tid] = seen
		}
		if seen.known && known[seen.device] {
			p.addLoose(v, t, seen)
		}
	}
	for tid := range s {
		if !still[tid] {
			delete(s, tid)
		}
	}
}

// addLoose takes the thread's own readahead or writeback for its wait, where it
// began one, and else makes an entry that is as old as we have seen it wait.
func (p *picture) addLoose(v *verdicts, t thread, seen sighting) {
	if own, ok := p.ownBackground(t.tid, seen.device); ok {
		id := identity(own.key, own.StartNs)
		for i := range v.waits {
			if v.waits[i].ID == id {
				v.waits[i].Background = false
			}
		}
		return
	}
	if !p.old(seen.since) {
		return
	}
	v.waits = append(v.waits, wait{start: seen.since, InFlight: InFlight{
		ID: identity(uint64(t.tid)<<32|1, t.switches), Kind: KindRequest, Device: seen.device,
		Opcode: p.operation(t), PID: t.pid, TID: t.tid, Comm: t.comm,
	}})
}

// fileDevice is the device of the file that a thread's system call works on. It
// asks procfs and never the file: that would wait for the same daemon.
func fileDevice(t thread) (Device, bool) {
	task := fmt.Sprintf("/proc/%d/task/%d/", t.pid, t.tid)
	call, err := os.ReadFile(task + "syscall")
	if err != nil {
		return Device{}, false
	}
	fd, ok := parseSyscall(string(call))
	if !ok {
		return Device{}, false
	}
	info, err := os.ReadFile(task + "fdinfo/" + strconv.FormatUint(fd, 10))
	if err != nil {
		return Device{}, false
	}
	mount, ok := parseFdinfo(string(info))
	if !ok {
		return Device{}, false
	}
	mounts, err := os.ReadFile(task + "mountinfo")
	if err != nil {
		return Device{}, false
	}
	return parseMountinfo(mounts, mount)
}

// parseSyscall reads "number argument…" as /proc/<tid>/syscall has it, and returns
// the file descriptor that is read, written or synchronised. "running" and -1 (no
// system call) have none.
func parseSyscall(line string) (uint64, bool) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return 0, false
	}
	number, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0, false
	}
	argument := fields[1]
	switch number {
	case unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_READV, unix.SYS_PREADV, unix.SYS_PREADV2,
		unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2,
		unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SPLICE, unix.SYS_COPY_FILE_RANGE:
	case unix.SYS_SENDFILE:
		argument = fields[2] // the file that is read
	default:
		return 0, false
	}
	fd, err := strconv.ParseUint(strings.TrimPrefix(argument, "0x"), 16, 32)
	return fd, err == nil
}

// parseFdinfo returns the mount id of an open file.
func parseFdinfo(text string) (string, bool) {
	for line := range strings.Lines(text) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), true
		}
	}
	return "", false
}

// parseMountinfo returns the third field of the line of one mount.
func parseMountinfo(text []byte, id string) (Device, bool) {
	for line := range bytes.Lines(text) {
		fields := bytes.SplitN(line, []byte(" "), 4)
		if len(fields) < 4 || string(fields[0]) != id {
			continue
		}
		major, minor, _ := strings.Cut(string(fields[2]), ":")
		a, errA := strconv.ParseUint(major, 10, 12)
		b, errB := strconv.ParseUint(minor, 10, 20)
		return Device{uint32(a), uint32(b)}, errA == nil && errB == nil
	}
	return Device{}, false
}
