//go:build linux

package hangfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// makeFolder makes an empty folder to mount on. Its name says which process of
// which PID namespace uses it, so that a later one can tell what a process that
// was killed has left.
func makeFolder() (string, error) {
	namespace, err := pidNamespace()
	if err != nil {
		return "", err
	}
	removeLeft(os.TempDir(), namespace)
	return os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix(namespace), os.Getpid()))
}

// pidNamespace is the number of this process's PID namespace.
func pidNamespace() (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &stat); err != nil {
		return 0, fmt.Errorf("read /proc/self/ns/pid: %w", err)
	}
	return stat.Ino, nil
}

func prefix(namespace uint64) string { return fmt.Sprintf("hangfs-%d-", namespace) }

// removeLeft removes the empty folders in dir whose process is gone. rmdir(2)
// removes nothing else: no file, no link, no folder with something in it, and
// nothing that is mounted on here. A mount in another namespace would not hold it
// back, but goes with its process. What it cannot remove stays.
func removeLeft(dir string, namespace uint64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), prefix(namespace))
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.ParseInt(number, 10, 32)
		if ours && err == nil && pid > 0 && errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) {
			_ = unix.Rmdir(filepath.Join(dir, entry.Name()))
		}
	}
}
