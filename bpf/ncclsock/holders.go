//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holders is what /proc says of the owners: which sockets they hold and in which
// network namespaces they are.
type holders struct {
	sockets    map[uint64]uint32   // inode of a socket of any kind → the lowest pid that holds it
	namespaces map[uint64]*os.File // inode of a network namespace → the namespace
	unreadable int                 // processes
	over       int                 // sockets beyond the limit
}

func findHolders(owners []uint32, maxSockets int) *holders {
	h := &holders{sockets: map[uint64]uint32{}, namespaces: map[uint64]*os.File{}}
	var many []uint32 // have more than their part of the room
	for i, pid := range owners {
		if over := h.add(pid, (maxSockets-len(h.sockets))/(len(owners)-i)); over > 0 {
			many = append(many, pid)
		}
	}
	for i, pid := range many {
		h.over += h.add(pid, (maxSockets-len(h.sockets))/(len(many)-i))
	}
	return h
}

// add reads at most room more sockets of a process, and returns how many it has beyond.
func (h *holders) add(pid uint32, room int) (over int) {
	over, err := h.addSockets(pid, len(h.sockets)+max(room, 0))
	err = errors.Join(h.addNamespace(pid), err)
	// A process that is gone has no sockets.
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		h.unreadable++
	}
	return over
}

func (h *holders) close() {
	for _, f := range h.namespaces {
		f.Close()
	}
}

func (h *holders) addNamespace(pid uint32) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return errors.Join(err, f.Close())
	}
	if _, known := h.namespaces[st.Ino]; known {
		return f.Close()
	}
	h.namespaces[st.Ino] = f
	return nil
}

// addSockets reads where the descriptors of a process lead: "socket:[12345]".
func (h *holders) addSockets(pid uint32, most int) (over int, err error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if !h.addDescriptor(int(dir.Fd()), name, pid, most) {
				over++
			}
		}
		if errors.Is(err, io.EOF) {
			return over, nil
		}
		if err != nil {
			return over, err
		}
	}
}

// addDescriptor reports whether there is room for what the descriptor leads to.
func (h *holders) addDescriptor(dir int, name string, pid uint32, most int) bool {
	var target [64]byte
	n, err := unix.Readlinkat(dir, name, target[:])
	if err != nil { // closed meanwhile
		return true
	}
	inode, ok := socketInode(string(target[:n]))
	if !ok {
		return true
	}
	if _, known := h.sockets[inode]; known {
		return true
	}
	if len(h.sockets) >= most {
		return false
	}
	h.sockets[inode] = pid
	return true
}

func socketInode(target string) (uint64, bool) {
	rest, ok := strings.CutPrefix(target, "socket:[")
	if !ok {
		return 0, false
	}
	digits, ok := strings.CutSuffix(rest, "]")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(digits, 10, 64)
	return inode, err == nil
}
