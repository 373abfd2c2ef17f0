package procfs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// open opens a file for reading. os.Open would ask the runtime to wait for it, which takes five
// calls of the kernel and is refused for files of /proc.
func open(name string) (*os.File, error) { return openAs(name, name, unix.O_RDONLY) }

// openAs opens a file that is called otherwise from then on.
func openAs(name, called string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: called, Err: err}
		default:
			return os.NewFile(uintptr(fd), called), nil
		}
	}
}

// openMapped opens what a process has mapped there, else what has its name.
func (f *FS) openMapped(pid uint32, m *Mapping) (*os.File, error) {
	pinned, err := f.pinMapped(pid, m)
	if err != nil {
		return nil, err
	}
	defer pinned.Close()
	return OpenPinned(pinned)
}

// pinMapped is Pin of that.
func (f *FS) pinMapped(pid uint32, m *Mapping) (*os.File, error) {
	entry := f.path(pid, "map_files", m.Addresses())
	pinned, err := openAs(entry, entry, unix.O_PATH)
	if err == nil {
		pinned, err = plain(pinned, m.Inode) // another file may be mapped there by now, or a device
	}
	if err != nil {
		pinned, err = f.pin(pid, m.Path, m.Inode)
	}
	return pinned, err
}

// Pin holds on to a plain file without opening it, by its name as a process sees it: to open a
// device or a pipe can do something. The name is resolved as the process would, whatever links
// there are. None leads out of its root, none of proc is followed, and the file itself is no link.
// A name that is not absolute is below where the process works. It needs Linux 5.6, and may hang
// as long as the file system does: call it in Patiently.
func (f *FS) Pin(pid uint32, name string) (*os.File, error) { return f.pin(pid, name, anyInode) }

func (f *FS) pin(pid uint32, name string, inode uint64) (*os.File, error) {
	from, how := f.path(pid, "root"), unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if !filepath.IsAbs(name) { // that folder is not left
		from, how.Resolve = f.path(pid, "cwd"), unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS
	}
	dir, err := openAs(from, from, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	called := from + "/" + strings.TrimPrefix(name, "/")
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: called, Err: err}
	}
	return plain(os.NewFile(uintptr(fd), called), inode)
}

// OpenPinned opens for reading what Pin holds on to. It waits for no pipe and takes no terminal.
func OpenPinned(pinned *os.File) (*os.File, error) {
	entry := "/proc/self/fd/" + strconv.Itoa(int(pinned.Fd()))
	return openAs(entry, pinned.Name(), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
}

// anyInode is the number of no file.
const anyInode = 0

// plain closes what is no plain file on a file system that keeps files, or has another inode.
func plain(pinned *os.File, inode uint64) (*os.File, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	err := errors.Join(unix.Fstat(int(pinned.Fd()), &st), unix.Fstatfs(int(pinned.Fd()), &fs))
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG || keepsNoFiles(int64(fs.Type)): //nolint:unconvert // 32 bits on some systems
		err = ErrNoPlainFile
	case inode != anyInode && st.Ino != inode:
		err = errors.New("another file has its name by now")
	}
	if err != nil {
		return nil, errors.Join(err, pinned.Close())
	}
	return pinned, nil
}

// keepsNoFiles reports whether the files of such a file system are the kernel's own:
// reading one may wait, take, or act on a device.
func keepsNoFiles(kind int64) bool {
	switch kind {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.BPF_FS_MAGIC,
		unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC,
		unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, configfsMagic, mqueueMagic:
		return true
	}
	return false
}

// Of include/uapi/linux/magic.h and ipc/mqueue.c, which x/sys does not have.
const (
	configfsMagic = 0x62656570
	mqueueMagic   = 0x19800202
)

// IsDevice reports whether a file is the character device with these numbers. No daemon and no server
// of its file system is asked.
func IsDevice(file string, major, minor uint32) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, file, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev_major == major && st.Rdev_minor == minor
}
