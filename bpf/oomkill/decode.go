//go:build linux && (amd64 || arm64)

package oomkill

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
)

// errDying is returned for a process that was dying already when memory ran out.
// The kernel lends it its last reserves by marking it a victim too
// (task_will_free_mem, mm/oom_kill.c), but does not kill it.
var errDying = errors.New("victim was dying already")

// decode turns one record of the ring into an event. clockOffset is what
// bootclock.Offset returned. It allocates only the event's strings.
func decode(raw []byte, code kernelCode, clockOffset int64, e *Event) error {
	if uintptr(len(raw)) < unsafe.Sizeof(bpfEvent{}) {
		return fmt.Errorf("oomkill record of %d bytes, want %d", len(raw), unsafe.Sizeof(bpfEvent{}))
	}
	r := (*bpfEvent)(unsafe.Pointer(unsafe.SliceData(raw)))
	switch {
	case r.Pid == 0:
		return errors.New("oomkill record without a process")
	case int(r.Cgroup.LengthBytes) > len(r.Cgroup.Names), int(r.LimitCgroup.LengthBytes) > len(r.LimitCgroup.Names):
		return fmt.Errorf("oomkill record with cgroup paths of %d and %d bytes", r.Cgroup.LengthBytes, r.LimitCgroup.LengthBytes)
	case int(r.StackBytes) > len(r.Stack)*8:
		return fmt.Errorf("oomkill record with a stack of %d bytes", r.StackBytes)
	}
	stack := r.Stack[:max(r.StackBytes, 0)/8]
	if code.kill != nil && len(stack) > 0 && !code.kill.On(stack) {
		return errDying
	}
	*e = Event{
		Time: bootclock.Time(r.TimeNs, clockOffset),
		PID:  r.Pid, ParentPID: r.ParentPid, Comm: text(r.Comm[:]), UID: r.Uid, OOMScoreAdj: r.OomScoreAdj,
		TotalVMBytes: r.TotalVmBytes, AnonRSSBytes: r.AnonRssBytes, FileRSSBytes: r.FileRssBytes,
		ShmemRSSBytes: r.ShmemRssBytes, PageTablesBytes: r.PageTablesBytes, SwapBytes: r.SwapBytes,
		CgroupPath: cgroupPath(r.Cgroup.State, r.Cgroup.Names[:r.Cgroup.LengthBytes]),
		TriggerPID: r.TriggerPid, TriggerComm: text(r.TriggerComm[:]),
	}
	e.Constraint, e.Source = constraint(r, code, stack)
	if e.Constraint == ConstraintCgroup {
		e.LimitCgroup = cgroupPath(r.LimitCgroup.State, r.LimitCgroup.Names[:r.LimitCgroup.LengthBytes])
		e.LimitBytes, e.UsageBytes, e.FailureCount = r.LimitBytes, r.UsageBytes, r.FailureCount
	}
	return nil
}

func constraint(r *bpfEvent, code kernelCode, stack []uint64) (Constraint, Source) {
	switch {
	case r.Exact != 0 && r.ExactCgroup != 0:
		return ConstraintCgroup, SourceOOMControl
	case r.Exact != 0:
		return ConstraintNode, SourceOOMControl
	case code.cgroupOOM == nil || len(stack) == 0:
		return ConstraintUnknown, SourceNone
	case code.cgroupOOM.On(stack):
		return ConstraintCgroup, SourceStack
	default:
		return ConstraintNode, SourceStack
	}
}

// cgroupPath joins names that come from the leaf to the root.
func cgroupPath(state bpfPathState, names []int8) string {
	if state == bpfPathStatePATH_NONE {
		return ""
	}
	root := "/"
	if state == bpfPathStatePATH_TRUNCATED {
		root = "…/"
	}
	fromLeaf := strings.FieldsFunc(string(asBytes(names)), func(r rune) bool { return r == 0 })
	slices.Reverse(fromLeaf)
	return root + strings.ToValidUTF8(strings.Join(fromLeaf, "/"), "�")
}

// text is a C string in a field of fixed size.
func text(field []int8) string {
	before, _, _ := bytes.Cut(asBytes(field), []byte{0})
	return strings.ToValidUTF8(string(before), "�")
}

func asBytes(field []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(field))), len(field))
}
