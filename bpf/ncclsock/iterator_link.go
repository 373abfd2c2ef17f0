//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// The two calls that bind an iterator to one process are made here by hand:
// link.AttachIter of cilium/ebpf knows maps alone. The structures are members of
// union bpf_attr and bpf_iter_link_info, include/uapi/linux/bpf.h.
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

// start makes an iterator over the files of one process, or of the host for pid 0,
// and returns the descriptor to read it from.
func (it *iterator) start(pid uint32) (int, error) {
	attr := linkCreateAttr{programFD: uint32(it.program.FD()), attachType: unix.BPF_TRACE_ITER}
	if pid != 0 {
		attr.info = unsafe.Pointer(&taskInfo{pid: pid})
		attr.infoBytes = uint32(unsafe.Sizeof(taskInfo{}))
	}
	linkFD, err := bpf(unix.BPF_LINK_CREATE, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if pid != 0 && errors.Is(err, unix.E2BIG) {
		return 0, &ladder.Problem{
			Outcome: probe.Unsupported,
			Reason:  "this kernel's file iterator cannot be bound to one process",
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
