//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
)

// decode turns one record of the ring into an event. clockOffset is what
// bootclock.Offset returned. It allocates only the event's string.
func decode(raw []byte, clockOffset int64, e *Event) error {
	if uintptr(len(raw)) < unsafe.Sizeof(bpfEvent{}) {
		return fmt.Errorf("cudaoom record of %d bytes, want %d", len(raw), unsafe.Sizeof(bpfEvent{}))
	}
	r := (*bpfEvent)(unsafe.Pointer(unsafe.SliceData(raw)))
	switch {
	case r.Pid == 0, r.Thread == 0:
		return errors.New("cudaoom record without a thread")
	case bpfFunction(r.Function) >= bpfFunctionFUNCTIONS:
		return fmt.Errorf("cudaoom record of function %d", r.Function)
	case bpfOutcome(r.Outcome) > bpfOutcomeOUTCOME_SUCCEEDED:
		return fmt.Errorf("cudaoom record with outcome %d", r.Outcome)
	}
	*e = Event{
		Time: bootclock.Time(r.TimeNs, clockOffset),
		PID:  r.Pid, Thread: r.Thread, Comm: text(r.Comm[:]),
		Function: functionOf(bpfFunction(r.Function)), SizeBytes: r.SizeBytes, Device: max(r.Device, DeviceUnknown),
		Succeeded: bpfOutcome(r.Outcome) == bpfOutcomeOUTCOME_SUCCEEDED,
	}
	return nil
}

func functionOf(f bpfFunction) Function {
	switch f {
	case bpfFunctionFUNCTION_MEM_ALLOC:
		return MemAlloc
	case bpfFunctionFUNCTION_MEM_ALLOC_PITCH:
		return MemAllocPitch
	case bpfFunctionFUNCTION_MEM_ALLOC_MANAGED:
		return MemAllocManaged
	case bpfFunctionFUNCTION_MEM_ALLOC_ASYNC:
		return MemAllocAsync
	case bpfFunctionFUNCTION_MEM_ALLOC_FROM_POOL_ASYNC:
		return MemAllocFromPoolAsync
	case bpfFunctionFUNCTION_MEM_CREATE:
		return MemCreate
	default:
		return FunctionUnknown
	}
}

// text is a C string in a field of fixed size.
func text(field []int8) string {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(field))), len(field))
	before, _, _ := bytes.Cut(raw, []byte{0})
	return strings.ToValidUTF8(string(before), "�")
}
