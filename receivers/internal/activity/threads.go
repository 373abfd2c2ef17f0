package activity

import (
	"strings"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// maxLooked is how many threads of silent ranks are looked at in one round. A rank of PyTorch has
// some hundred; most of them sleep from look to look, and cost one read each.
const maxLooked = 1024

// slept is how often each thread of a process had gone to sleep at a look.
type slept struct {
	round  int
	ticks  uint64 // start of the process
	sleeps map[uint32]uint64
}

// askThreads notes whether a thread beside the main one waits for a file, or for a page of one, and
// is answered: a checkpoint that a thread writes while the main thread joins it, say. One call may
// write all of it, and no byte counts until it returns. And whether one is not, and takes no signal:
// the main thread then sleeps in a lock, and a file system or a driver is why.
func (r *Reader) askThreads(of *Process, in *Inside) {
	t := &r.trees
	threads, err := r.fs.Threads(of.PID, maxThreads)
	if err != nil {
		return
	}
	before := t.threads[of.PID]
	if before.round != t.round-1 || before.ticks != r.known[of.PID].startTicks {
		before = slept{}
	}
	now := slept{t.round, r.known[of.PID].startTicks, make(map[uint32]uint64, len(threads))}
	t.threads[of.PID] = now
	for _, tid := range threads[:t.looked.take(of.PID, of.Domain, len(threads))] {
		status, err := r.fs.ThreadStatus(of.PID, tid)
		if tid == of.PID || err != nil { // it has just ended
			continue
		}
		now.sleeps[tid] = status.Sleeps
		slept, known := before.sleeps[tid]
		switch state := stateOf(status.State); {
		case !known:
		case status.Sleeps > slept && !in.Answered:
			r.answers(of.PID, tid, state, in)
		case status.Sleeps == slept && state == socketstall.DiskSleep && in.Blocked.TID == 0:
			r.blocks(of.PID, tid, in)
		}
	}
}

// blocks reads where a thread sleeps that has not been woken.
func (r *Reader) blocks(pid, tid uint32, in *Inside) {
	w, file, err := r.threadWait(pid, tid)
	if err == nil && !w.Awake {
		in.Blocked = Thread{TID: tid, Syscall: w.Syscall, Channel: w.Channel, File: file}
	}
}

// threadWait is where a thread sleeps, and the file that its call is about.
func (r *Reader) threadWait(pid, tid uint32) (w procfs.Wait, file string, err error) {
	if w, err = r.fs.ThreadWait(pid, tid); err == nil && w.FD != procfs.Negative {
		file, _ = r.fs.OpenFile(pid, w.FD) // one that was closed has no name
	}
	return w, file, err
}

// answers reads for what a thread waits that was woken since the look before.
func (r *Reader) answers(pid, tid uint32, state socketstall.State, in *Inside) {
	w, file, err := r.threadWait(pid, tid)
	if err != nil {
		return
	}
	if state == socketstall.DiskSleep || stored(file) {
		in.Answered, in.Syscall, in.Channel, in.File = true, w.Syscall, w.Channel, file
	}
}

// stored reports whether a file is one of a file system, and no device: threads of drivers of
// GPUs wait for theirs all the time.
func stored(file string) bool {
	for _, folder := range [...]string{"/dev/", "/proc/", "/sys/"} {
		if strings.HasPrefix(file, folder) {
			return false
		}
	}
	return strings.HasPrefix(file, "/")
}
