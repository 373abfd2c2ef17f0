//go:build linux && (amd64 || arm64)

package stacks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/bpf/taskstack"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// MaxThreads is how many threads of a process a look takes.
const MaxThreads = 1024

// A thread that runs while it is read is looked at anew; one that does so in each try is
// sampled.
const (
	tries    = 3
	patience = 20 * time.Millisecond // until a thread has run for the millisecond of a sample
)

var errMore = errors.New("it has more threads than are read")

// Reader looks at processes. It is for one goroutine.
type Reader struct {
	fs           *procfs.FS
	interpreters *pystack.Reader
	files        *unwind.Unwinder
	kernel       *taskstack.Probe // nil where no rung works
	lacks        error            // why
	table        *waitclass.Table
	watched      map[uint32]*pystack.Process // nil for one without Python
	workers      map[uint32]*worker          // of processes whose main thread waits for one
	pauses       map[uint32]time.Time        // until then their main thread is looked at
}

// Open makes a reader. Where the stack of a thread in the kernel cannot be read, and so no
// register, it goes on with Python alone, and each look says so.
func Open(fs *procfs.FS) (*Reader, error) {
	table, err := waitclass.New()
	if err != nil {
		return nil, err
	}
	files, err := unwind.New(fs, 0)
	if err != nil {
		return nil, err
	}
	r := &Reader{fs: fs, interpreters: pystack.New(fs), files: files, table: table, watched: map[uint32]*pystack.Process{}, workers: map[uint32]*worker{}, pauses: map[uint32]time.Time{}}
	r.kernel, r.lacks = taskstack.Open(taskstack.Options{FS: fs})
	return r, nil
}

// RungPython is in use where no rung of bpf/taskstack works: stacks have Python's frames alone.
const RungPython = "process_vm_readv"

// Report says how the part of a thread in the kernel is read.
func (r *Reader) Report() probe.Report {
	if r.kernel != nil {
		return r.kernel.Report()
	}
	return probe.Report{Probe: taskstack.Name, Rung: RungPython, Attempts: []probe.Attempt{{Rung: taskstack.Name, Outcome: probe.Broken, Reason: r.lacks.Error()}}}
}

// Stats counts the threads that were read.
func (r *Reader) Stats() probe.Stats {
	if r.kernel != nil {
		return r.kernel.Stats()
	}
	return probe.Stats{}
}

// Close lets go of what the reader holds.
func (r *Reader) Close() error {
	for pid := range r.watched {
		r.Release(pid)
	}
	err := r.files.Close()
	if r.kernel != nil {
		err = errors.Join(err, r.kernel.Close())
	}
	return err
}

// Read looks at the threads of a process. Its error is why nothing can be said of it. The
// layers of a thread that sleeps are of one moment; those of one that runs are not.
func (r *Reader) Read(pid uint32) (*Process, error) {
	tids, err := r.fs.Threads(pid, MaxThreads+1)
	if err != nil {
		return nil, err
	}
	l := &look{Reader: r, Process: Process{PID: pid, Cut: len(tids) > MaxThreads}}
	if l.Cut {
		status, _ := r.fs.ThreadStatus(pid, pid) // one that has just ended has none
		l.All = status.Threads
	}
	defer l.begin()()
	l.take(tids[:min(len(tids), MaxThreads)])
	return l.result()
}

// ReadMain is Read of the main thread alone, and of those that hold a lock of Python's
// interpreter. A main thread that waits for its threads of backward stands where these do, and one that
// waits for a thread which does its work, where that does.
func (r *Reader) ReadMain(pid uint32) (*Process, error) {
	worker := r.thread(pid)
	l := &look{Reader: r, Process: Process{PID: pid}, options: pystack.Options{OnlyMain: worker == pid, Holders: true}}
	defer l.begin()()
	l.take(slices.Compact([]uint32{pid, worker}))
	var holders []uint32
	for tid, thread := range l.python {
		if thread.GIL && tid != pid && tid != worker && tid != 0 {
			holders = append(holders, tid)
		}
	}
	l.take(holders)
	if worker == pid && l.findWorker() {
		worker, l.Turned = r.thread(pid), true
		l.take([]uint32{worker})
	}
	if worker != pid {
		l.throughWorker(worker)
	}
	l.behind()
	return l.result()
}

// take takes these threads.
func (l *look) take(tids []uint32) {
	l.open = tids
	l.round()
	for try := 1; try < tries && l.kernel != nil; try++ {
		l.round()
	}
	for _, tid := range l.open {
		l.moving(tid)
	}
}

func (l *look) result() (*Process, error) {
	if l.pythonErr != nil {
		l.lack("Python", l.pythonErr)
	}
	if len(l.Threads) == 0 {
		return nil, fmt.Errorf("process %d: %w", l.PID, procfs.ErrGone)
	}
	slices.SortStableFunc(l.Threads, func(a, b Thread) int { return cmp.Compare(rank(a), rank(b)) })
	return &l.Process, nil
}

// look is one look at a process.
type look struct {
	*Reader
	Process
	native  *unwind.Process  // nil: its compiled code cannot be read
	runs    *pystack.Process // nil: it runs no Python that can be read
	python  map[uint32]pystack.Thread
	open    []uint32         // threads that did not hold still so far
	options pystack.Options  // what is read of Python
	failed  map[uint32]error // why the kernel's part of a thread was not read, the last time

	pythonErr error // why not all threads of Python were read, the last time
}

// begin opens the process, and notes which parts of it cannot be read.
func (l *look) begin() (end func()) {
	native, err := l.files.Process(l.PID)
	if err != nil {
		l.lack("compiled code", err)
	} else {
		l.native = native
	}
	if l.lacks != nil {
		l.lack("kernel and compiled code", l.lacks)
	}
	runs, err := l.interpreters.Open(l.PID)
	switch {
	case errors.Is(err, pystack.ErrNoPython):
	case err != nil:
		l.lack("Python", err)
	default:
		l.runs, l.Python = runs, runs.Version()
	}
	return func() {
		if l.native != nil {
			l.native.Close()
		}
		if l.runs != nil {
			l.runs.Close()
		}
	}
}

func (l *look) lack(what string, err error) {
	l.Errors = append(l.Errors, fmt.Errorf("%s: %w", what, err))
}

// round takes the threads that hold still from before their Python is read until after the
// rest is.
func (l *look) round() {
	if len(l.open) == 0 {
		return
	}
	before := make([]taskstack.Stack, len(l.open))
	l.failed = map[uint32]error{}
	if l.kernel != nil {
		for i, tid := range l.open {
			if err := l.kernel.Read(tid, &before[i]); err != nil {
				l.failed[tid] = err
				before[i].Still = false
			}
		}
	}
	l.readPython()
	var moved []uint32
	for i, tid := range l.open {
		if l.kernel == nil || !before[i].Still || !l.still(tid, &before[i]) {
			moved = append(moved, tid)
		}
	}
	l.open = moved
}

// still takes a thread that has held still since that stack was read.
func (l *look) still(tid uint32, s *taskstack.Stack) bool {
	var trace unwind.Trace
	if l.native != nil && !s.KernelThread && s.Registers.Known != 0 {
		trace = l.native.Unwind(unwind.Registers(s.Registers))
	}
	var later taskstack.Stack
	if l.kernel.Read(tid, &later) != nil || !s.HeldStill(&later) {
		return false
	}
	if t, ok := l.thread(tid); ok {
		t.State, t.Kernel = s.State, s.Kernel
		if s.State == 'R' { // it waits for a CPU
			t.Counter, t.Registers = s.Registers.Loop()
		}
		t.trace(trace)
		l.add(t)
	}
	return true
}

// moving takes a thread that runs, or whose part in the kernel cannot be read.
func (l *look) moving(tid uint32) {
	t, ok := l.thread(tid)
	if !ok {
		return
	}
	switch err := l.failed[tid]; {
	case err != nil:
		t.Errors = append(t.Errors, fmt.Errorf("kernel and compiled code: %w", err))
	case l.kernel != nil:
		l.sample(t)
	}
	l.add(t)
}

// thread begins a thread with its name, its state and its Python; ok is false when it is gone.
func (l *look) thread(tid uint32) (t *Thread, ok bool) {
	t = &Thread{TID: tid, Main: tid == l.PID}
	stat, err := l.fs.ThreadStat(l.PID, tid)
	if errors.Is(err, procfs.ErrGone) {
		return nil, false
	}
	if err != nil {
		t.Errors = append(t.Errors, err)
	}
	t.Name, t.State = stat.Name, stat.State
	python := l.python[tid]
	t.GIL, t.Python, t.Place = python.GIL, python.Frames, python.Place
	if python.Torn {
		t.Errors = append(t.Errors, fmt.Errorf("%s: %w", "Python", cmp.Or(python.Err, ErrMoves)))
	}
	return t, true
}

func (l *look) add(t *Thread) {
	t.Wait = l.table.Of(t.frames())
	python, runs := l.python[t.TID]
	t.Ending = t.Main && waitclass.Ending(t.frames(), runs && !python.Torn && len(python.Frames) == 0)
	l.Threads = append(l.Threads, *t)
}

// sample takes the frames of a thread that runs.
func (l *look) sample(t *Thread) {
	var s taskstack.Stack
	switch err := taskstack.Sample(t.TID, patience, &s); {
	case errors.Is(err, taskstack.ErrAsleep):
		t.Errors = append(t.Errors, fmt.Errorf("kernel and compiled code: %w", ErrMoves))
	case err != nil:
		t.Errors = append(t.Errors, fmt.Errorf("compiled code: %w", err))
	case l.native != nil:
		t.State = 'R'
		t.Counter, t.Registers = s.Registers.Loop()
		t.trace(l.native.UnwindCopy(unwind.Registers(s.Registers), s.Memory))
	}
}

// rank puts the main thread first, then who holds Python's lock, then those of Python.
func rank(t Thread) int {
	switch {
	case t.Main:
		return 0
	case t.GIL:
		return 1
	case len(t.Python) > 0:
		return 2
	}
	return 3
}

// readPython reads the threads that run Python, by their numbers.
func (l *look) readPython() {
	l.python = map[uint32]pystack.Thread{}
	if l.runs == nil {
		return
	}
	// Its own bound on threads: each may have 256 frames of names that the process chooses.
	stacks, err := l.runs.Stacks(l.options)
	if l.pythonErr = err; err == nil && stacks.Cut {
		l.pythonErr = errMore
	}
	for _, t := range stacks.Threads {
		l.python[t.TID] = t
	}
}

func (t *Thread) trace(trace unwind.Trace) {
	t.Native = trace.Frames
	if trace.End != nil {
		t.Errors = append(t.Errors, fmt.Errorf("compiled code: %w", trace.End))
	}
}

// frames are those that tell what the thread waits for.
func (t *Thread) frames() waitclass.Stack {
	s := waitclass.Stack{
		Kernel: make([]waitclass.Function, len(t.Kernel)), Native: make([]waitclass.Native, len(t.Native)), Python: make([]waitclass.Python, len(t.Python)),
	}
	for i, f := range t.Kernel {
		s.Kernel[i] = waitclass.Function(f)
	}
	for i, f := range t.Native {
		s.Native[i] = waitclass.Native{Object: f.Object, Symbol: f.Symbol}
	}
	for i, f := range t.Python {
		s.Python[i] = waitclass.Python{File: f.File, Function: f.Function}
	}
	return s
}
