//go:build linux && (amd64 || arm64)

package pyexception

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/pystack"
)

// space is how many frames of a record an exception has: those farther out that are no
// library's, and the innermost.
type space struct{ own, innermost int }

// The spaces of the first exception and of each other.
var (
	ofFirst  = space{own: 3, innermost: 8}
	ofOthers = space{own: 1, innermost: 2}
)

// noLevel is the level of what is no frame.
const noLevel = 1<<32 - 1

// header checks a record and returns it. It does not look at what the process wrote.
func header(raw []byte) (*bpfEvent, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(bpfEvent{}) {
		return nil, fmt.Errorf("pyexception record of %d bytes, want %d", len(raw), unsafe.Sizeof(bpfEvent{}))
	}
	r := (*bpfEvent)(unsafe.Pointer(unsafe.SliceData(raw)))
	switch {
	case r.Pid == 0, r.Thread == 0:
		return nil, errors.New("pyexception record without a thread")
	case r.Exceptions == 0 || int(r.Exceptions) > len(r.Exception):
		return nil, fmt.Errorf("pyexception record of %d exceptions", r.Exceptions)
	}
	return r, nil
}

// decodeOf is decode for the exceptions of wanted processes; nil: of each.
func decodeOf(wanted func(pid uint32) bool) func(raw []byte, clockOffset int64, e *Event) error {
	if wanted == nil {
		return decode
	}
	return func(raw []byte, clockOffset int64, e *Event) error {
		if pid := processOf(raw); pid != 0 && !wanted(pid) {
			return uprobe.ErrUnwanted
		}
		return decode(raw, clockOffset, e)
	}
}

// processOf is the process that a record is of; 0 where that is not known.
func processOf(raw []byte) uint32 {
	if r := terminated(raw); r != nil {
		return r.Pid
	}
	if r, err := header(raw); err == nil {
		return r.Pid
	}
	return 0
}

// decode turns one record of the ring into an event. clockOffset is what bootclock.Offset
// returned.
func decode(raw []byte, clockOffset int64, e *Event) error {
	if r := terminated(raw); r != nil {
		return decodeTerminated(r, clockOffset, e)
	}
	r, err := header(raw)
	if err != nil {
		return err
	}
	out := Event{
		Time: bootclock.Time(r.TimeNs, clockOffset), PID: r.Pid, Thread: r.Thread, Comm: text(r.Comm[:]),
		Minor: int(r.Minor), More: r.More != 0, address: r.Exception[0].Address,
	}
	frames, space := r.Frame[:], ofFirst
	for i := range r.Exceptions {
		one, err := exceptionOf(r, int(i), frames, space)
		if err != nil {
			return err
		}
		out.Chain = append(out.Chain, one)
		frames, space = frames[space.own+space.innermost:], ofOthers
	}
	*e = out
	return nil
}

func exceptionOf(r *bpfEvent, i int, frames []bpfFrame, space space) (Exception, error) {
	x := &r.Exception[i]
	switch {
	case bpfRelation(x.Relation) >= bpfRelationRELATIONS, (bpfRelation(x.Relation) == bpfRelationRELATION_DISPLAYED) != (i == 0):
		return Exception{}, fmt.Errorf("pyexception record: exception %d of relation %d", i, x.Relation)
	case int(x.Frames) > space.innermost:
		return Exception{}, fmt.Errorf("pyexception record: exception %d of %d frames", i, x.Frames)
	}
	out := Exception{Relation: relationOf(bpfRelation(x.Relation)), Type: text(x.Type[:]), Levels: int(x.Levels), Broken: x.Broken != 0}
	m, err := messageOf(r, i)
	if err != nil {
		return Exception{}, err
	}
	out.Message, out.Cut, out.Unread = m.String(), m.cut, m.unread
	out.Tail, out.Gap = m.end()
	next := uint32(0) // the level that follows the frame before
	for n := range space.own + int(x.Frames) {
		f := &frames[n]
		if n < space.own && f.Level == noLevel {
			continue
		}
		if f.Level < next || f.Level >= x.Levels {
			return Exception{}, fmt.Errorf("pyexception record: exception %d of %d levels has frame %d of level %d", i, x.Levels, n, f.Level)
		}
		frame, err := frameOf(f, int(r.Minor))
		if err != nil {
			return Exception{}, err
		}
		frame.Skipped = int(f.Level - next)
		out.Frames, next = append(out.Frames, frame), f.Level+1
	}
	return out, nil
}

func relationOf(r bpfRelation) Relation {
	switch r {
	case bpfRelationRELATION_CAUSE:
		return Cause
	case bpfRelationRELATION_CONTEXT:
		return Context
	case bpfRelationRELATION_MEMBER:
		return Member
	default:
		return Displayed
	}
}

func frameOf(f *bpfFrame, minor int) (Frame, error) {
	if int(f.TableSize) > len(f.Table) {
		return Frame{}, fmt.Errorf("pyexception record: a table of %d bytes", f.TableSize)
	}
	file, cut, err := textOf(f.File.Length, f.File.Size, f.File.Width, raw(f.FileBytes[:]))
	if err != nil {
		return Frame{}, err
	}
	if cut {
		file = "…" + file
	}
	name, _, err := textOf(f.Name.Length, f.Name.Size, f.Name.Width, raw(f.NameBytes[:]))
	if err != nil {
		return Frame{}, err
	}
	out := Frame{File: file, Function: name, Line: max(int(f.Line), 0)}
	if f.Line < 0 {
		table := raw(f.Table[:f.TableSize])
		out.Line = max(pystack.Line(minor, int(f.FirstLine), table, f.TableLength == uint64(f.TableSize), int64(f.Instruction)), 0)
	}
	return out, nil
}

// textOf is a text of the record, and whether the object has more of it.
func textOf(length uint64, size, width uint32, bytes []byte) (s string, cut bool, err error) {
	if width == 0 {
		return "", false, nil
	}
	if int(size) > len(bytes) {
		return "", false, fmt.Errorf("pyexception record: a text of %d bytes", size)
	}
	s, err = pystack.Text(bytes[:size], int(width))
	return s, uint64(size/width) < length, err
}

// text is a C string in a field of fixed size.
func text(field []int8) string {
	before, _, _ := bytes.Cut(raw(field), []byte{0})
	return strings.ToValidUTF8(string(before), "�")
}

func raw(field []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(field))), len(field))
}
