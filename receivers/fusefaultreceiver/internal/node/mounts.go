//go:build linux

package node

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// maxText is how much of a mount's own words is kept, in bytes.
const maxText = 1024

// Mount finds a file system by its device number in the mount table of the first
// of these processes that has it.
func (n *Node) Mount(major, minor uint32, processes ...string) (Mount, bool) {
	for _, process := range processes {
		if found, err := n.table(major, minor, process); err == nil && found != nil {
			return *found, true
		}
	}
	return Mount{}, false
}

// Gone reports whether the mount table of a process can be read and has no such
// file system.
func (n *Node) Gone(major, minor uint32, process string) bool {
	found, err := n.table(major, minor, process)
	return err == nil && found == nil
}

// table returns the mount in the table of a process, nil when it has none.
func (n *Node) table(major, minor uint32, process string) (*Mount, error) {
	if n.foreign && process != OfSelf && process != OfInit {
		return nil, errForeign
	}
	return patiently(n, func() (*Mount, error) {
		file, err := os.Open(filepath.Join(n.proc, process, "mountinfo"))
		if err != nil {
			return nil, err
		}
		defer file.Close()
		found, err := find(io.LimitReader(file, maxMountinfo), major, minor)
		if found != nil {
			found.SeenBy = process
		}
		return found, err
	})
}

// find looks for a device number in a mount table (proc_pid_mountinfo(5)). Of
// several mounts of one file system, which are bind mounts, it takes the one that
// shows most of it, then the one with the shortest path. Lines are parsed one by
// one: an odd one must not hide the others.
func find(table io.Reader, major, minor uint32) (*Mount, error) {
	device := []byte(fmt.Sprintf("%d:%d", major, minor))
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, maxMountLine)
	var best *mountinfo.Info
	for lines.Scan() {
		if !bytes.Equal(deviceOf(lines.Bytes()), device) {
			continue
		}
		parsed, err := mountinfo.GetMountsFromReader(strings.NewReader(lines.Text()), nil)
		if err == nil && len(parsed) == 1 && (best == nil || shorter(parsed[0], best)) {
			best = parsed[0]
		}
	}
	if best == nil {
		return nil, lines.Err()
	}
	return &Mount{Point: text(best.Mountpoint), Source: text(best.Source), Type: text(best.FSType)}, nil
}

// deviceOf returns the third field of a line.
func deviceOf(line []byte) []byte {
	for range 2 {
		_, rest, _ := bytes.Cut(line, []byte{' '})
		line = rest
	}
	device, _, _ := bytes.Cut(line, []byte{' '})
	return device
}

func shorter(a, b *mountinfo.Info) bool {
	if len(a.Root) != len(b.Root) {
		return len(a.Root) < len(b.Root)
	}
	return len(a.Mountpoint) < len(b.Mountpoint)
}

// text bounds what a daemon or a user wrote and makes it valid UTF-8, which OTLP
// asks for.
func text(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "?")
}
