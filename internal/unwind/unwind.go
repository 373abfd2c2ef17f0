// Package unwind finds the native frames of a thread from its registers and the memory of its
// stack, as its compiler wrote them into .eh_frame. It reads only what one stack needs.
//
// Files and memory are claims of the process that is looked at. Each read is bounded, a stack
// has at most 256 frames, and each frame lies above the one before it.
package unwind

import (
	"errors"
	"fmt"

	"github.com/tracecoreai/tracecore/internal/procmem"
)

// Frame is one function on a stack, innermost first.
type Frame struct {
	PC     uint64
	Object string // path of the file in the process's own root, or what /proc/PID/maps says of memory that is no file's
	Symbol string // dynamic symbol of the function, "" where the file does not tell it
	Offset uint64 // of PC in the function that Symbol names, else in the object
}

// Trace is the stack of a thread.
type Trace struct {
	Frames []Frame
	// Whole: it goes to the start of the thread. Else End says why it does not.
	Whole bool
	End   error
}

// maxFrames bounds a stack. Python in C needs three native frames for one of its own where
// calls go through C, and its own limit of depth stops it at 1,000 by default.
const maxFrames = 256

// Why a stack ends before the start of its thread.
var (
	errLost   = errors.New("a register that is needed is not known")
	errDeep   = fmt.Errorf("more than %d frames", maxFrames)
	errCircle = errors.New("the stack does not grow")
)

// code is what has the code at an address.
type code struct {
	object string
	image  *image // nil where why says why there is none
	start  uint64 // of the mapping
	offset uint64 // of the mapping in the file
	why    error
}

// address is where the linker put pc.
func (c *code) address(pc uint64) (uint64, error) {
	if c.image == nil {
		return 0, c.why
	}
	address, ok := c.image.address(pc - c.start + c.offset)
	if !ok {
		return 0, errOutside
	}
	return address, nil
}

// walker unwinds one stack.
type walker struct {
	arch   *arch
	memory procmem.Memory
	// find tells what has the code at an address; nil when nothing has.
	find func(pc uint64) *code
	// unnamed are the frames of t whose functions are asked for in the end, by their images.
	unnamed map[*image][]unnamed
}

// unnamed is a frame by its place in the trace; shown is where its pc is in the file.
type unnamed struct {
	question
	frame int
	shown uint64
}

// walk goes from the registers of a thread to its start.
func (w *walker) walk(r Registers) Trace {
	w.unnamed = map[*image][]unnamed{}
	t := w.climb(r)
	w.name(&t)
	return t
}

// name names functions. A file whose symbols cannot be read has none.
func (w *walker) name(t *Trace) {
	room := maxScan
	for image, frames := range w.unnamed {
		var all []question
		for _, f := range frames {
			all = append(all, f.question)
		}
		if image.ask(all, &room) != nil {
			continue
		}
		for _, f := range frames {
			if s := image.known.names[lookup{image, f.address}]; s.name != "" {
				t.Frames[f.frame].Symbol, t.Frames[f.frame].Offset = s.name, f.shown-s.start
			}
		}
	}
}

func (w *walker) climb(r Registers) Trace {
	t := Trace{}
	exact := true // the innermost pc, and one that a signal interrupted, is the next instruction
	for len(t.Frames) < maxFrames {
		pc, known := r.get(uint64(w.arch.pc))
		if !known {
			t.End = errLost
			return t
		}
		if pc == 0 && len(t.Frames) > 0 {
			t.Whole = true // clone(2) begins a thread with no return address
			return t
		}
		look := pc
		if !exact {
			look-- // a return address may be behind the end of the function that called
		}
		next, more, err := w.frame(&t, pc, look, &r)
		if err != nil || !more {
			t.Whole, t.End = err == nil, err
			return t
		}
		if err := w.grows(&r, &next, exact); err != nil {
			t.End = err
			return t
		}
		exact = next.signal
		r = next.Registers
	}
	t.End = errDeep
	return t
}

// step is the registers of a caller.
type step struct {
	Registers
	signal bool // the frame that was left is one that the kernel made for a signal
}

// grows: a caller's frame is above. Only of the innermost, which may have none of its own, is
// it in the same place; a signal may have had a stack of its own.
func (w *walker) grows(r *Registers, next *step, innermost bool) error {
	before, now := r.Values[w.arch.sp], next.Values[w.arch.sp]
	leaf := innermost && now == before && next.Values[w.arch.pc] != r.Values[w.arch.pc]
	if now > before || leaf || next.signal {
		return nil
	}
	return errCircle
}

// frame adds the frame at pc, and finds its caller: more is false at the start of a thread.
func (w *walker) frame(t *Trace, pc, look uint64, r *Registers) (next step, more bool, err error) {
	code := w.find(look)
	if code == nil {
		return next, false, fmt.Errorf("no code at %#x", pc)
	}
	address, err := code.address(look)
	if err != nil {
		t.Frames = append(t.Frames, Frame{PC: pc, Object: code.object, Offset: pc - code.start + code.offset})
		return next, false, fmt.Errorf("%s: %w", code.object, err)
	}
	row, err := code.image.row(address)
	begins := errors.Is(err, errNotFound) && code.image.begins(address) && w.outermost(r)
	switch {
	case begins:
		row.start, err = code.image.begin, nil
	case errors.Is(err, errNotFound) && len(t.Frames) == 0 && code.image.inStub(address):
		row, err = w.arch.stub(), nil
	}
	shown := address + pc - look
	w.unnamed[code.image] = append(w.unnamed[code.image], unnamed{question{address, row.start}, len(t.Frames), shown})
	t.Frames = append(t.Frames, Frame{PC: pc, Object: code.object, Offset: shown})
	if err != nil {
		return next, false, fmt.Errorf("%s at %#x: %w", code.object, address, err)
	}
	if begins {
		return next, false, nil
	}
	next, more, err = w.caller(&row, r)
	if err != nil {
		err = fmt.Errorf("%s at %#x: %w", code.object, address, err)
	}
	return next, more, err
}

// outermost: the frame pointer marks the start of a thread.
func (w *walker) outermost(r *Registers) bool {
	fp, known := r.get(w.arch.fp)
	return known && fp == 0
}

// caller finds the registers of the caller.
func (w *walker) caller(row *row, r *Registers) (next step, more bool, err error) {
	cfa, err := w.cfa(row, r)
	if err != nil {
		return next, false, err
	}
	back := &row.rules[row.column]
	if back.how == undefined {
		return next, false, nil
	}
	next.signal = row.signal
	for number := range w.arch.registers {
		value, known, err := w.register(row, number, cfa, r)
		if errors.Is(err, procmem.ErrAbsent) && number != row.column {
			// A function that returns has given it back already, and its table says the old place:
			// below the stack pointer, where a sample's copy begins. The caller may not need it.
			continue
		}
		if err != nil {
			return next, false, fmt.Errorf("register %d: %w", number, err)
		}
		if known {
			next.set(int(number), value)
		}
	}
	if row.rules[w.arch.sp].how == unsaid {
		next.set(w.arch.sp, cfa)
	}
	pc, known := next.get(row.column)
	if !known {
		return next, false, errLost
	}
	if row.signed {
		pc &= w.arch.code
	}
	next.set(w.arch.pc, pc)
	return next, true, nil
}

func (w *walker) cfa(row *row, r *Registers) (uint64, error) {
	if row.cfa.how == isExpr {
		return evaluate(row.exprs[row.cfa.value], nil, r, w.memory)
	}
	base, known := r.get(row.base)
	if row.cfa.how != isOffset || !known || row.base >= w.arch.registers {
		return 0, fmt.Errorf("%w: %d", errLost, row.base)
	}
	return base + uint64(row.cfa.value), nil
}

// register is the value that a register has in the caller.
func (w *walker) register(row *row, number, cfa uint64, r *Registers) (value uint64, known bool, err error) {
	rule := row.rules[number]
	switch rule.how {
	case unsaid:
		value, known = r.get(number)
		return value, known && w.arch.saved&(1<<number) != 0, nil
	case undefined:
		return 0, false, nil
	case same:
		value, known = r.get(number)
		return value, known, nil
	case inRegister:
		value, known = r.get(uint64(rule.value))
		return value, known, nil
	case isOffset:
		return cfa + uint64(rule.value), true, nil
	case isExpr:
		value, err = evaluate(row.exprs[rule.value], []uint64{cfa}, r, w.memory)
		return value, err == nil, err
	}
	at := cfa + uint64(rule.value)
	if rule.how == atExpr {
		if at, err = evaluate(row.exprs[rule.value], []uint64{cfa}, r, w.memory); err != nil {
			return 0, false, err
		}
	}
	value, err = procmem.Word(w.memory, at)
	return value, err == nil, err
}
