package procfs

import (
	"errors"
	"fmt"
	"os"

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
		var st unix.Stat_t
		err := unix.Stat(entry, &st)
		if err != nil {
			err = unix.Stat(f.path(pid, "root", m.Path), &st)
		}
		return version(&st, m.Inode, err)
	})
}

// Version tells which file is open, which must have this inode.
func (f *FS) Version(file *os.File, inode uint64) (Version, error) {
	return Patiently(f, file.Name(), func() (Version, error) {
		var st unix.Stat_t
		err := unix.Fstat(int(file.Fd()), &st)
		return version(&st, inode, err)
	})
}

func version(st *unix.Stat_t, inode uint64, err error) (Version, error) {
	switch {
	case err != nil:
		return Version{}, err
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != inode:
		return Version{}, errors.New("another file has its name by now")
	}
	return Version{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// Close closes a file that may lie on any mount: FUSE waits for its daemon then (fuse_flush,
// fs/fuse/file.c).
func (f *FS) Close(file *os.File) error {
	_, err := Patiently(f, "close "+file.Name(), func() (struct{}, error) { return struct{}{}, file.Close() })
	return err
}
