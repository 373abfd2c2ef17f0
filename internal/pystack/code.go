package pystack

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/internal/procmem"
)

// Bounds on texts and tables. The longest path of Linux has 4,096 bytes.
const (
	maxFile     = 4096 // characters; what is longer is cut
	maxFunction = 1024
	maxText     = 1 << 24 // characters; what claims more is no text
	maxLines    = 1 << 20 // bytes of a line table; where it is longer, lines are not known
)

// function is what a code object says.
type function struct {
	file, name   string
	lines        lineTable
	instructions int64 // bytes of its code; 0 when it is not known
}

// function reads a code object. Nothing of it outlives one look at a stack: the memory of
// code that is gone soon holds other code.
func (in *interpreter) function(address uint64) (function, error) {
	l := &in.layout
	if err := in.Read(address, in.code); err != nil {
		return function{}, err
	}
	if in.codeType == 0 {
		if err := in.learnType(in.code.u64(objectType)); err != nil {
			return function{}, err
		}
	}
	if in.code.u64(objectType) != in.codeType {
		return function{}, errDamaged
	}
	name := l.codeName
	if l.codeQualified != 0 {
		name = l.codeQualified
	}
	file, called, lines := in.code.u64(l.codeFile), in.code.u64(name), in.code.u64(l.codeLines)
	f := function{lines: lineTable{minor: l.minor, first: int(int32(in.code.u32(l.codeFirstLine)))}}
	if l.codeInstructions != 0 {
		f.instructions = 2 * int64(min(in.code.u64(objectSize), maxText))
	}
	var err error
	if f.file, err = in.string(file, maxFile); err != nil {
		return function{}, err
	}
	if f.name, err = in.string(called, maxFunction); err != nil {
		return function{}, err
	}
	// Line tables are read by nobody but tracebacks: they may be out of memory.
	if f.lines.bytes, err = in.table(lines); errors.Is(err, procmem.ErrAbsent) {
		f.lines.bytes, err = nil, nil
	}
	return f, err
}

// learnType takes a type for that of code objects in an interpreter that does not export
// it: it is called "code", and the type of its type is a type of itself.
func (in *interpreter) learnType(address uint64) error {
	var b view = make([]byte, typeName+8)
	if err := in.Read(address, b); err != nil {
		return err
	}
	meta, name := b.u64(objectType), b.u64(typeName)
	itself, err := in.pointer(meta + objectType)
	if err != nil {
		return err
	}
	called := make([]byte, len("code\x00"))
	if err := in.Read(name, called); err != nil {
		return err
	}
	if itself != meta || string(called) != "code\x00" {
		return errDamaged
	}
	in.codeType = address
	return nil
}

// table reads the bytes object of a line table; nil where it cannot be.
func (in *interpreter) table(address uint64) ([]byte, error) {
	size, err := in.pointer(address + in.layout.bytesSize)
	if err != nil || size > maxLines {
		return nil, err
	}
	if err := in.take(size); err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if size == 0 {
		return b, nil
	}
	return b, in.Read(address+in.layout.bytesContent, b)
}

// Bits of the state of a text: interned 2, kind 3, compact 1, ascii 1
// (Include/cpython/unicodeobject.h). The kind is the bytes of each character.
const (
	stateKind    = 2
	stateCompact = 5
	stateASCII   = 6
)

// string reads a str object, so many of its characters at most.
func (in *interpreter) string(address uint64, most uint64) (string, error) {
	l := &in.layout
	if err := in.Read(address, in.text[:max(l.textState+4, l.textLength+8)]); err != nil {
		return "", err
	}
	length, state := in.text.u64(l.textLength), in.text.u32(l.textState)
	kind, compact, ascii := uint64(state>>stateKind&7), state>>stateCompact&1, state>>stateASCII&1
	if length > maxText || compact == 0 || kind != 1 && kind != 2 && kind != 4 {
		return "", fmt.Errorf("a name is no text: %w", errDamaged)
	}
	content := l.textCompact
	if ascii == 1 {
		content = l.textASCII
	}
	if err := in.take(min(length, most) * kind); err != nil {
		return "", err
	}
	b := make(view, min(length, most)*kind)
	if len(b) == 0 {
		return "", nil
	}
	if err := in.Read(address+content, b); err != nil {
		return "", err
	}
	if ascii == 1 {
		return strings.ToValidUTF8(string(b), string(utf8.RuneError)), nil
	}
	return decode(b, kind), nil
}

// decode makes UTF-8 of characters of so many bytes each. A lone surrogate, which stands
// for a byte of a file name that is no UTF-8, becomes U+FFFD.
func decode(b view, kind uint64) string {
	var s strings.Builder
	for at := uint64(0); at < uint64(len(b)); at += kind {
		r := rune(b[at])
		switch kind {
		case 2:
			r |= rune(b[at+1]) << 8
		case 4:
			r = rune(b.u32(at))
		}
		s.WriteRune(r)
	}
	return s.String()
}
