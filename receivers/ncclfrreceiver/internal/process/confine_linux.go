package process

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the process may have. A pod has 512 MiB by default, and the collector lives in
// it, too.
const (
	// mostData is private writable memory, used or not (RLIMIT_DATA, since Linux 4.7).
	// Go maps it in pieces of 64 MiB and keeps holes: it uses about half.
	mostData = 640 << 20
	// aimedMemory is from where the garbage collector works harder.
	aimedMemory = 224 << 20
	// mostCPU is of its whole life, which ends after mostFiles.
	mostCPU = 300
)

// confine gives up what reading takes no need of. It opens nothing from then on: no
// file, no socket.
func confine() error {
	debug.SetMemoryLimit(aimedMemory)
	// The first to go when memory is short; without the right to say so, one of many.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	<-time.After(time.Nanosecond) // the runtime opens what timers need
	for _, limit := range []struct {
		what     string
		resource int
		most     uint64
	}{
		{"memory", unix.RLIMIT_DATA, mostData},
		{"processor time", unix.RLIMIT_CPU, mostCPU},
		{"core files", unix.RLIMIT_CORE, 0},
		{"written files", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, 0},
	} {
		if err := unix.Setrlimit(limit.resource, &unix.Rlimit{Cur: limit.most, Max: limit.most}); err != nil {
			return fmt.Errorf("limit %s: %w", limit.what, err)
		}
	}
	return dropRights()
}

// dropRights gives up all capabilities, and the way to get any, on all threads.
func dropRights() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		if errors.Is(errno, syscall.ENOTSUP) {
			return nil // a build with cgo, which releases are not
		}
		return fmt.Errorf("no new privileges: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}
