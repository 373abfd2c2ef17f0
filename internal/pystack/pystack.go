// Package pystack reads where the threads of another process stand in their Python code.
// Nothing in that process changes and nothing of it is stopped: its memory is read by
// internal/procmem, which faults no page in and waits for none.
//
// CPython 3.8 to 3.14 on 64-bit machines is known. Another version is refused by name.
// Frames have file, line and function, never arguments and never local variables.
//
// A stack is believed if its thread slept all the while, which its count of context
// switches says, or if two reads agree. Otherwise the thread is Torn and has no frames.
package pystack

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Why a process has no Python stacks, beside the errors of procfs: ErrGone, ErrDenied,
// ErrHung and ErrForeign.
var (
	ErrNoPython = errors.New("no CPython in the program and no libpython that it has mapped")
	// ErrNotRunning is of a process whose interpreter has not begun, or has ended.
	ErrNotRunning = errors.New("the Python interpreter is not running")
)

// UnknownVersionError is of an interpreter whose memory has another layout, or may have.
type UnknownVersionError struct {
	Version string // as in "CPython 3.15"
}

func (e *UnknownVersionError) Error() string {
	return e.Version + " is not known; native and kernel frames remain"
}

// Why a thread is torn.
var (
	errMoving  = errors.New("it did not hold still")
	errDamaged = errors.New("its frames are no frames")
)

// errTexts ends a look.
var errTexts = errors.New("its names and line tables are longer than is read in one look")

// Frame is one call of a Python function.
type Frame struct {
	File     string
	Line     int    // 0 where the code has no line, or its line table is not in memory
	LastLine int    // where several looks found it at several lines: the last of these; else 0
	Function string // qualified where the interpreter knows it so, from 3.11 on: Model.forward
}

// At is the line, 0 where it is not one alone.
func (f *Frame) At() int {
	if f.LastLine != 0 {
		return 0
	}
	return f.Line
}

// Thread is one thread that has run Python. Its texts are the process's own: valid UTF-8,
// but neither safe for a terminal nor true.
type Thread struct {
	TID    uint32 // as /proc numbers it here; 0 when it is not known
	Main   bool   // the first thread of the process
	GIL    bool   // it held the global interpreter lock all the while
	Frames []Frame
	Place  Place // of these frames, none when they are; that of PlaceOf where no more than 256 are read
	Cut    bool  // there are more frames, farther out
	Torn   bool  // it was given up, and has no frames
	Err    error // why it is torn
}

// Stacks is what the threads of a process do.
type Stacks struct {
	Threads []Thread // the main thread first, then the newest
	Cut     bool     // there are more threads, or their list changed all the time
	// GILKnown says that GIL is read. It is not in CPython before 3.12 on arm64 with a C library
	// that is not known, or linked into the program.
	GILKnown bool
}

// Options says what to read.
type Options struct {
	OnlyMain bool // the main thread alone
	Holders  bool // with OnlyMain: those that hold a lock of the interpreter, too
	Threads  int  // how many threads at most; 0 stands for 256
	Frames   int  // how many frames of each at most, innermost first; 0 stands for 256
}

// Bounds on what is read of one process, whatever its memory says.
const (
	maxThreads      = 256
	maxFrames       = 256
	mostThreads     = 4096
	mostFrames      = 4096
	maxInterpreters = 64

	// maxTexts is how many bytes of names and line tables are read in one look, of threads that
	// are looked at again, too. A function of PyTorch has about 0.5 KiB of them.
	maxTexts = 16 << 20
)

func (o Options) bounded() Options {
	if o.Threads <= 0 {
		o.Threads = maxThreads
	}
	if o.Frames <= 0 {
		o.Frames = maxFrames
	}
	o.Threads, o.Frames = min(o.Threads, mostThreads), min(o.Frames, mostFrames)
	return o
}

// Reader opens processes. It remembers the interpreters that it has seen by device and
// inode, 64 at most, so that a file is read once, and while all is well. Its methods may
// be called at the same time.
type Reader struct {
	proc *procfs.FS

	mu     sync.Mutex // guards images
	images images
}

// New makes a reader of the processes of a mount of proc.
func New(proc *procfs.FS) *Reader { return &Reader{proc: proc} }

// tids are the numbers of a process's threads.
type tids struct {
	proc *procfs.FS
	pid  uint32

	innerMain uint32            // what the main thread is called in its own pid namespace
	outers    map[uint32]uint32 // by the number there
}

// refresh asks which threads there are.
func (t *tids) refresh(onlyMain bool) error {
	main, err := t.proc.ThreadStatus(t.pid, t.pid)
	if err != nil {
		return err
	}
	t.innerMain = cmp.Or(main.Inner, t.pid)
	if onlyMain {
		t.outers = map[uint32]uint32{t.innerMain: t.pid}
		return nil
	}
	threads, err := t.proc.Threads(t.pid, mostThreads)
	if err != nil {
		return err
	}
	t.outers = make(map[uint32]uint32, len(threads))
	for _, tid := range threads {
		inner := tid
		if t.innerMain != t.pid {
			status, err := t.proc.ThreadStatus(t.pid, tid)
			if err != nil {
				continue // it has just ended
			}
			inner = status.Inner
		}
		t.outers[inner] = tid
	}
	return nil
}

func (t *tids) is(number uint32) bool      { return number != 0 && t.outers[number] != 0 }
func (t *tids) isMain(number uint32) bool  { return number == t.innerMain }
func (t *tids) outer(number uint32) uint32 { return t.outers[number] }

// Process is one process that runs Python. One goroutine at a time uses it.
type Process struct {
	proc *procfs.FS
	pid  uint32
	in   *interpreter
	tids *tids
	seen map[uint32]*thread // threads that PlaceOf has found, by their numbers in /proc
	end  func() error
}

// Version is the version of the interpreter, as in "CPython 3.11".
func (p *Process) Version() string { return versionName(p.in.layout.minor) }

func versionName(minor int) string { return fmt.Sprintf("CPython 3.%d", minor) }

// Close lets go of the process. It may be called twice.
func (p *Process) Close() error {
	if p.end == nil {
		return nil
	}
	end := p.end
	p.end = nil
	return end()
}
