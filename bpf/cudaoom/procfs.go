//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// mapsPatience is how long to wait for the memory map of one process, maxStuckReads
// how many reads may be going on, waited for or not: a process that is stuck in a
// page fault may hold the lock of its map for as long as it is stuck.
const (
	mapsPatience  = 500 * time.Millisecond
	maxStuckReads = 4
)

var errStuck = errors.New("its memory map is locked")

// procfs reads processes under one root, "/proc" or a mount of the host's.
type procfs struct {
	root  string
	slots chan struct{} // one token per read going on
}

// newProcfs takes HOST_PROC for an empty root, as the identity probe does.
func newProcfs(root string) *procfs {
	if root == "" {
		root = os.Getenv("HOST_PROC")
	}
	if root == "" {
		root = "/proc"
	}
	return &procfs{root: root, slots: make(chan struct{}, maxStuckReads)}
}

func (fs *procfs) path(pid uint32, parts ...string) string {
	return filepath.Join(append([]string{fs.root, strconv.FormatUint(uint64(pid), 10)}, parts...)...)
}

// libraries finds the libcuda of a process; none, where the process is gone.
func (fs *procfs) libraries(pid uint32) ([]mapping, error) {
	type answer struct {
		found []mapping
		err   error
	}
	select {
	case fs.slots <- struct{}{}:
	default:
		return nil, errStuck
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-fs.slots }()
		found, err := fs.readLibraries(pid)
		answers <- answer{found, err}
	}()
	select {
	case a := <-answers:
		return a.found, a.err
	case <-time.After(mapsPatience):
		return nil, errStuck
	}
}

func (fs *procfs) readLibraries(pid uint32) ([]mapping, error) {
	file, err := os.Open(fs.path(pid, "maps"))
	if err == nil {
		defer file.Close()
		var found []mapping
		if found, err = findLibraries(file); err == nil {
			return found, nil
		}
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	return nil, fmt.Errorf("read the memory map of process %d: %w", pid, err)
}

// open opens the very file that is mapped, whatever has its name by now: by
// map_files, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, else by its path
// in the process's root, where it must have the inode that is mapped.
func (fs *procfs) open(pid uint32, m mapping) (*os.File, error) {
	const flags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	file, err := os.OpenFile(fs.path(pid, "map_files", m.addresses), flags, 0)
	if err != nil {
		file, err = os.OpenFile(fs.path(pid, "root", m.path), flags, 0)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(file.Fd()), &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != m.inode) {
		err = errors.New("another file has its name by now")
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
