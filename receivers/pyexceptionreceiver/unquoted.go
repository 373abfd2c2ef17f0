package pyexceptionreceiver

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

// Python writes a traceback as text where an exception goes from one process to another: torch.multiprocessing
// (torch/multiprocessing/spawn.py), DataLoader (torch/_utils.py, ExceptionWrapper), concurrent.futures and
// multiprocessing.Pool (_RemoteTraceback), Ray (ray/exceptions.py, whose first line is another).

// level is a line of a traceback that Python has written.
var level = regexp.MustCompile(`^  File "(.*)", line (\d+), in (.*)$`)

// raisedLine is the line behind the lines of a traceback: the type with its module, and the message.
var raisedLine = regexp.MustCompile(`^([\pL_][\pL\pN_<>]*(?:\.[\pL\pN_<>]+)*)(?:: (.*))?$`)

// Bounds of a quoted message and type in bytes, as bpf/pyexception has them for what is not quoted.
const (
	mostQuoted     = 1024
	mostQuotedType = 127
)

// unquoted is the exception that a message quotes with its traceback, as its process would have displayed it; nil
// for none. A quote may quote another one: then it is the outer one, whose message has the other.
func unquoted(x *pyexception.Exception) *pyexception.Exception {
	chain, _ := unquotedChain(x)
	if len(chain) == 0 {
		return nil
	}
	return &chain[0]
}

// mostOfChain are kept of a chain, as bpf/pyexception keeps them.
const mostOfChain = 3

// unquotedChain is unquoted with those that it came from, and whether there are more of these.
func unquotedChain(x *pyexception.Exception) (chain []pyexception.Exception, more bool) {
	if x.Cut && x.Tail == "" { // what was raised stands at the end
		return nil, false
	}
	text := x.Message + x.Tail
	if x.Gap {
		_, text, _ = strings.Cut(x.Tail, "\n") // it begins inside a line
	}
	parts, relations := partsOf(strings.Split(text, "\n"))
	for i := len(parts) - 1; i >= 0; i-- {
		one := parse(parts[i])
		if one == nil || len(chain) == mostOfChain {
			return chain, len(chain) > 0
		}
		one.Relation = relations[i]
		chain = append(chain, *one)
	}
	return chain, false
}

// partsOf are the exceptions of a chain, each in lines, and what each is to the next one. A worker's chain that a message
// quotes looks alike: where torch.multiprocessing started the process (wrapper), the one that came out of it is the last.
func partsOf(lines []string) (parts [][]string, relations []pyexception.Relation) {
	begin := 0
	for i, line := range lines {
		relation := pyexception.Cause
		switch line {
		case between[pyexception.Cause]:
		case between[pyexception.Context]:
			relation = pyexception.Context
		default:
			continue
		}
		if fromWrapper(lines[begin:i]) {
			break
		}
		parts, relations, begin = append(parts, lines[begin:i]), append(relations, relation), i+1
	}
	return append(parts, lines[begin:]), append(relations, pyexception.Displayed)
}

// wrapper is the function that runs the program of a process (torch/multiprocessing/spawn.py).
const wrapper = "_wrap"

// fromWrapper reports whether a traceback begins there.
func fromWrapper(lines []string) bool {
	for _, line := range lines {
		if f := level.FindStringSubmatch(line); f != nil {
			return f[3] == wrapper && strings.HasSuffix(f[1], "/multiprocessing/spawn.py")
		}
	}
	return false
}

// parse is the exception of the first traceback; nil for none.
func parse(lines []string) *pyexception.Exception {
	var frames []pyexception.Frame
	for i, line := range lines {
		if strings.HasPrefix(line, " ") {
			if f := level.FindStringSubmatch(line); f != nil {
				number, _ := strconv.Atoi(f[2]) // digits; 0 for too many
				frames = append(frames, pyexception.Frame{File: f[1], Line: number, Function: f[3]})
			}
			continue
		}
		if is := raisedLine.FindStringSubmatch(line); is != nil && len(frames) > 0 {
			message := strings.TrimRight(strings.Join(append([]string{is[2]}, lines[i+1:]...), "\n"), "\n")
			return quoteOf(is[1][strings.LastIndexByte(is[1], '.')+1:], message, frames)
		}
		frames = nil
	}
	return nil
}

func quoteOf(class, message string, frames []pyexception.Frame) *pyexception.Exception {
	class, _ = cutAt(class, mostQuotedType)
	x := &pyexception.Exception{Type: class, Frames: frames, Levels: len(frames)}
	x.Message, x.Tail = cutAt(message, mostQuoted)
	x.Cut = x.Tail != ""
	return x
}

// cutAt cuts a text behind so many bytes, or before the character that lies there.
func cutAt(text string, most int) (head, tail string) {
	if len(text) <= most {
		return text, ""
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most], text[most:]
}

// mostNested is how many quotes in each other are looked at.
const mostNested = 3

// quoted is what a message quotes, in one line: the type and the beginning of the message, and what that
// quotes in turn. "" for nothing.
func quoted(x *pyexception.Exception) string { return quotedWithin(x, mostNested) }

func quotedWithin(x *pyexception.Exception, most int) string {
	inner := unquoted(x)
	if inner == nil || most == 0 {
		return ""
	}
	return words(inner, most-1)
}

// remote are the types that only carry the traceback of another process, as the cause of the exception that it
// raised (Lib/concurrent/futures/process.py, Lib/multiprocessing/pool.py).
var remote = []string{"_RemoteTraceback", "RemoteTraceback"}

// withoutRemote is a chain with what such exceptions carry in their place.
func withoutRemote(chain []pyexception.Exception) []pyexception.Exception {
	if !slices.ContainsFunc(chain, func(x pyexception.Exception) bool { return slices.Contains(remote, x.Type) }) {
		return chain
	}
	chain = slices.Clone(chain)
	for i := range chain {
		if !slices.Contains(remote, chain[i].Type) {
			continue
		}
		if inner := unquoted(&chain[i]); inner != nil {
			inner.Message = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(inner.Message), `"""`))
			inner.Relation = chain[i].Relation
			chain[i] = *inner
		}
	}
	return chain
}
