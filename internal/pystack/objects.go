package pystack

import (
	"errors"
	"fmt"
	"io"
)

// Objects says where the interpreter in one file keeps the parts of an exception, in bytes
// from the beginning of each structure: for a probe, which reads them in the process.
type Objects struct {
	Minor int // of CPython 3

	TextLength, TextState, TextASCII, TextCompact uint64 // PyASCIIObject
	BytesSize, BytesContent                       uint64 // PyBytesObject
	CodeFile, CodeName, CodeFirstLine, CodeLines  uint64 // PyCodeObject
	FrameInner                                    uint64 // PyFrameObject.f_frame; 0 where the object is the frame
	FrameCode                                     uint64 // of the frame
	Traceback, Context, Cause, SuppressContext    uint64 // PyBaseExceptionObject
	Members                                       uint64 // PyBaseExceptionGroupObject.excs; 0 before 3.11
	ErrorFile                                     uint64 // PyOSErrorObject.filename
	TupleItems                                    uint64 // PyTupleObject.ob_item
	NumberTagged                                  bool   // PyLongObject counts its digits in lv_tag: from 3.12 on
}

// Version is what the interpreter is called, as in "CPython 3.11".
func (o *Objects) Version() string { return versionName(o.Minor) }

// ReadObjects finds the interpreter in an ELF file. A file without one is ErrNoPython, an
// interpreter whose layout is not known an UnknownVersionError.
func ReadObjects(file io.ReaderAt) (*Objects, error) {
	m, head, err := readHead(file)
	switch {
	case err != nil:
		return nil, err
	case m.runtime == 0 && m.codeType != 0:
		return nil, &UnknownVersionError{"CPython 3.6 or older"}
	case m.runtime == 0:
		return nil, ErrNoPython
	}
	l, err := m.layout(head)
	if err != nil {
		return nil, err
	}
	return objectsOf(&l), nil
}

// objectsOf adds what no interpreter says, as offsetof gives it with the headers of 3.8.18,
// 3.9.18, 3.10.13, 3.11.7, 3.12.1, 3.13.5 and 3.14.10 (amd64): all of it is pointers.
func objectsOf(l *layout) *Objects {
	o := &Objects{
		Minor:      l.minor,
		TextLength: l.textLength, TextState: l.textState, TextASCII: l.textASCII, TextCompact: l.textCompact,
		BytesSize: l.bytesSize, BytesContent: l.bytesContent,
		CodeFile: l.codeFile, CodeName: l.codeName, CodeFirstLine: l.codeFirstLine, CodeLines: l.codeLines,
		FrameCode: l.frameCode,
		Traceback: 32, Context: 40, Cause: 48, SuppressContext: 56, ErrorFile: 80, TupleItems: 24,
		NumberTagged: l.minor >= 12,
	}
	if l.codeQualified != 0 {
		o.CodeName = l.codeQualified
	}
	if l.minor >= 11 { // exceptions have notes, frames are objects on demand
		o.Traceback, o.Context, o.Cause, o.SuppressContext, o.ErrorFile = 40, 48, 56, 64, 88
		o.Members, o.FrameInner = 80, 24
	}
	if l.minor >= 14 { // tuples remember their hash
		o.TupleItems = 32
	}
	return o
}

// readHead reads an ELF file and the beginning of its _PyRuntime, which newer interpreters
// have in the file.
func readHead(file io.ReaderAt) (m *image, head []byte, err error) {
	m, err = readImage(file)
	if err != nil || m.runtime == 0 {
		return m, nil, err
	}
	head = make([]byte, tableSize)
	if m.runtimeAt == 0 { // older ones have nothing there before they run
		return m, head, nil
	}
	if n, err := file.ReadAt(head, int64(m.runtimeAt)); n < len(head) {
		return nil, nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return m, head, nil
}

// Line is the line of an instruction, which is counted in bytes, by the line table of its
// code, or the beginning of that; 0 where the code has none, or its entry may not be whole.
// It is for 3.11 and newer, whose tracebacks do not always have their lines.
func Line(minor, first int, table []byte, whole bool, instruction int64) int {
	if minor < 11 || instruction < 0 {
		return 0
	}
	line, rest := lineTable{minor: minor, first: first, bytes: table}.locations(instruction / 2)
	if !whole && rest <= 0 {
		return 0
	}
	return line
}

// Text is the content of a str that was copied as it lies in memory: so many bytes for each
// character. What is no character becomes U+FFFD.
func Text(content []byte, width int) (string, error) {
	if width != 1 && width != 2 && width != 4 {
		return "", fmt.Errorf("a character of %d bytes", width)
	}
	return decode(content[:len(content)/width*width], uint64(width)), nil
}
