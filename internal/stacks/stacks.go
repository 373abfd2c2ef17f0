// Package stacks takes one look at the threads of a process: where each stands in Python, in
// compiled code and in the kernel, and what it waits for. It joins internal/pystack,
// internal/unwind, bpf/taskstack and internal/waitclass. The process goes on meanwhile.
package stacks

import (
	"errors"

	"github.com/tracecoreai/tracecore/bpf/taskstack"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// ErrMoves says that a thread did not hold still and did not run long enough for a sample.
var ErrMoves = errors.New("the thread did not hold still while it was read")

// Thread is where one thread is. Names of compiled code and of Python are what the process
// says of itself: neither safe for a terminal nor true.
type Thread struct {
	TID    uint32
	Name   string
	Main   bool
	GIL    bool // it held the global interpreter lock of Python
	State  byte // as in /proc
	Python []pystack.Frame
	Place  pystack.Place // of Python's frames
	Native []unwind.Frame
	Kernel []taskstack.Function
	Wait   waitclass.Wait
	// Ending: by the stack of this main thread the program is over, and its interpreter ends.
	Ending bool
	// Of a thread that runs, or could: its program counter, and a hash of its other registers; 0
	// for one that sleeps, and where they are not known.
	Counter, Registers uint64
	// Errors say what could not be read of it, and why.
	Errors []error
}

// Process is one look at a process.
type Process struct {
	PID     uint32
	Python  string // version of its interpreter, "" for none
	Threads []Thread
	Cut     bool // it has more threads
	Turned  bool // its main thread waits for a thread of its own, which is looked at from now on
	All     int  // how many it has, where they are more; 0 where nobody says it
	// Errors say what could not be read of all of it, and why. That it has no Python is none.
	Errors []error
}
