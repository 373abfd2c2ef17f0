package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

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
