package procfs

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Version is a file as it is now. The numbers of a file that was removed are given to another, whose
// inode has changed at another time. No user sets that time, but on a file system of his own.
type Version struct {
	Device, Inode     uint64
	Size              int64
	Modified, Changed unix.Timespec
}

// MappedVersion tells which file a process has mapped, without opening it.
func (f *FS) MappedVersion(pid uint32, m Mapping) (Version, error) {
	entry := f.path(pid, "map_files", m.Addresses())
	if f.Foreign() {
		return Version{}, fmt.Errorf("read %s: %w", entry, ErrForeign)
	}
	return Patiently(f, entry, func() (Version, error) {
		pinned, err := f.pinMapped(pid, &m)
		if err != nil {
			return Version{}, err
		}
		defer pinned.Close()
		return version(pinned, m.Inode)
	})
}

// Version tells which file is open, which must have this inode.
func (f *FS) Version(file *os.File, inode uint64) (Version, error) {
	return Patiently(f, file.Name(), func() (Version, error) { return version(file, inode) })
}

func version(file *os.File, inode uint64) (Version, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return Version{}, err
	}
	if st.Ino != inode {
		return Version{}, errors.New("another file has its name by now")
	}
	return Version{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// Close closes a file of a process, which may lie on any mount: FUSE waits for its daemon then
// (fuse_flush, fs/fuse/file.c). What hangs is the tenant's whose process it is.
func (f *FS) Close(file *os.File) error {
	of := subject{f.subjectOf(file.Name()).pid, "close " + file.Name()}
	var begun atomic.Bool
	_, err := patiently(f, file.Name(), of, func() string { return f.ownerOf(of) }, func() (struct{}, error) {
		begun.Store(true)
		return struct{}{}, file.Close()
	})
	if !begun.Load() && errors.Is(err, ErrHung) {
		go file.Close() // else the finalizers of the whole process would wait for the daemon
	}
	return err
}
