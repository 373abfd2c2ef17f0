package pystack

import (
	"encoding/binary"
	"errors"
)

// layout says where CPython of one minor version keeps what is read, in bytes from the
// beginning of each structure. Within a minor version that does not change: it is part of
// what extension modules are compiled against.
type layout struct {
	minor int

	runtimeInterpreters uint64 // _PyRuntimeState.interpreters.head
	interpreterNext     uint64 // PyInterpreterState.next
	interpreterThreads  uint64 // PyInterpreterState.threads.head, before 3.11 tstate_head

	threadNext, threadInterpreter uint64 // PyThreadState
	threadPOSIX                   uint64 // thread_id, which is its pthread_t
	threadNative                  uint64 // native_thread_id; 0 before 3.11
	threadFrame                   uint64 // frame, from 3.13 on current_frame; 0 where cframe is
	threadCFrame                  uint64 // cframe, 3.11 and 3.12
	cframeFrame                   uint64 // _PyCFrame.current_frame

	frameBack, frameCode uint64 // PyFrameObject, from 3.11 on _PyInterpreterFrame
	frameLast            uint64 // f_lasti, before 3.11
	frameInstruction     uint64 // prev_instr, from 3.13 on instr_ptr
	frameOwner           uint64 // from 3.11 on
	foreignOwner         uint8  // owners from this one on mark frames of the interpreter itself

	codeFile, codeName, codeQualified uint64 // PyCodeObject; qualified from 3.11 on
	codeFirstLine, codeLines          uint64
	codeInstructions                  uint64 // co_code_adaptive, from 3.11 on
	codeSize                          uint64 // PyCode_Type.tp_basicsize; 0 where the interpreter says its offsets

	textLength, textState   uint64 // PyASCIIObject
	textASCII, textCompact  uint64 // sizes of PyASCIIObject and PyCompactUnicodeObject: characters follow
	bytesSize, bytesContent uint64 // PyBytesObject

	runtimeHolder         uint64 // gilstate.tstate_current, before 3.12; see holderOn
	interpreterLock       uint64 // ceval.gil, from 3.12 on
	lockHolder, lockState uint64 // struct _gil_runtime_state
}

// Offsets that several versions share.
func (l layout) withObjects(ascii, compact uint64) layout {
	l.textLength, l.textState, l.textASCII, l.textCompact = 16, 32, ascii, compact
	l.bytesSize, l.bytesContent = 16, 32
	return l
}

// layouts are the versions that do not say their own offsets, as offsetof gives them with
// the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1: on arm64 the same, but for
// runtimeHolder.
var layouts = map[int]layout{
	8:  withFrameObjects(8, 104, 1368),
	9:  withFrameObjects(9, 104, 568),
	10: withFrameObjects(10, 96, 568),
	11: layout{
		minor: 11, runtimeInterpreters: 40, interpreterNext: 0, interpreterThreads: 16,
		threadNext: 8, threadInterpreter: 16, threadPOSIX: 152, threadNative: 160, threadCFrame: 56, cframeFrame: 8,
		frameBack: 48, frameCode: 32, frameInstruction: 56, frameOwner: 69, foreignOwner: 3,
		codeFile: 112, codeName: 120, codeQualified: 128, codeFirstLine: 72, codeLines: 136, codeInstructions: 184, codeSize: 184,
		runtimeHolder: 576,
	}.withObjects(48, 72),
	12: layout{
		minor: 12, runtimeInterpreters: 40, interpreterNext: 0, interpreterThreads: 72,
		threadNext: 8, threadInterpreter: 16, threadPOSIX: 136, threadNative: 144, threadCFrame: 56, cframeFrame: 0,
		frameBack: 8, frameCode: 0, frameInstruction: 56, frameOwner: 70, foreignOwner: 3,
		codeFile: 112, codeName: 120, codeQualified: 128, codeFirstLine: 68, codeLines: 136, codeInstructions: 192, codeSize: 192,
		interpreterLock: 384, lockHolder: 8, lockState: 16,
	}.withObjects(40, 56),
}

// withFrameObjects is CPython 3.8 to 3.10, where each frame is an object.
func withFrameObjects(minor int, last, holder uint64) layout {
	return layout{
		minor: minor, runtimeInterpreters: 32, interpreterNext: 0, interpreterThreads: 8,
		threadNext: 8, threadInterpreter: 16, threadPOSIX: 176, threadFrame: 24,
		frameBack: 24, frameCode: 32, frameLast: last,
		codeFile: 104, codeName: 112, codeFirstLine: 40, codeLines: 120, codeSize: 176,
		runtimeHolder: holder,
	}.withObjects(48, 72)
}

// holderOn is runtimeHolder on a machine, 0 where it is not known. Two locks of the C library
// stand before it (struct _gil_runtime_state: mutex and switch_mutex). pthread_mutex_t has 40
// bytes, and 48 in glibc on arm64 (sysdeps/aarch64/nptl/bits/pthreadtypes-arch.h);
// pthread_cond_t has 48 everywhere.
func (l *layout) holderOn(arch string, c libc) uint64 {
	switch {
	case l.runtimeHolder == 0:
		return 0
	case arch == "amd64", arch == "arm64" && c == musl:
		return l.runtimeHolder
	case arch == "arm64" && c == glibc:
		return l.runtimeHolder + 2*(48-40)
	}
	return 0
}

// table says where struct _Py_DebugOffsets, which a newer interpreter has at the beginning
// of its _PyRuntime, has the groups that are read: in words of 8 bytes. The structure grew
// in the middle from 3.13 to 3.14 (Include/internal/pycore_runtime.h, from 3.14 on
// pycore_debug_offsets.h).
type table struct {
	runtime, interpreter, thread, frame, code, bytes, unicode int
	lock                                                      int // within interpreter: ceval.gil
	ownLock, lockState, lockHolder                            int // within interpreter: _gil and its fields
}

var tables = map[int]table{
	13: {runtime: 3, interpreter: 6, thread: 19, frame: 28, code: 34, bytes: 64, unicode: 67, lock: 8, ownLock: 9, lockState: 11, lockHolder: 12},
	14: {runtime: 3, interpreter: 6, thread: 22, frame: 31, code: 39, bytes: 74, unicode: 77, lock: 9, ownLock: 10, lockState: 12, lockHolder: 13},
}

// cookie begins struct _Py_DebugOffsets.
const cookie = "xdebugpy"

// tableSize is how much of it is read.
const tableSize = 81 * 8

// Bounds on the structures of an interpreter that says its own offsets. The largest is
// _PyRuntimeState, which has the first interpreter in it: some 400 KiB.
const (
	maxState  = 4 << 20
	maxObject = 4 << 10
)

var errOffsets = errors.New("the offsets that the interpreter says are out of its structures")

// ownLayout takes the layout from the interpreter itself.
func ownLayout(b []byte) (layout, error) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	minor, err := minorOf(word(1))
	if err != nil {
		return layout{}, err
	}
	t, known := tables[minor]
	switch {
	case !known:
		return layout{}, &UnknownVersionError{versionName(minor)}
	case word(2) != 0:
		return layout{}, &UnknownVersionError{"free-threaded " + versionName(minor)}
	}
	ok := true
	// field is the offset that stands i words into a group, of a field of that width in a
	// structure whose size is the group's first word.
	field := func(group, i int, width, most uint64) uint64 {
		size, offset := word(group), word(group+i)
		if size > most || offset > most || offset+width > size {
			ok = false
			return 0
		}
		return offset
	}
	state := func(group, i int) uint64 { return field(group, i, 8, maxState) }
	object := func(group, i int, width uint64) uint64 { return field(group, i, width, maxObject) }
	l := layout{
		minor: minor, runtimeInterpreters: state(t.runtime, 2), interpreterNext: state(t.interpreter, 2), interpreterThreads: state(t.interpreter, 3),
		threadNext: object(t.thread, 2, 8), threadInterpreter: object(t.thread, 3, 8), threadFrame: object(t.thread, 4, 8),
		threadPOSIX: object(t.thread, 5, 8), threadNative: object(t.thread, 6, 8),
		frameBack: object(t.frame, 1, 8), frameCode: object(t.frame, 2, 8), frameInstruction: object(t.frame, 3, 8), frameOwner: object(t.frame, 5, 1), foreignOwner: 3,
		codeFile: object(t.code, 1, 8), codeName: object(t.code, 2, 8), codeQualified: object(t.code, 3, 8), codeLines: object(t.code, 4, 8),
		codeFirstLine: object(t.code, 5, 4), codeInstructions: object(t.code, 9, 1),
		bytesSize: object(t.bytes, 1, 8), bytesContent: object(t.bytes, 2, 1),
		textState: object(t.unicode, 1, 4), textLength: object(t.unicode, 2, 8), textASCII: word(t.unicode + 3),
		interpreterLock: state(t.interpreter, t.lock),
		lockState:       state(t.interpreter, t.lockState) - state(t.interpreter, t.ownLock),
		lockHolder:      state(t.interpreter, t.lockHolder) - state(t.interpreter, t.ownLock),
	}
	// PyCompactUnicodeObject is a PyASCIIObject and two words more.
	l.textCompact = l.textASCII + 16
	if !ok || l.textASCII > maxObject || l.textASCII < l.textState+4 || l.lockState > maxObject || l.lockHolder > maxObject || l.threadNative == 0 || l.threadFrame == 0 {
		return layout{}, errOffsets
	}
	return l, nil
}

// Release levels in the last byte of PY_VERSION_HEX (Include/patchlevel.h). The layout of
// alphas and betas is not that of the release.
const levelCandidate = 0xC

// minorOf reads a PY_VERSION_HEX.
func minorOf(hex uint64) (int, error) {
	major, minor, level := hex>>24, int(hex>>16&0xff), hex>>4&0xf
	switch {
	case major != 3:
		return 0, errors.New("the interpreter says no version of Python 3")
	case level < levelCandidate:
		return 0, &UnknownVersionError{"a pre-release of " + versionName(minor)}
	}
	return minor, nil
}
