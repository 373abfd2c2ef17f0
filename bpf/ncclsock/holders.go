//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// holders is what /proc says of the owners: which sockets they hold and in which
// network namespaces they are.
type holders struct {
	proc       *procfs.FS
	maxSockets int
	sockets    map[uint64]uint32   // inode of a socket of any kind → the lowest pid that holds it
	namespaces map[uint64]*os.File // inode of a network namespace → the namespace
	unreadable int                 // processes
	over       int                 // sockets beyond the limit
}

func findHolders(proc *procfs.FS, owners []uint32, maxSockets int) *holders {
	h := &holders{proc: proc, maxSockets: maxSockets, sockets: map[uint64]uint32{}, namespaces: map[uint64]*os.File{}}
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
	if err != nil && !errors.Is(err, procfs.ErrGone) {
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
	f, err := h.proc.OpenNamespace(pid, "net")
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

// addSockets takes the sockets of a process until there are most. The first maxSockets of them
// have enough that are new.
func (h *holders) addSockets(pid uint32, most int) (over int, err error) {
	inodes, over, err := h.proc.Sockets(pid, h.maxSockets)
	for _, inode := range inodes {
		switch _, known := h.sockets[inode]; {
		case known:
		case len(h.sockets) >= most:
			over++
		default:
			h.sockets[inode] = pid
		}
	}
	return over, err
}
