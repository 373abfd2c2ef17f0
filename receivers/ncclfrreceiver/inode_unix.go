//go:build unix

package ncclfrreceiver

import (
	"io/fs"
	"syscall"
)

// nonBlocking opens a pipe without a writer at once.
const nonBlocking = syscall.O_NONBLOCK

func inode(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Ino) //nolint:unconvert // 32 bits on some systems
	}
	return 0
}
