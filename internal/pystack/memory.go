package pystack

import (
	"encoding/binary"

	"github.com/tracecoreai/tracecore/internal/procmem"
)

// memory is the address space of a process, which may change at any time and may say
// anything.
type memory interface {
	procmem.Memory
	ReadAll(parts []procmem.Part) error
}

// remembered reads each page once.
type remembered struct {
	*procmem.Snapshot
	live memory
}

func (r remembered) ReadAll(parts []procmem.Part) error { return r.live.ReadAll(parts) }

// view is a piece of memory that was read at once.
type view []byte

func (v view) u64(offset uint64) uint64 { return binary.LittleEndian.Uint64(v[offset:]) }
func (v view) u32(offset uint64) uint32 { return binary.LittleEndian.Uint32(v[offset:]) }

// interpreter is the CPython of one process.
type interpreter struct {
	memory
	layout   layout
	runtime  uint64 // address of _PyRuntime
	codeType uint64 // address of PyCode_Type
	libc     libc

	thread, frame, code, text view // room for them
	texts                     int  // bytes of names and line tables that may still be read

	places *procmem.Snapshot // what place reads
}

func newInterpreter(m memory, l layout, runtime, codeType uint64) *interpreter {
	in := &interpreter{memory: m, layout: l, runtime: runtime, codeType: codeType, texts: maxTexts, places: procmem.NewSnapshot(m, maxPlace)}
	in.thread = make(view, 8+max(l.threadNext, l.threadInterpreter, l.threadPOSIX, l.threadNative, l.threadFrame, l.threadCFrame))
	in.frame = make(view, 8+max(l.frameBack, l.frameCode, l.frameLast, l.frameInstruction, l.frameOwner))
	in.code = make(view, 8+max(l.codeFile, l.codeName, l.codeQualified, l.codeFirstLine, l.codeLines, objectSize))
	in.text = make(view, max(l.textCompact, l.textLength+8, l.textState+4))
	return in
}

// take takes so many bytes from what may be read of names and line tables.
func (in *interpreter) take(size uint64) error {
	if size > uint64(in.texts) {
		in.texts = 0
		return errTexts
	}
	in.texts -= int(size)
	return nil
}

func (in *interpreter) pointer(address uint64) (uint64, error) { return procmem.Word(in, address) }

// Head of every object: ob_refcnt, ob_type; of those of variable size ob_size
// (Include/object.h).
const (
	objectType = 8
	objectSize = 16
)
