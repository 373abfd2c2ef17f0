package stacks

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

// Bounds on the text of Where.
const (
	maxCallers = 3
	maxWord    = 64 // bytes of a name, with the mark where it is cut
)

// Own is the innermost frame of Python that is of no library: a line that the user of a
// framework wrote. Where all are of libraries, it is the innermost.
func (t *Thread) Own() (frame pystack.Frame, ok bool) {
	if len(t.Python) == 0 {
		return pystack.Frame{}, false
	}
	return t.Python[t.own()], true
}

func (t *Thread) own() int {
	for i := range t.Python {
		if !pystack.Library(t.Python[i].File) {
			return i
		}
	}
	return 0
}

// Where says in one line where a thread is in Python, from its innermost frame that is of no
// library on: "train.py:120 in save_checkpoint < main". Several looks may have found it at "train.py:118-120 in save_checkpoint < main".
// It is empty for a thread without frames.
func (t *Thread) Where() string {
	if len(t.Python) == 0 {
		return ""
	}
	at := t.own()
	own := &t.Python[at]
	var text strings.Builder
	fmt.Fprintf(&text, "%s:%d", word(path.Base(own.File)), own.Line)
	if own.LastLine != 0 {
		fmt.Fprintf(&text, "-%d", own.LastLine)
	}
	text.WriteString(" in " + word(own.Function))
	callers := 0
	for _, f := range t.Python[at+1:] {
		if callers == maxCallers {
			break
		}
		if f.Function != "<module>" && pystack.Library(f.File) == pystack.Library(own.File) {
			text.WriteString(" < " + word(f.Function))
			callers++
		}
	}
	return text.String()
}

func word(name string) string { return safetext.Clip(name, maxWord) }

// Hash is the same for threads that are in the same place: in file, function and line of all
// frames of Python (without the names of files that a compiler wrote), or else in the functions of compiled code, or else in those of the kernel.
func (t *Thread) Hash() uint64 {
	h := fnv.New64a()
	add := func(text string) {
		var length [4]byte
		binary.LittleEndian.PutUint32(length[:], uint32(len(text)))
		_, _ = h.Write(length[:]) // a hash takes everything
		_, _ = io.WriteString(h, text)
	}
	for _, f := range t.Python {
		if !pystack.Generated(f.File) {
			add(f.File)
		}
		add(f.Function)
		add(fmt.Sprint(f.Line))
		if f.LastLine != 0 {
			add(fmt.Sprint(f.LastLine))
		}
	}
	if len(t.Python) > 0 {
		return h.Sum64()
	}
	for _, f := range t.Native {
		add(path.Base(f.Object))
		add(f.Symbol)
	}
	if len(t.Native) > 0 {
		return h.Sum64()
	}
	for _, f := range t.Kernel {
		add(f.Name)
	}
	return h.Sum64()
}

// Shared are the frames that two stacks have in common, from the outermost on. The innermost of them may be at
// another line in each: it has both lines, and what lies between.
func Shared(a, b []pystack.Frame) []pystack.Frame {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	shared := a[len(a)-n:]
	if n == min(len(a), len(b)) {
		return shared
	}
	one, other := a[len(a)-1-n], &b[len(b)-1-n]
	if one.File != other.File || one.Function != other.Function || one.Line == 0 || other.Line == 0 {
		return shared
	}
	first, last := min(one.Line, other.Line), max(one.Line, other.Line, one.LastLine, other.LastLine)
	one.Line, one.LastLine = first, last
	return append([]pystack.Frame{one}, shared...)
}

// Within reports whether a stack has all of these frames, its outermost.
func Within(stack, frames []pystack.Frame) bool { return slices.Equal(Shared(frames, stack), frames) }
