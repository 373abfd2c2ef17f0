package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Bounds on a mount table, and on how much of a mount's own words is kept.
const (
	maxMountinfo = 16 << 20
	maxMountLine = 1 << 20
	maxText      = 1024
)

// Mount is a file system in the mount table of a process.
type Mount struct {
	Point  string // as that process sees it
	Source string
	Type   string
	Major  uint32 // of its device
	Minor  uint32
	// SeenBy is whose table it was found in: a pid, "1" or "self".
	SeenBy string
}

// The mount tables that are there whatever becomes of a process.
const (
	OfInit = "1"
	OfSelf = "self"
)

// OfProcess names the mount table of a process.
func OfProcess(pid uint32) string { return strconv.FormatUint(uint64(pid), 10) }

// ErrNotMounted says that a mount table could be read and has no such file system.
var ErrNotMounted = errors.New("not mounted")

// Mount finds a file system by its device number in the mount table of the first of
// these processes that has it. The error is that of the last: ErrNotMounted when its
// table could be read.
func (f *FS) Mount(major, minor uint32, processes ...string) (Mount, error) {
	err := ErrNotMounted
	for _, process := range processes {
		var found *Mount
		if found, err = f.table(process, onDevice(major, minor)); err == nil {
			return *found, nil
		}
	}
	return Mount{}, err
}

// MountOf finds the file system that an open file of a process is on, by what the kernel says
// of the file (proc_pid_fdinfo(5)). The file system is not asked.
func (f *FS) MountOf(pid uint32, fd int) (Mount, error) {
	info, err := f.of(pid, maxStatus, "fdinfo", strconv.Itoa(fd))
	if err != nil {
		return Mount{}, err
	}
	id, err := numberAfter(info.Content, "mnt_id")
	if err != nil {
		return Mount{}, fmt.Errorf("read fdinfo of file %d of process %d: %w", fd, pid, err)
	}
	found, err := f.table(OfProcess(pid), func(line []byte) bool {
		number, _, _ := bytes.Cut(line, []byte{' '})
		return string(number) == strconv.FormatUint(id, 10)
	})
	if err != nil {
		return Mount{}, err
	}
	return *found, nil
}

// maxDevices is how many devices of one type are told.
const maxDevices = 64

// Devices are those of the file systems in the mount table of a process whose type begins so, as maps shows them
// (proc_pid_maps(5)): "00:2f".
func (f *FS) Devices(pid uint32, kind string) (devices []string, err error) {
	_, err = f.table(OfProcess(pid), func(line []byte) bool {
		if m, ok := parseMount(string(line)); ok && strings.HasPrefix(m.kind, kind) && len(devices) < maxDevices {
			devices = append(devices, fmt.Sprintf("%02x:%02x", m.major, m.minor))
		}
		return false
	})
	if errors.Is(err, ErrNotMounted) { // none was looked for
		err = nil
	}
	return devices, err
}

// onDevice fits the lines of a mount table that have that device number.
func onDevice(major, minor uint32) func(line []byte) bool {
	device := fmt.Appendf(nil, "%d:%d", major, minor)
	return func(line []byte) bool { return bytes.Equal(deviceOf(line), device) }
}

func (f *FS) table(process string, fits func(line []byte) bool) (*Mount, error) {
	file := filepath.Join(f.root, process, "mountinfo")
	if f.Foreign() && process != OfSelf && process != OfInit {
		return nil, fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	return Patiently(f, file, func() (*Mount, error) {
		table, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer table.Close()
		found, err := findMount(io.LimitReader(table, maxMountinfo), fits)
		if found != nil {
			found.SeenBy = process
		}
		return found, err
	})
}

// mountLine is one line of a mount table.
type mountLine struct {
	root, point, kind, source string
	major, minor              uint32
}

// findMount looks for a line that fits in a mount table (proc_pid_mountinfo(5)). Of
// several mounts of one file system, which are bind mounts, it takes the one that
// shows most of it, then the one with the shortest path. An odd line must not hide
// the others.
func findMount(table io.Reader, fits func(line []byte) bool) (*Mount, error) {
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, maxMountLine)
	var best *mountLine
	for lines.Scan() {
		if !fits(lines.Bytes()) {
			continue
		}
		if one, ok := parseMount(lines.Text()); ok && (best == nil || one.before(best)) {
			best = &one
		}
	}
	switch {
	case best != nil:
		return &Mount{Point: bounded(best.point), Source: bounded(best.source), Type: bounded(best.kind), Major: best.major, Minor: best.minor}, nil
	case lines.Err() != nil:
		return nil, lines.Err()
	}
	return nil, ErrNotMounted
}

// deviceOf returns the third field of a line.
func deviceOf(line []byte) []byte {
	for range 2 {
		_, line, _ = bytes.Cut(line, []byte{' '})
	}
	device, _, _ := bytes.Cut(line, []byte{' '})
	return device
}

// parseMount reads "36 35 98:0 /root /point options optional… - type source options".
func parseMount(line string) (m mountLine, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	place, kind := strings.Split(before, " "), strings.Split(after, " ")
	if !ok || len(place) < 6 || len(kind) < 2 {
		return m, false
	}
	major, minor, _ := strings.Cut(place[2], ":")
	a, errMajor := strconv.ParseUint(major, 10, 12) // MAJOR and MINOR, include/linux/kdev_t.h
	b, errMinor := strconv.ParseUint(minor, 10, 20)
	if errMajor != nil || errMinor != nil {
		return m, false
	}
	m.major, m.minor = uint32(a), uint32(b)
	var problems [4]bool
	m.root, problems[0] = unescape(place[3])
	m.point, problems[1] = unescape(place[4])
	m.kind, problems[2] = unescape(kind[0])
	m.source, problems[3] = unescape(kind[1])
	return m, problems == [4]bool{}
}

// unescape undoes what the kernel does to spaces, tabs, line ends and backslashes:
// three octal digits (mangle(), fs/proc_namespace.c).
func unescape(s string) (plain string, bad bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if !found {
			return b.String(), false
		}
		if len(after) < 3 {
			return "", true
		}
		code, err := strconv.ParseUint(after[:3], 8, 8)
		if err != nil {
			return "", true
		}
		b.WriteByte(byte(code))
		s = after[3:]
	}
}

func (m *mountLine) before(other *mountLine) bool {
	if len(m.root) != len(other.root) {
		return len(m.root) < len(other.root)
	}
	return len(m.point) < len(other.point)
}

// bounded cuts what a daemon or a user wrote and makes it valid UTF-8.
func bounded(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "?")
}
