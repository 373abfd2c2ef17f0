// Package waitclass says what a thread waits for, from its frames: with other ranks, for a key of a store, for a GPU,
// for data, for storage, for a lock, for a network, for a name server, for a compiler, for the threads of backward, or
// for its own code. It names the function of the kernel that it sleeps in, and whose that is.
//
// The table is rows.txt, where each row has its source. Names on a stack are what the process
// says of itself, but for those of the kernel.
package waitclass

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Class is what a thread waits for.
type Class string

// The classes.
const (
	Collective  Class = "collective"   // other ranks
	Store       Class = "store"        // what another rank is to write into the store of their job, outside of a collective
	GPU         Class = "gpu"          // its GPU
	DataLoading Class = "data_loading" // the next batch
	Storage     Class = "storage"      // a file
	Lock        Class = "lock"         // another thread or process
	Network     Class = "network"      // a peer that is no rank, as far as is known
	NameServer  Class = "name_server"  // the answer of a name server
	Compiling   Class = "compiling"    // a compiler
	Backward    Class = "backward"     // the threads in which its framework runs backward
	OwnCode     Class = "own_code"     // nothing that is known: it computes, sleeps, or waits in code of its own
)

// Classes lists all of them.
func Classes() []Class {
	return []Class{Collective, Store, GPU, DataLoading, Storage, Lock, Network, NameServer, Compiling, Backward, OwnCode}
}

// Stack is a thread's frames, innermost first in each layer.
type Stack struct {
	Kernel []Function
	Native []Native
	Python []Python
}

// Function is a frame of the kernel.
type Function struct {
	Name   string
	Module string // "" for what is built in
}

// Native is a frame of compiled code.
type Native struct {
	Object string // path of the file
	Symbol string // "" where it is not known
}

// Python is a frame of the interpreter.
type Python struct {
	File     string
	Function string
}

// Wait is what a thread waits for.
type Wait struct {
	Class Class
	Why   string // the frame that decided, "" for OwnCode
	// Function is where in the kernel it sleeps, past the scheduler; "" for a thread that runs.
	Function string
	Owner    string // of that function or of one around it: fuse, nfs, nvidia, ext4, tcp, futex; "" where none is known
	// Call is the function of the library that the program waits in, of a collective: all_reduce, recv; "" where no frame tells.
	Call string
}

// Table is what is known of frames.
type Table struct {
	python, native, kernel []row
}

//go:embed rows.txt
var rows string

// row is one line.
type row struct {
	class  Class
	level  int      // how little it says: 0 decides, 1 is weak, 2 is weaker still
	inner  bool     // it fits the innermost frame of Python alone
	where  string   // folder or file, object, owner
	names  []string // functions, beginnings of symbols; nil for all
	source string
}

// levels are how many there are.
const levels = 3

// New reads the table.
func New() (*Table, error) { return parse(rows) }

func parse(text string) (*Table, error) {
	t := &Table{}
	layers := map[string]*[]row{"python": &t.python, "native": &t.native, "kernel": &t.kernel}
	known := map[string]bool{}
	for _, c := range Classes() {
		known[string(c)] = true
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("line %d: %q has no source", number, line)
		}
		word, inner := strings.CutSuffix(fields[1], "!")
		class := strings.TrimRight(word, "?")
		level := len(word) - len(class)
		layer := layers[fields[0]]
		if layer == nil || !known[class] || level >= levels {
			return nil, fmt.Errorf("line %d: no layer %q or class %q", number, fields[0], fields[1])
		}
		r := row{class: Class(class), level: level, inner: inner, where: fields[2], source: strings.Join(fields[4:], " ")}
		if fields[3] != "*" {
			r.names = strings.Split(fields[3], ",")
		}
		*layer = append(*layer, r)
	}
	return t, nil
}

// Of decides. What compiled code below the interpreter says comes first, for it is nearest to
// the wait; then the frames of Python, then the kernel; in each the innermost frame that a row
// fits. Then the same with the weak rows, and with the weaker ones.
//
// A lock of user space is waited for in a futex. A thread that sleeps elsewhere in the kernel is
// not at the lock that its frames speak of: it takes it, or has it, and a file system does not
// answer. So it is with the threads of backward, and with a look-up of a name that reads a file or takes a lock. A native row of OwnCode says that the thread runs
// what is farther out itself: those rows do not count, and it does not wait for other threads there.
//
// The ranks of a group find each other by a store. A wait for that is a part of the collective around it.
//
// A futex or a socket, where no frame of user space is read, says nothing: in a collective threads wait
// so, too.
func (t *Table) Of(s Stack) Wait {
	w := Wait{Class: OwnCode}
	function, in := t.place(s.Kernel)
	if w.Function = function; in != nil {
		w.Owner = in.where
	}
	itself := false
	for level := range levels {
		for i, layer := range []func(Stack, int) (*row, string){t.nativeRow, t.pythonRow, t.kernelRow} {
			r, why := layer(s, level)
			switch {
			case r == nil:
				continue
			case r.class == OwnCode:
				itself = true
				continue
			case i == kernelLayer && r.anybody() && len(s.Native)+len(s.Python) == 0:
				continue
			case r.class == Backward && itself, i < kernelLayer && (r.class == Lock || r.class == Backward) && in != nil && in.class != Lock,
				r.class == NameServer && in != nil && in.class != Network:
				continue
			}
			w.Class, w.Why = r.class, why
			if w.Class == Store && t.inCollective(s) {
				w.Class = Collective
			}
			if w.Class == Collective {
				w.Call = t.call(s)
			}
			return w
		}
	}
	return w
}

// inCollective reports whether a frame is one of a collective.
func (t *Table) inCollective(s Stack) bool {
	native := slices.ContainsFunc(s.called(), func(f Native) bool {
		r, _ := t.nativeRow(Stack{Native: []Native{f}}, 0)
		return r != nil && r.class == Collective
	})
	return native || slices.ContainsFunc(s.Python, func(f Python) bool {
		r, _ := t.pythonRow(Stack{Python: []Python{f}}, 0)
		return r != nil && r.class == Collective
	})
}

// gloo are the functions of compiled code in which a thread waits that has no frame of Python for it: Work.wait of
// what isend and irecv return (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, SendWork and RecvWork).
var gloo = []struct{ symbol, call string }{{"waitSend", "send"}, {"waitRecv", "recv"}}

// exported is how the functions begin that a library for collectives has for programs in C: MPI 4.1, section 2.6 (PMPI_
// are the same for profilers, section 15.2), and nccl.h.
var exported = []string{"MPI_", "PMPI_", "nccl", "pnccl"}

// call is the outermost function of a library for collectives: that is what the program has called.
func (t *Table) call(s Stack) string {
	for at := len(s.Python) - 1; at >= 0; at-- {
		f := s.Python[at]
		if r, _ := t.pythonRow(Stack{Python: []Python{f}}, 0); r != nil && r.class == Collective {
			return f.Function[strings.LastIndexByte(f.Function, '.')+1:]
		}
	}
	for _, f := range s.Native {
		for _, one := range gloo {
			if strings.HasPrefix(f.Symbol, "_ZN4gloo") && strings.Contains(f.Symbol, one.symbol) {
				return one.call
			}
		}
	}
	for _, f := range slices.Backward(s.called()) {
		if slices.ContainsFunc(exported, func(begin string) bool { return strings.HasPrefix(f.Symbol, begin) }) {
			return strings.TrimPrefix(strings.TrimPrefix(f.Symbol, "P"), "p")
		}
	}
	return ""
}

// AtStart reports whether ranks find each other in a call (Wait.Call) at the start of their job: init_process_group and init_rpc
// of PyTorch, init_distributed of DeepSpeed, initialize of JAX and connect below it, MPI_Init and MPI_Init_thread.
func AtStart(call string) bool {
	return strings.HasPrefix(call, "init") || call == "connect" || strings.HasPrefix(call, "MPI_Init")
}

// anybody reports whether a function of the kernel only says how a thread waits for another.
func (r *row) anybody() bool { return r.level > 0 && (r.class == Network || r.where == "futex") }

// kernelLayer is which of the layers is the kernel's.
const kernelLayer = 2

// interpreter reports whether a file is that of the interpreter. Its loop has no symbol in
// CPython 3.14 (it is hidden), so the file tells where Python begins.
func interpreter(object string) bool {
	return strings.HasPrefix(object, "libpython") || strings.HasPrefix(object, "python")
}

// called is the compiled code that Python has called: what is further out has called
// Python, and is told by Python's frames.
func (s *Stack) called() []Native {
	python := false
	for i, f := range s.Native {
		is := interpreter(path.Base(f.Object))
		if !is && python {
			return s.Native[:i]
		}
		python = python || is && len(s.Python) > 0
	}
	return s.Native
}

func (t *Table) nativeRow(s Stack, level int) (*row, string) {
	for _, f := range s.called() {
		object := path.Base(f.Object)
		for i := range t.native {
			r := &t.native[i]
			if r.level == level && (r.where == "*" || strings.HasPrefix(object, r.where)) && begins(f.Symbol, r.names) {
				return r, strings.TrimSpace(f.Symbol + " in " + object)
			}
		}
	}
	return nil, ""
}

func begins(name string, beginnings []string) bool {
	for _, b := range beginnings {
		if strings.HasPrefix(name, b) {
			return true
		}
	}
	return beginnings == nil
}

func (t *Table) pythonRow(s Stack, level int) (*row, string) {
	for at, f := range s.Python {
		file := "/" + f.File
		for i := range t.python {
			if r := &t.python[i]; r.level == level && (at == 0 || !r.inner) && r.fitsFile(file) && r.hasFunction(f.Function) {
				return r, f.Function + " in " + r.where
			}
		}
	}
	return nil, ""
}

// fitsFile: a name of one part may be that of a user's own folder or file.
func (r *row) fitsFile(file string) bool {
	switch parts := strings.Count(r.where, "/"); {
	case parts == 0:
		return strings.HasSuffix(file, "/"+r.where) && standard.MatchString(file)
	case !strings.HasSuffix(r.where, "/"):
		return strings.HasSuffix(file, "/"+r.where)
	case parts == 1:
		return strings.Contains(file, "-packages/"+r.where)
	}
	return strings.Contains(file, "/"+r.where)
}

// standard is where Python's own modules are: its folder, or that folder as a zip file.
var standard = regexp.MustCompile(`/python\d[\d.]*t?(\.zip)?/[^/]+$`)

func (r *row) hasFunction(name string) bool {
	name = name[strings.LastIndexByte(name, '.')+1:] // of a qualified name the last part
	for _, n := range r.names {
		if n == name {
			return true
		}
	}
	return r.names == nil
}

func (t *Table) kernelRow(s Stack, level int) (*row, string) {
	for _, f := range s.Kernel {
		if r := t.owner(f, level); r != nil {
			return r, f.Name + " of " + r.where
		}
	}
	return nil, ""
}

func (t *Table) owner(f Function, level int) *row {
	for i := range t.kernel {
		if r := &t.kernel[i]; r.level == level && r.owns(f) {
			return r
		}
	}
	return nil
}

func (r *row) owns(f Function) bool {
	for _, n := range r.names {
		if n == "["+f.Module+"]" || n[0] != '[' && strings.HasPrefix(f.Name, n) {
			return true
		}
	}
	return false
}

// place is where in the kernel a thread sleeps, past the functions that only put it to sleep,
// and the row of whose function that is, nil for none.
func (t *Table) place(kernel []Function) (function string, in *row) {
	for _, f := range kernel {
		if !sleeps(f.Name) {
			function = f.Name
			break
		}
	}
	for level := range levels {
		if r, _ := t.kernelRow(Stack{Kernel: kernel}, level); r != nil {
			return function, r
		}
	}
	return function, nil
}

// sleeps reports whether a function is one of those that wchan passes over (__sched,
// include/linux/sched/debug.h) or that wait for others (kernel/sched/wait.c, kernel/time/timer.c).
func sleeps(name string) bool {
	for _, n := range []string{"__schedule", "schedule", "io_schedule", "preempt_schedule", "wait_for_completion", "bit_wait", "out_of_line_wait_on_bit", "__wait_on_bit", "wait_woken", "do_wait_intr"} {
		if strings.HasPrefix(name, n) {
			return true
		}
	}
	return false
}
