//go:build linux && (amd64 || arm64)

package pyexception

import (
	"errors"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// What a C++ program that throws what nobody catches comes by, of libstdc++ and of libgcc: terminate.h.
const (
	terminates = "_ZN9__gnu_cxx27__verbose_terminate_handlerEv"
	rethrows   = "_Unwind_Resume_or_Rethrow"
)

// runtimes are the files that have these.
var runtimes = []string{"libstdc++.so*", "libgcc_s.so*"}

// attachToRuntime puts the probes on a library of the C++ runtime.
func (h *hooks) attachToRuntime(file *os.File, path string) (io.Closer, error) {
	image, err := uprobe.Read(file, []string{terminates, rethrows})
	if err != nil {
		return nil, err
	}
	var places []place
	for program, name := range map[string]string{bpfProgTerminate: terminates, bpfProgRethrow: rethrows} {
		if at, there := image.Function(name); there {
			places = append(places, place{program, name, at.Offset})
		}
	}
	if places == nil {
		return nil, uprobe.ErrNothing
	}
	return h.load(h.spec.Copy(), path, places)
}

// terminated checks a record of a C++ exception, and returns it; nil where it is none.
func terminated(raw []byte) *bpfTerminated {
	// The ring rounds sizes up to eight bytes, of which both are multiples, and the records differ by far.
	if uintptr(len(raw)) != unsafe.Sizeof(bpfTerminated{}) {
		return nil
	}
	return (*bpfTerminated)(unsafe.Pointer(unsafe.SliceData(raw)))
}

// decodeTerminated turns a record into an event.
func decodeTerminated(r *bpfTerminated, clockOffset int64, e *Event) error {
	if r.Pid == 0 || r.Thread == 0 {
		return errors.New("record of a C++ exception without a thread")
	}
	mangled := text(r.Type[:])
	x := Exception{Type: typeOf(mangled)}
	words := raw(r.Second[:])
	if strings.HasSuffix(x.Type, "EnforceNotMet") {
		words = raw(r.Fifth[:])
	}
	x.Message, x.Cut = wordsOf(words)
	*e = Event{Time: bootclock.Time(r.TimeNs, clockOffset), PID: r.Pid, Thread: r.Thread, Comm: text(r.Comm[:]), Terminates: true, Chain: []Exception{x}}
	return nil
}

// wordsOf are the words of an exception, and whether there are more of them; "" where there are none: of another class
// its members are no words.
func wordsOf(field []byte) (words string, cut bool) {
	end := len(field) - 1 // the last byte is zero
	for i, b := range field {
		if b == 0 {
			end = i
			break
		}
	}
	cut = end == len(field)-1
	words = string(field[:end])
	if cut { // within a character, perhaps
		for n := 0; n < utf8.UTFMax && !utf8.ValidString(words); n++ {
			words = words[:len(words)-1]
		}
	}
	if !utf8.ValidString(words) || strings.ContainsFunc(words, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }) {
		return "", false
	}
	return words, cut
}
