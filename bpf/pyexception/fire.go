//go:build linux && (amd64 || arm64)

package pyexception

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// fireTimeout is how long the event of the self-test may take: it is in the ring before
// the call returns, so this is for a very slow machine.
const fireTimeout = 5 * time.Second

// selfTest loads the program for itself and fires it, so that nothing of it reaches a
// reader. It does not wait until it is detached, for which the kernel takes its time: what
// became of that comes from the channel.
func selfTest() (closed <-chan error, err error) {
	h, err := openHooks(0, true)
	if err != nil {
		return nil, err
	}
	function, err := uprobe.OwnFunction(standin.Entry())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the self-test in this program: %w", err), h.close())
	}
	layout := &bpfLayout{
		TextLength: 16, TextState: 24, TextAscii: 32, TextCompact: 32, CodeFile: 16, CodeName: 24, FrameCode: 16,
		ExceptionTraceback: 32, ExceptionContext: 40, ExceptionCause: 48, ExceptionSuppress: 56, TupleItems: 24,
	}
	attached, err := h.attach(uprobe.Own, function.Offset, layout)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	both := []place{{bpfProgTerminate, terminates, function.Offset}, {bpfProgRethrow, rethrows, function.Offset}}
	runtime, err := h.load(h.spec.Copy(), uprobe.Own, both)
	if err != nil {
		return nil, errors.Join(err, attached.Close(), h.close())
	}
	err = h.fire(layout)
	closing := make(chan error, 1)
	go func() { closing <- errors.Join(attached.Close(), runtime.Close(), h.close()) }()
	if err != nil {
		return nil, errors.Join(err, <-closing)
	}
	return closing, nil
}

// fire has this program call that function as an interpreter calls PyErr_Display, with an
// exception that it makes, and waits until the event says what is in it.
func (h *hooks) fire(l *bpfLayout) (err error) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("make an exception for the self-test: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(page)) }()
	m := newMemory(page, l)
	said := strconv.FormatUint(rand.Uint64(), 10)
	traceback := m.traceback(0, m.frame("selftest.py", "fire"), 7, 0)
	value := m.exception(m.class("SelfTest", flagException), traceback, m.text(said))
	var arguments standin.Arguments
	arguments.Registers[0] = uintptr(m.thrown("St13runtime_error", m.words(said)))
	arguments.Registers[1], arguments.Registers[2] = uintptr(value), uintptr(traceback)
	goruntime.LockOSThread() // which is marked as one that terminates, by the first call at the latest
	standin.Call(standin.Entry(), &arguments)
	standin.Call(standin.Entry(), &arguments)
	goruntime.UnlockOSThread()
	return h.await(said)
}

// await reads until both events with that message have come.
func (h *hooks) await(said string) error {
	displayed, terminated := false, false
	return uprobe.Await(h.reader, fireTimeout, decode, func(e *Event) (bool, error) {
		x := e.Chain[0]
		switch {
		case x.Message != said:
			return false, nil
		case e.Terminates && x.Type != "std::runtime_error":
			return false, fmt.Errorf("the C++ exception of the self-test was read as %+v", x)
		case e.Terminates:
			terminated = true
			return displayed, nil
		}
		if x.Type != "SelfTest" || len(x.Frames) != 1 || x.Frames[0] != (Frame{File: "selftest.py", Line: 7, Function: "fire"}) {
			return false, fmt.Errorf("the exception of the self-test was read as %+v", x)
		}
		displayed = true
		return terminated, nil
	})
}

// Bits of tp_flags (Include/object.h).
const (
	flagNumber    = 1 << 24
	flagTuple     = 1 << 26
	flagText      = 1 << 28
	flagException = 1 << 30
)

// memory is a piece of this program's memory in which it makes objects as an interpreter
// of some layout has them.
type memory struct {
	bytes         []byte
	used          int
	layout        *bpfLayout
	texts, tuples uint64 // the types
}

func newMemory(bytes []byte, l *bpfLayout) *memory {
	m := &memory{bytes: bytes, layout: l}
	m.texts, m.tuples = m.class("str", flagText), m.class("tuple", flagTuple)
	return m
}

// object takes room; the address of an object is its own.
func (m *memory) object(size int) (address uint64, at []byte) {
	at = m.bytes[m.used : m.used+size : m.used+size]
	m.used += (size + 15) &^ 15
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(at)))), at
}

func put(at []byte, offset uint32, value uint64) {
	*(*uint64)(unsafe.Pointer(&at[offset : offset+8][0])) = value
}

// class is a type: tp_name, tp_flags.
func (m *memory) class(name string, flags uint64) uint64 {
	called, bytes := m.object(len(name) + 1)
	copy(bytes, name)
	address, at := m.object(272)
	put(at, 24, called)
	put(at, 168, flags)
	return address
}

// text is a str of ASCII.
func (m *memory) text(s string) uint64 {
	l := m.layout
	address, at := m.object(int(l.TextAscii) + len(s) + 1)
	put(at, 8, m.texts)
	put(at, l.TextLength, uint64(len(s)))
	put(at, l.TextState, 1<<2|1<<5|1<<6)
	copy(at[l.TextAscii:], s)
	return address
}

// frame is one of a code of that file and name.
func (m *memory) frame(file, name string) uint64 {
	l := m.layout
	code, at := m.object(256)
	put(at, l.CodeFile, m.text(file))
	put(at, l.CodeName, m.text(name))
	address, at := m.object(128)
	put(at, l.FrameCode, code)
	return address
}

// traceback is one level, and those below it.
func (m *memory) traceback(next, frame uint64, line, instruction uint32) uint64 {
	address, at := m.object(40)
	put(at, 16, next)
	put(at, 24, frame)
	put(at, 32, uint64(line)<<32|uint64(instruction))
	return address
}

func (m *memory) exception(class, traceback uint64, arguments ...uint64) uint64 {
	l := m.layout
	tuple, at := m.object(int(l.TupleItems) + 8*len(arguments) + 8)
	put(at, 8, m.tuples)
	put(at, 16, uint64(len(arguments)))
	for i, one := range arguments {
		put(at, l.TupleItems+8*uint32(i), one)
	}
	address, at := m.object(128)
	put(at, 8, class)
	put(at, 24, tuple)
	put(at, l.ExceptionTraceback, traceback)
	return address
}

// What the runtime of C++ puts before an exception, and that it is one of its own: terminate.h.
const (
	headerBytes = 112
	unwindBytes = 32
	cxx         = 0x474e5543432b2b00
)

// words are a C string.
func (m *memory) words(s string) uint64 {
	address, at := m.object(len(s) + 1)
	copy(at, s)
	return address
}

// thrown is an exception of C++ with these words behind its table of functions. Its header is what the unwinder is given.
func (m *memory) thrown(class string, words ...uint64) (header uint64) {
	name := m.words(class)
	kind, at := m.object(16)
	put(at, 8, name)
	address, at := m.object(headerBytes + 8 + 8*len(words))
	put(at, 0, kind)
	put(at, headerBytes-unwindBytes, cxx)
	for i, word := range words {
		put(at, uint32(headerBytes+8+8*i), word)
	}
	return address + headerBytes - unwindBytes
}
