package procfs

// syscalls are those in which a thread of a job waits
// (arch/x86/entry/syscalls/syscall_64.tbl).
var syscalls = map[int64]call{
	327: {"preadv2", true}, 328: {"pwritev2", true}, 275: {"splice", true}, 326: {"copy_file_range", true},
	0: {"read", true}, 1: {"write", true}, 17: {"pread64", true}, 18: {"pwrite64", true}, 19: {"readv", true}, 20: {"writev", true},
	295: {"preadv", true}, 296: {"pwritev", true}, 40: {"sendfile", true}, 16: {"ioctl", true}, 72: {"fcntl", true}, 73: {"flock", true},
	74: {"fsync", true}, 75: {"fdatasync", true}, 77: {"ftruncate", true}, 217: {"getdents64", true}, 5: {"fstat", true}, 3: {"close", true},
	42: {"connect", true}, 43: {"accept", true}, 288: {"accept4", true}, 44: {"sendto", true}, 45: {"recvfrom", true}, 46: {"sendmsg", true}, 47: {"recvmsg", true},
	7: {name: "poll"}, 271: {name: "ppoll"}, 23: {name: "select"}, 270: {name: "pselect6"}, 232: {name: "epoll_wait"}, 281: {name: "epoll_pwait"},
	35: {name: "nanosleep"}, 230: {name: "clock_nanosleep"}, 202: {name: "futex"}, 449: {name: "futex_waitv"}, 34: {name: "pause"},
	61: {name: "wait4"}, 247: {name: "waitid"}, 2: {name: "open"}, 257: {name: "openat"}, 4: {name: "stat"}, 262: {name: "newfstatat"}, 332: {name: "statx"},
	9: {name: "mmap"}, 11: {name: "munmap"}, 26: {name: "msync"}, 87: {name: "unlink"}, 82: {name: "rename"}, 83: {name: "mkdir"}, 130: {name: "rt_sigsuspend"}, 128: {name: "rt_sigtimedwait"},
}
