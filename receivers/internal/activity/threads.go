package activity

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// maxLooked is how many threads of silent ranks are looked at in one round: all of eight ranks. A rank of
// PyTorch has some hundred; most of them sleep from look to look, and cost one read each.
const maxLooked = 8 * maxThreads

// turns are what a thread has had of the CPUs, and what its status says.
type turns struct {
	procfs.Turns
	status procfs.ThreadStatus // State 0: not read
	polls  bool                // it did nothing but poll when it had its last turn
	onFile bool                // it slept on a file when it was seen asleep last, or in a page fault
	placed bool                // it was seen asleep there since it was last at rest
	unseen int                 // looks in a row at which it had been woken, and was not
	fuse   bool                // there it waited for a FUSE mount
	asked  uint64              // how often it had given its CPU away when it was asked last, and one; 0 never

	parked int // looks in a row at which it could run all the time, polls, and had no turn
	worked int // looks in a row at which it had a turn that was no rest

	cpu, system time.Duration // of a process with NCCL; 0 not read
}

func (t *turns) read() bool { return t.status.State != 0 }

// ready reports whether a thread could run all the time since before.
func (t *turns) ready(before *turns) bool { return t.status.Ready(before.status) }

// woken reports whether a thread has been woken since before.
func (t *turns) woken(before *turns) bool {
	return t.read() && before.read() && t.status.Woken(before.status)
}

// turnsOfWork is at how many looks in a row a thread that polls has run for longer until it is taken to do something else. One
// look shows little of a thread that seldom gets a CPU: a turn in which the machine itself was paused counts as run.
const turnsOfWork = 2

// learn notes whether a thread polls. What it did in its last turn it does until it has the next.
func (t *turns) learn(before *turns) {
	t.polls, t.worked = before.polls, before.worked
	switch {
	case t.status.Switches == before.status.Switches:
	case t.rested(before):
		t.polls, t.worked = true, 0
	default:
		t.worked++
		t.polls = t.polls && t.worked < turnsOfWork
	}
}

// lacks is the share of the time since before in which a thread could run and had no CPU, 0 where it
// polls.
func (t *turns) lacks(before *turns, seconds float64) float64 {
	if t.polls {
		return 0
	}
	return t.waited(before, seconds)
}

// parks counts for how many looks a thread that polls could run all the time, and had no turn: where not
// even that comes to pass, nothing of its process does.
func (t *turns) parks(before *turns, seconds float64) int {
	t.parked = 0
	if t.polls && t.ready(before) && t.waited(before, seconds) >= starving {
		t.parked = before.parked + 1
	}
	return t.parked
}

// unclear reports whether a thread that polled has had a turn that was no rest, and waited for a CPU for most of the time since
// before: where it computes from now on, that time was no rest either. The next look tells.
func (t *turns) unclear(before *turns, seconds float64) bool {
	return t.polls && t.worked > 0 && t.waited(before, seconds) >= starving
}

// waited is the share of the time since before in which a thread could run and had no CPU.
func (t *turns) waited(before *turns, seconds float64) float64 {
	if t.ready(before) {
		return min(1, max(0, 1-(t.Ran-before.Ran).Seconds()/seconds))
	}
	return min(1, max(0, t.Delayed-before.Delayed).Seconds()/seconds)
}

// mayWait reports whether a thread may have waited for a CPU for most of the time since before, and waits
// still: it can run now, has not run for most of that time, and was asleep or had a turn. The kernel counts a
// wait when it is over.
func (t *turns) mayWait(before *turns, seconds float64) bool {
	return t.status.State == 'R' && !t.ready(before) && 1-(t.Ran-before.Ran).Seconds()/seconds >= starving
}

// rested reports whether a thread has run for next to nothing since before, each time it woke; or in
// the kernel, as those of NCCL do while they wait.
func (t *turns) rested(before *turns) bool {
	if cpu := t.cpu - before.cpu; before.cpu > 0 && cpu > 0 && 2*(t.system-before.system) >= cpu {
		return true
	}
	sleeps := t.status.Sleeps - min(t.status.Sleeps, before.status.Sleeps)
	return sleeps > 0 && t.Ran-before.Ran < time.Duration(sleeps)*bout //nolint:gosec // far below
}

// sight takes whether a thread that was woken since the look before is awake, and counts the looks at which it was, and was
// not seen asleep: where CPUs are scarce it waits for one whenever it has been woken, and what woke it is not known. A thread
// that polls is met asleep in the end, at the place where it does.
func (t *turns) sight(awake bool) (unseen int) {
	switch {
	case !awake:
		t.placed, t.unseen = true, 0
	case !t.placed:
		t.unseen++
	}
	return t.unseen
}

// rests takes that a thread has slept since the look before. What it does when it wakes is another thing.
func (t *turns) rests() { t.placed, t.unseen = false, 0 }

// threadsOf looks at the threads of a process of the rank beside its main thread. The turns of one that
// has not run since the look before are known. Whole: these are all that there are.
func (r *Reader) threadsOf(of *Process, pid uint32, before *use, nccl bool) (threads map[uint32]*turns, whole bool) {
	all, err := r.fs.Threads(pid, maxThreads)
	room := r.trees.looked.take(of.PID, of.Domain, len(all))
	threads = make(map[uint32]*turns, room)
	for _, tid := range all[:room] {
		if tid == pid {
			continue
		}
		var then *turns
		if before != nil {
			then = before.others[tid]
		}
		if t := turnOf(r.fs, pid, tid, then, nccl); t != nil {
			threads[tid] = t
		}
	}
	return threads, err == nil && room == len(all) && room < maxThreads
}

// turnOf looks at a thread, nil if it has just ended. Numbers of threads are used again late: what was
// there before is the same one.
func turnOf(fs *procfs.FS, pid, tid uint32, before *turns, nccl bool) *turns {
	status, err := fs.ThreadStatus(pid, tid)
	if err != nil {
		return nil
	}
	t := &turns{}
	if before != nil {
		*t = *before
	}
	t.status, t.polls = status, false
	if before != nil && status.Switches == before.status.Switches && status.State != 'R' { // it has not run
		return t
	}
	if turns, err := fs.ThreadTurns(pid, tid); err == nil { // else those of before: it has just ended, or the kernel does not count them
		t.Turns = turns
	}
	if nccl {
		if stat, err := fs.ThreadStat(pid, tid); err == nil {
			t.cpu, t.system = stat.CPU, stat.System
		}
	}
	return t
}

// askThreads notes whether a thread beside the main one waits for a file, or for a page of one, and
// is answered: a checkpoint that a thread writes while the main thread joins it, say. One call may
// write all of it, and no byte counts until it returns. And whether one is not, and takes no signal:
// the main thread then sleeps in a lock, and a file system or a driver is why.
func (r *Reader) askThreads(of *Process, own *use, in *Inside) {
	for _, tid := range slices.Sorted(maps.Keys(own.others)) {
		now, then := own.others[tid], own.then[tid]
		if then == nil {
			continue
		}
		switch {
		case (now.woken(then) || now.ready(then)) && !in.Answered:
			r.answers(of.PID, tid, now, then, in)
		case now.status.Sleeps == then.status.Sleeps && (now.status.State == 'D' || now.status.State == 'S'):
			now.rests()
			r.blocks(of.PID, tid, now, in)
		}
	}
}

// blocks reads where a thread sleeps that has not been woken. One that waits for a FUSE mount may take signals: it sleeps
// there as in a lock. Of which file system its file is, or its page may be, is asked once in a sleep: that may be a long read of its
// mappings. Where any other sleeps that takes signals is asked once, too.
func (r *Reader) blocks(pid, tid uint32, now *turns, in *Inside) {
	uninterruptible := now.status.State == 'D' && in.Blocked.TID == 0
	asked := now.asked == now.status.Switches+1
	if asked && !uninterruptible {
		in.fuse = in.fuse || now.fuse
		return
	}
	w, file, err := r.threadWait(pid, tid)
	if err != nil || w.Awake {
		return
	}
	if !asked {
		now.asked, now.fuse = now.status.Switches+1, mayBeOfFUSE(w, file) && r.ofFUSE(pid, w)
	}
	in.fuse = in.fuse || now.fuse
	if uninterruptible {
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

// answers reads for what a thread waits that was woken since the look before. One that is awake was
// woken where it was seen asleep last; where it never was, nobody knows.
func (r *Reader) answers(pid, tid uint32, now, then *turns, in *Inside) {
	w, file, err := r.threadWait(pid, tid)
	if err != nil {
		return
	}
	// It may have gone to sleep, or have been woken, since its status was read: on a busy host that was long ago.
	uninterruptible := now.status.State == 'D'
	if uninterruptible || !w.Awake {
		now.onFile = uninterruptible || w.Syscall == "" || stored(file)
	}
	if now.woken(then) && !now.onFile {
		in.unseen = max(in.unseen, now.sight(w.Awake))
	}
	if now.onFile {
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
