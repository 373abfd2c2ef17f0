package ncclfrreceiver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

var (
	errForeignOwner = errors.New("it is another user's, the rank cannot have written it")
	errNoPlainFile  = errors.New("it is no plain file")
)

// able says why ranks' own roots cannot be looked into, nil where they can.
func (*roots) able() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return fmt.Errorf("openat2: %w: it needs Linux 5.6; name the dumps in include", err)
	}
	return unix.Close(fd)
}

// placeOf tells the root of a process from others.
func (r *roots) placeOf(pid uint32, domain string) (place, error) {
	mount, err := r.proc.Namespace(pid, "mnt")
	if err != nil {
		return place{}, err
	}
	root := r.file(pid, "root")
	return patiently(r, domain, root, func() (place, error) {
		var st unix.Stat_t
		if err := unix.Stat(root, &st); err != nil {
			return place{}, err
		}
		return place{root: fileID{uint64(st.Dev), st.Ino}, mount: mount}, nil //nolint:unconvert // 32 bits on some systems
	})
}

func (r *roots) file(pid uint32, name string) string {
	return filepath.Join(r.proc.Root(), strconv.FormatUint(uint64(pid), 10), name)
}

// find looks at a dump without reading it. A folder that does not answer is asked once,
// for all ranks that see it.
func (r *roots) find(w *written, at place) (fingerprint, error) {
	folder := fmt.Sprintf("%v %s", at, filepath.Dir(w.path))
	return patiently(r, w.process.Domain, folder, func() (fingerprint, error) {
		file, err := r.pinned(w)
		if err != nil {
			return fingerprint{}, err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return fingerprint{}, err
		}
		return fingerprintOf(info), nil
	})
}

// read reads a dump that was found.
func (r *roots) read(c candidate, most int64) (content, error) {
	return patiently(r, c.owner.folder, c.path, func() (content, error) {
		pinned, err := r.pinned(c.written)
		if err != nil {
			return content{}, err
		}
		defer pinned.Close()
		// Only what is known to be a plain file is opened: opening a device or a pipe
		// can do something.
		file, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(pinned.Fd())), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return content{}, err
		}
		return readOpen(file, most)
	})
}

// pinned holds on to the file of a dump without opening it. Its name is resolved as the
// rank would, whatever links there are: none leads out of the root of the rank, none of
// proc is followed, and the file itself is no link. It is a plain file of the rank's user
// on a file system that keeps files.
func (r *roots) pinned(w *written) (*os.File, error) {
	from, how := "root", unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if !filepath.IsAbs(w.path) { // as seen from where it works: that folder is not left
		from, how.Resolve = "cwd", unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS
	}
	dir, err := unix.Open(r.file(w.through, from), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, w.path, &how)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), w.key())
	if err := w.plain(fd); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (w *written) plain(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || keepsNoFiles(int64(fs.Type)): //nolint:unconvert // 32 bits on some systems
		return errNoPlainFile
	case st.Uid != w.uid:
		return errForeignOwner
	}
	return nil
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
