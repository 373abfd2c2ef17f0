//go:build unix

package filestorageextension

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

var errTaken = errors.New("another tracecore has it: stop that one, or give this one its own folder")

// folder is the folder of all state, held by one process at a time.
type folder struct {
	path string

	mu   sync.Mutex
	held *os.File
}

// take makes the folder and locks it. The kernel gives the lock back when the
// process ends, however it ends (flock(2)).
func (f *folder) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		return nil
	}
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	dir, err := os.Open(f.path)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errTaken
		}
		return fmt.Errorf("lock the state folder %s: %w", f.path, err)
	}
	f.held = dir
	return nil
}

func (f *folder) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		f.held.Close()
	}
	f.held = nil
}
