package drillsecret

import (
	"io/fs"
	"os"
	"syscall"
)

// mine reports whether this user owns the file, or root does.
func mine(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}
