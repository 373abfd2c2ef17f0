//go:build linux && (amd64 || arm64)

package taskstack

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2), include/uapi/linux/futex.h.
const (
	futexWait = 0
	futexWake = 1
)

func addressOf[T any](value *T) uintptr { return uintptr(unsafe.Pointer(value)) }

// wait sleeps in a futex until it is 1.
func wait(futex *uint32) {
	for atomic.LoadUint32(futex) == 0 {
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, addressOf(futex), futexWait, 0, 0, 0, 0)
	}
}

func wake(futex *uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, addressOf(futex), futexWake, 1, 0, 0, 0)
}
