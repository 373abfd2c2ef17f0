package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// open opens a file for reading. os.Open would ask the runtime to wait for it, which takes five
// calls of the kernel and is refused for files of /proc.
func open(name string) (*os.File, error) {
	for {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		default:
			return os.NewFile(uintptr(fd), name), nil
		}
	}
}

// openRegular opens a regular file that must have this inode. It waits for no pipe
// and takes no terminal.
func openRegular(name string, inode uint64) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(file.Fd()), &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != inode) {
		err = errors.New("another file has its name by now")
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
