//go:build unix

package otlpreceiver

import "golang.org/x/sys/unix"

// maxOpenFiles is how many files the process may open.
func maxOpenFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<20 {
		return 1 << 20
	}
	return int(limit.Cur)
}
