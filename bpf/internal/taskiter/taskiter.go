//go:build linux && (amd64 || arm64)

// Package taskiter starts BPF iterators over tasks that are bound to one of them:
// link.AttachIter of cilium/ebpf knows maps alone.
package taskiter

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Bound is what an iterator walks: one thread, the threads of one process, or with neither
// those of the host.
type Bound struct{ TID, PID uint32 }

// The structures are members of union bpf_attr and bpf_iter_link_info,
// include/uapi/linux/bpf.h.
type (
	linkCreateAttr struct {
		programFD, targetFD, attachType, flags uint32
		info                                   unsafe.Pointer
		infoBytes                              uint32
		_                                      uint32
	}
	iterCreateAttr struct{ linkFD, flags uint32 }
	taskInfo       struct{ tid, pid, pidFD uint32 }
)

// Start makes an iterator and returns the descriptor to read it from.
func Start(program *ebpf.Program, bound Bound) (int, error) {
	attr := linkCreateAttr{programFD: uint32(program.FD()), attachType: unix.BPF_TRACE_ITER}
	if bound != (Bound{}) {
		attr.info = unsafe.Pointer(&taskInfo{tid: bound.TID, pid: bound.PID})
		attr.infoBytes = uint32(unsafe.Sizeof(taskInfo{}))
	}
	linkFD, err := bpf(unix.BPF_LINK_CREATE, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if attr.info != nil && errors.Is(err, unix.E2BIG) {
		return 0, &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "this kernel's iterators cannot be bound to one process or thread",
			Hint:    "use Linux 6.1 or newer",
			Err:     err,
		}
	}
	if err != nil {
		return 0, fmt.Errorf("attach iterator: %w", err)
	}
	defer unix.Close(linkFD) // the iterator keeps it
	iter := iterCreateAttr{linkFD: uint32(linkFD)}
	fd, err := bpf(unix.BPF_ITER_CREATE, unsafe.Pointer(&iter), unsafe.Sizeof(iter))
	if err != nil {
		return 0, fmt.Errorf("start iterator: %w", err)
	}
	return fd, nil
}

// bpf is bpf(2); its descriptors are close-on-exec.
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	runtime.KeepAlive(attr)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}
