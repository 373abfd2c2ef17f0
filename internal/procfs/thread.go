package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// ThreadStatus is what /proc/PID/task/TID/status says of a thread (proc_pid_status(5)).
type ThreadStatus struct {
	State byte // a letter of fs/proc/array.c, task_state_array
	// Switches counts how often it gave its CPU away, by itself or not. A thread that is
	// asleep twice with the same number has not run in between.
	Switches uint64
	// Sleeps counts how often it did so by itself: it waited for something.
	Sleeps uint64
	// Inner is its number in its own pid namespace, the last of the line NSpid.
	Inner uint32
	// Tracer is the process that traces it, a debugger; 0 for none.
	Tracer uint32
	// Threads counts those of its process.
	Threads int
	// Killed reports whether SIGKILL waits for this thread alone: the kernel sends it to each
	// thread of a process that ends (zap_other_threads, kernel/signal.c).
	Killed bool
}

// Asleep reports whether the thread is off its CPU and waits: for an event, for a disk or a
// file system, for SIGCONT or a debugger.
func (s ThreadStatus) Asleep() bool { return bytes.IndexByte([]byte("SDTtI"), s.State) >= 0 }

// Ready reports whether the thread could run at both looks, and has not given its CPU away in between:
// it has run all the time, or has had no turn.
func (s ThreadStatus) Ready(before ThreadStatus) bool {
	return s.State == 'R' && before.State == 'R' && s.Switches == before.Switches
}

// Woken reports whether the thread was asleep since the look before, and was woken. It need not have
// had a turn since.
func (s ThreadStatus) Woken(before ThreadStatus) bool {
	return s.Sleeps > before.Sleeps || s.State == 'R' && (before.State == 'S' || before.State == 'D')
}

// Status is that of the first thread of a process.
func (f *FS) Status(pid uint32) (ThreadStatus, error) {
	file, err := f.of(pid, maxStatus, "status")
	return statusIn(pid, pid, file, err)
}

// ThreadStatus reads the status of one thread of a process.
func (f *FS) ThreadStatus(pid, tid uint32) (ThreadStatus, error) {
	file, err := f.of(pid, maxStatus, "task", strconv.FormatUint(uint64(tid), 10), "status")
	return statusIn(pid, tid, file, err)
}

func statusIn(pid, tid uint32, file File, err error) (ThreadStatus, error) {
	if err != nil {
		return ThreadStatus{}, err
	}
	s, err := parseThreadStatus(file.Content)
	if err != nil {
		return ThreadStatus{}, fmt.Errorf("read status of thread %d of process %d: %w", tid, pid, err)
	}
	return s, nil
}

// ThreadID is a thread of a process.
type ThreadID struct{ PID, TID uint32 }

// ThreadLook is what the kernel says of a thread.
type ThreadLook struct {
	Status ThreadStatus
	Err    error // why it has no status
	// Ran is how long it has run, and RanErr why that is not known.
	Ran    time.Duration
	RanErr error
}

// LookAt reads some threads, in their order, all of them within one patience: to hand a read to
// another goroutine takes longer than the read. Where one hangs each is read for itself.
func (f *FS) LookAt(threads []ThreadID) []ThreadLook {
	if !f.Foreign() {
		all, err := Patiently(f, f.threadsName(), func() ([]ThreadLook, error) { return f.lookAt(threads, readNow), nil })
		if err == nil {
			return all
		}
	}
	return f.lookAt(threads, f.readOwn)
}

// threadsName stands for a read of all of them, which is left behind as one.
func (f *FS) threadsName() string { return filepath.Join(f.root, "some threads") }

// readNow waits for a file for as long as it takes.
func readNow(file string, limit int) (File, error) {
	content, err := readFile(file, limit)
	return content, explain(file, err)
}

// readOwn is ReadFile, but where this mount numbers processes otherwise.
func (f *FS) readOwn(file string, limit int) (File, error) {
	if f.Foreign() {
		return File{}, fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	return f.ReadFile(file, limit)
}

func (f *FS) lookAt(threads []ThreadID, read func(string, int) (File, error)) []ThreadLook {
	all := make([]ThreadLook, len(threads))
	for i, t := range threads {
		seen, tid := &all[i], strconv.FormatUint(uint64(t.TID), 10)
		file, err := read(f.path(t.PID, "task", tid, "status"), maxStatus)
		if seen.Status, seen.Err = statusIn(t.PID, t.TID, file, err); seen.Err != nil {
			continue
		}
		file, err = read(f.path(t.PID, "task", tid, "schedstat"), maxStat)
		turns, err := turnsIn(t.PID, file, err)
		seen.Ran, seen.RanErr = turns.Ran, err
	}
	return all
}

func parseThreadStatus(content []byte) (ThreadStatus, error) {
	var s ThreadStatus
	voluntary, err := numberAfter(content, "voluntary_ctxt_switches")
	others, othersErr := numberAfter(content, "nonvoluntary_ctxt_switches")
	if err := errors.Join(err, othersErr); err != nil {
		return s, err
	}
	s.Switches, s.Sleeps = voluntary+others, voluntary
	for line := range bytes.Lines(content) {
		if rest, ok := bytes.CutPrefix(line, []byte("State:")); ok && len(bytes.TrimSpace(rest)) > 0 {
			s.State = bytes.TrimSpace(rest)[0]
		}
		if rest, ok := bytes.CutPrefix(line, []byte("TracerPid:")); ok {
			tracer, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 32)
			if err != nil {
				return s, err
			}
			s.Tracer = uint32(tracer)
		}
		if rest, ok := bytes.CutPrefix(line, []byte("Threads:")); ok {
			threads, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 31)
			if err != nil {
				return s, err
			}
			s.Threads = int(threads)
		}
		if rest, ok := bytes.CutPrefix(line, []byte("SigPnd:")); ok {
			pending, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 16, 64)
			if err != nil {
				return s, err
			}
			s.Killed = pending>>(sigKILL-1)&1 != 0
		}
		if rest, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			numbers := bytes.Fields(rest)
			if len(numbers) == 0 {
				continue
			}
			inner, err := strconv.ParseUint(string(numbers[len(numbers)-1]), 10, 32)
			if err != nil {
				return s, err
			}
			s.Inner = uint32(inner)
		}
	}
	if s.State == 0 {
		return s, errors.New("no State in it")
	}
	return s, nil
}

// sigKILL is signal 9 on all architectures; bit n-1 of a mask is signal n.
const sigKILL = 9

// mostEnding is how many threads are asked whether they end: the kernel tells all or none.
const mostEnding = 16

// Ending reports whether a process whose main thread has ended is ending altogether: each
// other thread ends, or was told to. While it gives back its memory it keeps its sockets, for
// minutes with a GPU's. False: the others live on, and the main thread alone has ended.
func (f *FS) Ending(pid uint32) (bool, error) {
	threads, err := f.Threads(pid, mostEnding)
	if err != nil {
		return false, err
	}
	for _, tid := range threads {
		if tid == pid {
			continue
		}
		// In this order: a thread takes the signal from its mask, and then is marked as one that ends.
		if status, err := f.ThreadStatus(pid, tid); err != nil || status.Killed {
			continue // gone, or told to
		}
		if stat, err := f.ThreadStat(pid, tid); err == nil && !stat.Exiting {
			return false, nil
		}
	}
	return true, nil
}

// Threads lists the threads of a process, in order, so many of them at most.
func (f *FS) Threads(pid uint32, most int) ([]uint32, error) {
	folder := f.path(pid, "task")
	if f.Foreign() {
		return nil, fmt.Errorf("read %s: %w", folder, ErrForeign)
	}
	return Patiently(f, folder, func() ([]uint32, error) {
		opened, err := os.Open(folder)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		names, err := opened.Readdirnames(most)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		threads := make([]uint32, 0, len(names))
		for _, name := range names {
			if tid, err := strconv.ParseUint(name, 10, 32); err == nil {
				threads = append(threads, uint32(tid))
			}
		}
		slices.Sort(threads)
		return threads, nil
	})
}
