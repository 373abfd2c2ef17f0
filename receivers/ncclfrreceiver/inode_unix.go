//go:build unix

package ncclfrreceiver

import (
	"io/fs"
	"syscall"
)

// plainly opens a pipe without a writer at once, and no link.
const plainly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// identify tells which file it is, by whatever name, and whose.
func identify(info fs.FileInfo) (device, inode uint64, owner uint32) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Dev), uint64(stat.Ino), stat.Uid //nolint:unconvert // 32 bits on some systems
	}
	return 0, 0, 0
}
