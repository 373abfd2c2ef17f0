//go:build linux && (amd64 || arm64)

package stacks

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// Prepare opens what a look at a process needs, while all is well: its files, which cannot be
// opened any more when their mount hangs, and its interpreter, for Place. Called again, it does
// so anew: programs load libraries later. python is true for a process that runs Python, also
// where that cannot be read and err says why. Release ends it.
func (r *Reader) Prepare(pid uint32) (python bool, err error) {
	filesErr := r.files.Prepare(pid)
	if errors.Is(filesErr, procfs.ErrGone) {
		return false, filesErr
	}
	found, err := r.interpreters.Open(pid)
	before, none := r.watched[pid], errors.Is(err, pystack.ErrNoPython)
	if before != nil && (err == nil || none) {
		_ = before.Close() // of a file in /proc, for reading
		delete(r.watched, pid)
	}
	switch {
	case err == nil:
		r.watched[pid] = found
		return true, filesErr
	case none:
		return false, filesErr
	}
	return before != nil || isPython(err), errors.Join(filesErr, err)
}

// isPython reports whether an error is that of an interpreter.
func isPython(err error) bool {
	var unknown *pystack.UnknownVersionError
	return errors.Is(err, pystack.ErrNotRunning) || errors.As(err, &unknown)
}

// Status is what the kernel says of the thread that does the work of a process, in one read.
func (r *Reader) Status(pid uint32) (procfs.ThreadStatus, error) {
	return r.fs.ThreadStatus(pid, r.thread(pid))
}

// OnCPU is how long that thread has run.
func (r *Reader) OnCPU(pid uint32) (time.Duration, error) {
	turns, err := r.fs.ThreadTurns(pid, r.thread(pid))
	return turns.Ran, err
}

// Place is where that thread stands in Python, of a process that was prepared. It costs a
// few reads of its memory; pystack.ErrNoPython says that it has none.
func (r *Reader) Place(pid uint32) (pystack.Place, error) {
	watched := r.watched[pid]
	if watched == nil {
		return pystack.Place{}, pystack.ErrNoPython
	}
	return watched.PlaceOf(r.thread(pid))
}

// Class is what that thread waits for, or would, by its frames of Python alone, of a process that was
// prepared. It may run on meanwhile.
func (r *Reader) Class(pid uint32) (waitclass.Class, error) {
	watched := r.watched[pid]
	if watched == nil {
		return "", pystack.ErrNoPython
	}
	tid := r.thread(pid)
	seen, err := watched.Stacks(pystack.Options{OnlyMain: tid == pid})
	i := slices.IndexFunc(seen.Threads, func(t pystack.Thread) bool { return t.TID == tid })
	if err != nil || i < 0 {
		return "", cmp.Or(err, ErrMoves)
	}
	works := Thread{Python: seen.Threads[i].Frames}
	if len(works.Python) == 0 {
		return "", cmp.Or(seen.Threads[i].Err, ErrMoves)
	}
	return r.table.Of(works.frames()).Class, nil
}

// Usage is how many pages a process has taken without a read, what it has read and written, and
// for how long it has run, since it began.
func (r *Reader) Usage(pid uint32) (faults, bytes uint64, cpu time.Duration, err error) {
	stat, err := r.fs.Stat(pid)
	if err != nil {
		return 0, 0, 0, err
	}
	bytes, err = r.fs.IOBytes(pid)
	return stat.Faults, bytes, stat.CPU, err
}

// Release lets go of a process: of files that no other process has, too.
func (r *Reader) Release(pid uint32) {
	if watched := r.watched[pid]; watched != nil {
		_ = watched.Close()
	}
	delete(r.watched, pid)
	delete(r.workers, pid)
	delete(r.pauses, pid)
	r.files.Release(pid)
}

// StartNS is when a process began, on the boot clock, cut to a tick: with its number it is one
// process and no other.
func (r *Reader) StartNS(pid uint32) (uint64, error) {
	stat, err := r.fs.Stat(pid)
	return stat.StartNS(), err
}
