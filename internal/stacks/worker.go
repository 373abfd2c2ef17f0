//go:build linux && (amd64 || arm64)

package stacks

import (
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// worker is the thread that does the work of a process, while its main thread waits for it: a program
// that trains in a thread (a trainer of Ray, a pool of one) and joins it.
type worker struct {
	tid  uint32
	wait pystack.Place // of the main thread, in which it waits
	away int           // looks in a row that found the main thread elsewhere
}

// goneOn is how many looks in a row must find the main thread elsewhere until it works itself: one that
// polls for the end of its thread is elsewhere now and then.
const goneOn = 2

// turnPause is for how long after that no other thread is taken for it. A main thread that waits in each step for one
// that loads data works itself.
const turnPause = time.Minute

// thread is the thread of a process that does its work: the main thread, as long as nothing else is known.
func (r *Reader) thread(pid uint32) uint32 {
	if w := r.workers[pid]; w != nil {
		return w.tid
	}
	return pid
}

// LookAt is what the kernel says of the threads that do the work of processes, in their order.
func (r *Reader) LookAt(pids []uint32) []procfs.ThreadLook {
	threads := make([]procfs.ThreadID, len(pids))
	for i, pid := range pids {
		r.goesOn(pid)
		threads[i] = procfs.ThreadID{PID: pid, TID: r.thread(pid)}
	}
	all := r.fs.LookAt(threads)
	for i, t := range threads {
		if t.TID != t.PID && all[i].Err != nil { // it has ended
			r.leave(t.PID)
			all[i] = r.fs.LookAt([]procfs.ThreadID{{PID: t.PID, TID: t.PID}})[0]
		}
	}
	return all
}

// goesOn lets a main thread be looked at again that waits for its worker no more.
func (r *Reader) goesOn(pid uint32) {
	w := r.workers[pid]
	if w == nil {
		return
	}
	watched := r.watched[pid]
	if watched == nil {
		delete(r.workers, pid)
		return
	}
	if place, err := watched.PlaceOf(pid); err != nil || place.Calls == w.wait.Calls {
		w.away = 0
	} else if w.away++; w.away >= goneOn {
		r.leave(pid)
	}
}

// leave lets the main thread be looked at again, for a while at least.
func (r *Reader) leave(pid uint32) {
	delete(r.workers, pid)
	r.pauses[pid] = time.Now().Add(turnPause)
}

// Of several threads in code of the program the one does the work that has run for most of the time: a
// listener or a heartbeat hardly runs.
const (
	leastRun    = 100 * time.Millisecond
	timesOthers = 10
	maxWorkers  = 8 // that are asked for how long they have run
)

// findWorker finds for which thread a main thread waits that joins one, or waits for what one returns. It is
// the only thread in code of the program. Of several it is the only one in a collective, or the one that
// runs. Where one could not be read, none is. From then on that is the thread to look at, and true is returned.
func (l *look) findWorker() bool {
	main := l.main()
	if main == nil || l.watched[l.PID] == nil || time.Now().Before(l.pauses[l.PID]) || main.Wait.Class != waitclass.Lock || !l.joins(main) {
		return false
	}
	l.options.OnlyMain = false
	l.readPython()
	found := l.workerAmong(l.python)
	if found == 0 {
		return false
	}
	l.workers[l.PID] = &worker{tid: found, wait: main.Place}
	return true
}

// workerAmong is the thread that does the work, 0 where that is not known.
func (l *look) workerAmong(threads map[uint32]pystack.Thread) uint32 {
	var own, collective []uint32
	for tid, t := range threads {
		one := Thread{Python: t.Frames}
		switch {
		case tid == l.PID || tid == 0:
			continue
		case t.Torn: // it may do the work, too: the next look tells
			return 0
		case !one.ofProgram() || l.joins(&one): // or it waits for work, or for another
			continue
		}
		if own = append(own, tid); l.table.Of(one.frames()).Class == waitclass.Collective {
			collective = append(collective, tid)
		}
	}
	switch {
	case len(own) == 1:
		return own[0]
	case len(collective) == 1:
		return collective[0]
	case len(collective) == 0 && len(own) <= maxWorkers:
		return l.busiest(own)
	}
	return 0
}

// busiest is the thread that has run for many times as long as each other, 0 for none.
func (l *look) busiest(threads []uint32) (found uint32) {
	var most, second time.Duration
	for _, tid := range threads {
		turns, err := l.fs.ThreadTurns(l.PID, tid)
		switch {
		case err != nil:
			return 0
		case turns.Ran > most:
			found, most, second = tid, turns.Ran, most
		default:
			second = max(second, turns.Ran)
		}
	}
	if most < leastRun || most < timesOthers*second {
		return 0
	}
	return found
}

// joins reports whether a thread waits for another of its process, by its frames: in a function of Python's own
// library that waits for threads, or for what they hand on.
func (l *look) joins(t *Thread) bool {
	if len(t.Python) == 0 || !pystack.Library(t.Python[0].File) {
		return false
	}
	by := l.table.Of(waitclass.Stack{Python: t.frames().Python})
	return by.Class == waitclass.Lock && slices.ContainsFunc([]string{"threading.py", "queue.py", "concurrent/futures/"}, func(where string) bool {
		return strings.HasSuffix(by.Why, " in "+where)
	})
}

// ofProgram reports whether code of the program is on the stack of a thread.
func (t *Thread) ofProgram() bool {
	own, ok := t.Own()
	return ok && !pystack.Library(own.File)
}

func (l *look) main() *Thread {
	if i := slices.IndexFunc(l.Threads, func(t Thread) bool { return t.Main }); i >= 0 {
		return &l.Threads[i]
	}
	return nil
}

// throughWorker lets the main thread stand where its worker does.
func (l *look) throughWorker(tid uint32) {
	main := l.main()
	i := slices.IndexFunc(l.Threads, func(t Thread) bool { return t.TID == tid && !t.Main })
	if main == nil || i < 0 {
		return
	}
	main.through(&l.Threads[i])
	main.Place = l.Threads[i].Place
	l.Threads = slices.Delete(l.Threads, i, i+1)
}
