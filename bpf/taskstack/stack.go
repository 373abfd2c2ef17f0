package taskstack

import "errors"

// Stack is where one thread is.
type Stack struct {
	TID, PID uint32
	State    byte // as in /proc: R runs or may run, S sleeps, D sleeps and takes no signal, T is stopped, t is traced, Z has ended, I idles
	// Still: it was on no CPU from before the read to after it, so that all of this belongs
	// together. It may have run since: HeldStill tells. Of a thread that runs the registers are
	// those of its last entry into the kernel.
	Still        bool
	Switches     uint64 // how often it has left its CPU since it began, of its own will or not
	KernelThread bool   // it has no user space, and no registers here
	Kernel       []Function
	Registers    Registers
	Memory       []byte // of its user stack, from the stack pointer on; only of Sample
}

// HeldStill reports whether the thread did not run from this read to a later one. What was read
// of its memory between them belongs to these registers; else it may be of another moment.
func (s *Stack) HeldStill(later *Stack) bool {
	return s.Still && later.Still && s.TID == later.TID && s.PID == later.PID && s.Switches == later.Switches && s.State == later.State
}

// Function is a function of the kernel, innermost first in a stack.
type Function struct {
	Name   string // without what the compiler appends: .isra.0, .cold
	Module string // "" for what is built in
}

// Registers are those of user space by their DWARF numbers on this machine. amd64: rax rdx
// rcx rbx rsi rdi rbp rsp r8 … r15 rip (System V ABI, figure 3.36). arm64: x0 … x30 sp pc
// (DWARF for the Arm 64-bit architecture, 4.1).
type Registers struct {
	Values [33]uint64
	Known  uint64 // bit n: Values[n] was read
}

// set notes a register.
func (r *Registers) set(number int, value uint64) {
	r.Values[number] = value
	r.Known |= 1 << number
}

// ErrAsleep is returned by Sample for a thread that did not run in time.
var ErrAsleep = errors.New("the thread did not run: read its stack instead")
