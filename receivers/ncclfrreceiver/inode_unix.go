//go:build unix

package ncclfrreceiver

import (
	"io/fs"
	"syscall"
)

// plainly opens a pipe without a writer at once, and no link.
const plainly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

func inode(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Ino) //nolint:unconvert // 32 bits on some systems
	}
	return 0
}
