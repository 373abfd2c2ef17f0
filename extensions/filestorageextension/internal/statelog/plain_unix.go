//go:build unix

package statelog

import (
	"os"
	"syscall"
)

// plainly follows no link and waits for no pipe.
const plainly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// syncDir has the device take the names in a folder.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
