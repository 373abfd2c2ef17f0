package pystack

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/tracecoreai/tracecore/internal/procmem"
)

// call is one frame as it lies in memory.
type call struct {
	frame, code, back uint64
	last              uint64 // address of its instruction, before 3.11 its number
	own               bool   // of Python code, and not of the interpreter itself
}

// thread is the state of a thread in the interpreter.
type thread struct {
	address, next, interpreter, posix uint64
	native                            uint32
	frame                             uint64 // the innermost, or the cframe that has it
}

func (in *interpreter) threadAt(address uint64) (thread, error) {
	l := &in.layout
	if err := in.Read(address, in.thread); err != nil {
		return thread{}, err
	}
	t := thread{
		address: address, next: in.thread.u64(l.threadNext), interpreter: in.thread.u64(l.threadInterpreter),
		posix: in.thread.u64(l.threadPOSIX), frame: in.thread.u64(l.threadFrame),
	}
	if l.threadNative != 0 {
		t.native = in.thread.u32(l.threadNative)
	}
	if l.threadCFrame != 0 {
		t.frame = in.thread.u64(l.threadCFrame)
	}
	return t, nil
}

// chain reads the frames of a thread, innermost first, with those of the interpreter
// itself. The thread must be the same as when its list was read. cut says that there are
// more.
func (in *interpreter) chain(of thread, most int) (calls []call, cut bool, err error) {
	t, err := in.threadAt(of.address)
	if err != nil {
		return nil, false, err
	}
	if t.interpreter != of.interpreter || t.native != of.native || t.posix != of.posix {
		return nil, false, errMoving
	}
	at := t.frame
	if in.layout.threadCFrame != 0 && at != 0 {
		if at, err = in.pointer(at + in.layout.cframeFrame); err != nil {
			return nil, false, err
		}
	}
	for own := 0; at != 0; {
		if err := in.Read(at, in.frame); err != nil {
			return nil, false, err
		}
		one := in.callAt(at, in.frame)
		if one.own {
			own++
		}
		if own > most || len(calls) > 2*most { // the interpreter has one frame for each call from C
			return calls, true, in.circle(calls)
		}
		calls = append(calls, one)
		at = one.back
	}
	return calls, false, nil
}

func (in *interpreter) callAt(at uint64, frame view) call {
	l := &in.layout
	one := call{frame: at, code: frame.u64(l.frameCode), back: frame.u64(l.frameBack), own: true}
	if l.frameInstruction != 0 {
		one.last = frame.u64(l.frameInstruction)
		one.own = frame[l.frameOwner] < l.foreignOwner
	} else {
		one.last = uint64(frame.u32(l.frameLast))
	}
	if l.minor >= 14 { // _PyStackRef: the lowest bits are a tag (pycore_stackref.h)
		one.code &^= 3
	}
	return one
}

// again reads frames that are known once more, all at once, and what leads to the innermost
// before and after them. It is false where that is another by now, or where a frame has
// another code or another caller.
func (in *interpreter) again(of thread, before []call) ([]call, bool, error) {
	field, cframe := of.address+in.layout.threadFrame, uint64(0)
	if in.layout.threadCFrame != 0 {
		field = of.address + in.layout.threadCFrame
		var err error
		if cframe, err = in.pointer(field); err != nil {
			return nil, false, err
		}
	}
	size := len(in.frame)
	room := make(view, 32+size*len(before))
	lead := func(at int) []procmem.Part {
		parts := []procmem.Part{{Address: field, Into: room[at : at+8]}}
		if cframe != 0 {
			parts = append(parts, procmem.Part{Address: cframe + in.layout.cframeFrame, Into: room[at+8 : at+16]})
		}
		return parts
	}
	parts := lead(0)
	for i, c := range before {
		parts = append(parts, procmem.Part{Address: c.frame, Into: room[32+size*i : 32+size*(i+1)]})
	}
	for part := range slices.Chunk(append(parts, lead(16)...), procmem.MaxParts) {
		if err := in.ReadAll(part); err != nil {
			return nil, false, err
		}
	}
	innermost := uint64(0)
	if len(before) > 0 {
		innermost = before[0].frame
	}
	for _, at := range []uint64{0, 16} {
		first := room.u64(at)
		if cframe != 0 && first == cframe {
			first = room.u64(at + 8)
		}
		if first != innermost {
			return nil, false, nil
		}
	}
	calls := make([]call, len(before))
	for i, c := range before {
		calls[i] = in.callAt(c.frame, room[32+size*i:])
		if one := calls[i]; one.code != c.code || one.back != c.back || one.own != c.own {
			return nil, false, nil
		}
	}
	return calls, true, nil
}

// circle refuses a chain that comes back to one of its frames.
func (in *interpreter) circle(calls []call) error {
	seen := make(map[uint64]struct{}, len(calls))
	for _, c := range calls {
		if _, again := seen[c.frame]; again {
			return errDamaged
		}
		seen[c.frame] = struct{}{}
	}
	return nil
}

// agree reports whether two reads saw the same calls. The line of the innermost may have
// moved on: it was there, too.
func agree(a, b []call) bool {
	for i := range a {
		if i > 0 && a[i].last != b[i].last {
			return false
		}
	}
	return len(a) == len(b)
}

// functions reads the code of all calls.
func (in *interpreter) functions(calls []call) (map[uint64]*function, error) {
	known := make(map[uint64]*function, len(calls))
	for _, c := range calls {
		if _, read := known[c.code]; read || !c.own {
			continue
		}
		f, err := in.function(c.code)
		if err != nil {
			return nil, err
		}
		known[c.code] = &f
	}
	return known, nil
}

// frames makes frames of calls.
func (in *interpreter) frames(calls []call, functions map[uint64]*function) ([]Frame, error) {
	frames := make([]Frame, 0, len(calls))
	for _, c := range calls {
		if !c.own {
			continue
		}
		f := functions[c.code]
		line, err := in.line(f, c)
		if err != nil {
			return nil, err
		}
		frames = append(frames, Frame{File: f.file, Line: line, Function: f.name})
	}
	return frames, nil
}

func (in *interpreter) line(f *function, c call) (int, error) {
	if f.lines.bytes == nil {
		return 0, nil
	}
	at := int64(int32(c.last)) // f_lasti is -1 before the first instruction
	switch {
	case in.layout.minor == 10: // counted in instructions of two bytes
		at *= 2
	case in.layout.frameInstruction != 0:
		at = int64(c.last - c.code - in.layout.codeInstructions)
		if at < -2 || at > f.instructions { // prev_instr is one before the first instruction
			return 0, errDamaged
		}
	}
	return f.lines.line(at), nil
}

// stack is one look at a thread.
type stack struct {
	frames []Frame
	place  Place
	cut    bool
	agreed bool // several reads saw the same
}

// agreeing is how many reads of all frames at once must see the same of a thread that may
// run.
const agreeing = 3

// look reads the stack of a thread; of one that may be moving, several times. What is absent
// or damaged is an error, which a moving thread makes too.
func (in *interpreter) look(of thread, most int, moving bool) (stack, error) {
	s, err := in.once(of, most, moving)
	if err != nil {
		return s, err
	}
	return s, in.alive()
}

// maxSnapshot is how much is remembered of the memory of a thread that sleeps.
const maxSnapshot = 1 << 20

func (in *interpreter) once(of thread, most int, moving bool) (stack, error) {
	if !moving { // pages are read once, then
		live := in.memory
		in.memory = remembered{procmem.NewSnapshot(live, maxSnapshot), live}
		defer func() { in.memory = live }()
	}
	var s stack
	calls, cut, err := in.chain(of, most)
	if err != nil {
		return s, err
	}
	functions, err := in.functions(calls)
	if err != nil {
		return s, err
	}
	if moving {
		if calls, s.agreed, err = in.steady(of, calls); err != nil {
			return s, err
		}
	}
	s.cut, s.place = cut, placeOf(calls)
	s.frames, err = in.frames(calls, functions)
	return s, err
}

// steady reads frames again until as many reads as are needed agree, or one does not.
func (in *interpreter) steady(of thread, before []call) ([]call, bool, error) {
	first, same, err := in.again(of, before)
	for i := 1; i < agreeing && same && err == nil; i++ {
		var next []call
		if next, same, err = in.again(of, before); same {
			same = agree(first, next)
		}
	}
	return first, same, err
}

// alive is the last read of a look: it fails when the process has ended, or has executed
// another program, before the others were done.
func (in *interpreter) alive() error {
	_, err := in.pointer(in.runtime)
	return err
}

// Place is where a thread stands, by its frames as they lie in memory. It means nothing beside
// the place of another process.
type Place struct {
	Chain uint64 // as long as it is the same, the stack is
	// Calls leaves out how far the innermost function is: as long as it is the same, the
	// thread may be in the same call, or in a later one of the same line.
	Calls uint64
}

// maxPlace is how much is remembered of the memory with the frames of a thread, from one look at
// its place to the next.
const maxPlace = 64 << 10

// place hashes the frames of a thread. Their memory is read at once, as far as it is that of the
// last time: each read of its own costs some 10 µs. Where the process executes another program
// meanwhile it is an error, or another place.
func (in *interpreter) place(of thread) (Place, error) {
	live := in.memory
	in.places.Renew(live.ReadAll)
	in.memory = remembered{in.places, live}
	calls, _, err := in.chain(of, maxFrames)
	in.memory = live
	if err != nil {
		return Place{}, err
	}
	return placeOf(calls), nil
}

func placeOf(calls []call) Place {
	chain, without := fnv.New64a(), fnv.New64a()
	var word [8]byte
	innermost := true
	for _, c := range calls {
		for i, v := range [...]uint64{c.frame, c.code, c.last} {
			binary.LittleEndian.PutUint64(word[:], v)
			chain.Write(word[:])
			if i < 2 || !innermost {
				without.Write(word[:])
			}
		}
		innermost = innermost && !c.own
	}
	return Place{chain.Sum64(), without.Sum64()}
}

// movable reports whether an error may come from a thread that ran while it was read.
func movable(err error) bool {
	return errors.Is(err, errMoving) || errors.Is(err, errDamaged) || errors.Is(err, procmem.ErrAbsent)
}
