package fusefaultreceiver

import (
	"strconv"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
)

// Requests that matter here (include/uapi/linux/fuse.h, enum fuse_opcode).
const (
	opForget      = 2
	opRelease     = 18
	opReleaseDir  = 29
	opSetLockWait = 33
	opInterrupt   = 36
	opNotifyReply = 41
	opBatchForget = 42
)

// opcodeName is a request's name without its prefix: READ for FUSE_READ.
func opcodeName(opcode uint32) string {
	names := [...]string{
		1: "LOOKUP", 2: "FORGET", 3: "GETATTR", 4: "SETATTR", 5: "READLINK", 6: "SYMLINK", 8: "MKNOD", 9: "MKDIR", 10: "UNLINK",
		11: "RMDIR", 12: "RENAME", 13: "LINK", 14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS", 18: "RELEASE", 20: "FSYNC",
		21: "SETXATTR", 22: "GETXATTR", 23: "LISTXATTR", 24: "REMOVEXATTR", 25: "FLUSH", 26: "INIT", 27: "OPENDIR", 28: "READDIR",
		29: "RELEASEDIR", 30: "FSYNCDIR", 31: "GETLK", 32: "SETLK", 33: "SETLKW", 34: "ACCESS", 35: "CREATE", 36: "INTERRUPT",
		37: "BMAP", 38: "DESTROY", 39: "IOCTL", 40: "POLL", 41: "NOTIFY_REPLY", 42: "BATCH_FORGET", 43: "FALLOCATE",
		44: "READDIRPLUS", 45: "RENAME2", 46: "LSEEK", 47: "COPY_FILE_RANGE", 48: "SETUPMAPPING", 49: "REMOVEMAPPING",
		50: "SYNCFS", 51: "TMPFILE", 52: "STATX",
	}
	if opcode < uint32(len(names)) && names[opcode] != "" {
		return names[opcode]
	}
	return strconv.FormatUint(uint64(opcode), 10)
}

// counts reports whether something in flight makes its mount stall when it is old.
// A fault and a request in the foreground do: somebody sleeps until they return.
// So does most of what goes on in the background, although nobody may sleep for it
// yet: a READ is readahead that its reader will come to (fs/fuse/file.c,
// fuse_readahead()), a WRITE is writeback that holds dirty pages and that fsync and
// close will wait for. A RELEASE is waited for by nobody, ever.
//
// SETLKW waits for the holder of the lock, not for the daemon, and what the
// daemon does not answer at all (FORGET, INTERRUPT, NOTIFY_REPLY) cannot be late.
func counts(f *fusefault.InFlight) bool {
	if f.Kind == fusefault.KindFault {
		return true
	}
	switch f.Opcode {
	case opForget, opBatchForget, opInterrupt, opNotifyReply, opSetLockWait:
		return false
	case opRelease, opReleaseDir:
		return !f.Background
	default:
		return true
	}
}
