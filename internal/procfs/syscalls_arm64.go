package procfs

// syscalls are those in which a thread of a job waits
// (include/uapi/asm-generic/unistd.h).
var syscalls = map[int64]call{
	286: {"preadv2", true}, 287: {"pwritev2", true}, 76: {"splice", true}, 285: {"copy_file_range", true},
	63: {"read", true}, 64: {"write", true}, 67: {"pread64", true}, 68: {"pwrite64", true}, 65: {"readv", true}, 66: {"writev", true},
	69: {"preadv", true}, 70: {"pwritev", true}, 71: {"sendfile", true}, 29: {"ioctl", true}, 25: {"fcntl", true}, 32: {"flock", true},
	82: {"fsync", true}, 83: {"fdatasync", true}, 46: {"ftruncate", true}, 61: {"getdents64", true}, 80: {"fstat", true}, 57: {"close", true},
	203: {"connect", true}, 202: {"accept", true}, 242: {"accept4", true}, 206: {"sendto", true}, 207: {"recvfrom", true}, 211: {"sendmsg", true}, 212: {"recvmsg", true},
	73: {name: "ppoll"}, 72: {name: "pselect6"}, 22: {name: "epoll_pwait"}, 101: {name: "nanosleep"}, 115: {name: "clock_nanosleep"}, 98: {name: "futex"}, 449: {name: "futex_waitv"},
	260: {name: "wait4"}, 95: {name: "waitid"}, 56: {name: "openat"}, 79: {name: "newfstatat"}, 291: {name: "statx"},
	222: {name: "mmap"}, 215: {name: "munmap"}, 227: {name: "msync"}, 35: {name: "unlinkat"}, 38: {name: "renameat"}, 34: {name: "mkdirat"}, 133: {name: "rt_sigsuspend"}, 137: {name: "rt_sigtimedwait"},
}
