package identity

import (
	"cmp"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// startSlack is how much earlier than a process's recorded start an event of it
// may appear: /proc gives starts in ticks of 10 ms, and wall clocks are slewed.
const startSlack = 100 * time.Millisecond

// tickNS is the unit of start times in /proc.
const tickNS = 10 * time.Millisecond

// record is one process in the index. Times are nanoseconds of the boot clock,
// which unlike the wall clock never steps.
type record struct {
	Process
	startNS uint64
	seenNS  uint64 // when it was put into the index
	endNS   uint64 // 0 while it lives
	told    bool   // its exit was reported
	failed  bool   // and it ended by itself, or of a fault
	asked   *asked // the signals to end that others had sent it, nil for none
	before  *Sent  // what it was sent before this Tracker began, nil where nobody says it
	podName string // inside its namespace, "" where the node does not tell it
	program string // its name when it was executed: a process may call itself otherwise later
	byCalls bool   // which rank it is: nobody whom it starts, or who started it, says the same

	launcher string    // as in launch
	outside  bool      // it was started in the container of a rank, by somebody outside
	work     work      // what it does, as far as that was asked or told
	askAgain uint64    // when that is asked again
	starts   bool      // it has started other programs of its rank
	launched *siblings // with whom it was started for its rank, nil for none
	children *children // of a rank's process: how those ended that it had started, nil for none
	outlived *Wrapper  // the outermost process of its rank, which it has outlived, nil for none
	wraps    *wraps    // what it runs for its rank, nil for what is not known as a wrapper
	script   string    // its first argument that is no option, where that was asked

	arguments string    // all of them, of a Python program of a rank
	raised    bool      // it displayed an exception that its program did not catch
	died      bool      // its end was told as that of its rank
	tries     tries     // what it starts for its rank and fails, of the outermost process
	among     *siblings // with whom it was started, kept once it has ended

	older   *record // the process that had this pid before
	element *fairlru.Element[*record]
	class   class
}

func (r *record) alive() bool { return r.endNS == 0 }

// same reports whether a start time is that of r. One of the two may come from
// /proc and be cut to a tick.
func (r *record) same(startNS uint64) bool {
	return r.startNS/uint64(tickNS) == startNS/uint64(tickNS)
}

// class orders processes by how much is lost when one is forgotten: a living one
// that is no rank can be read from /proc again, a rank that is dead cannot.
type class uint8

const (
	exitedOther class = iota
	livingOther
	exitedRank
	livingRank
	classes
)

func (r *record) classify() class {
	switch {
	case r.alive() && r.IsRank():
		return livingRank
	case r.alive():
		return livingOther
	case r.IsRank():
		return exitedRank
	default:
		return exitedOther
	}
}

// table holds processes by pid and start time, bounded in number and, after
// their exit, in time. Beyond the number the user, in pods and containers, and on it
// the container, that has most processes of a class loses the oldest: one that starts
// ranks without end forgets none but its own. It has no lock and no clock.
type table struct {
	max       int
	retention time.Duration
	byPID     map[uint32]*record             // newest process of the pid
	queues    [classes]fairlru.List[*record] // in the order they entered the class
	evicted   uint64
}

func newTable(max int, retention time.Duration) *table {
	return &table{max: max, retention: retention, byPID: make(map[uint32]*record)}
}

func (t *table) len() int {
	n := 0
	for i := range t.queues {
		n += t.queues[i].Len()
	}
	return n
}

func (t *table) ranks() int { return t.queues[livingRank].Len() }

// exact returns the process with this pid and start time.
func (t *table) exact(pid uint32, startNS uint64) *record {
	for r := t.byPID[pid]; r != nil; r = r.older {
		if r.same(startNS) {
			return r
		}
	}
	return nil
}

// at returns the last process with this pid that had started by then.
func (t *table) at(pid uint32, ns uint64) *record {
	for r := t.byPID[pid]; r != nil; r = r.older {
		if r.startNS <= ns+uint64(startSlack) {
			return r
		}
	}
	return nil
}

// put adds a process, or replaces what is known of the same one, which a second
// exec changes. A living process that had the pid before must have ended.
func (t *table) put(r *record, now uint64) {
	if old := t.exact(r.PID, r.startNS); old != nil {
		r.endNS, r.told, r.launched, r.outlived = old.endNS, old.told, old.launched, old.outlived
		if r.program == old.program {
			r.children, r.work, r.starts, r.wraps, r.script = old.children, old.work, old.starts, old.wraps, old.script
			r.arguments, r.tries = cmp.Or(r.arguments, old.arguments), old.tries
		}
		if old.startNS > r.startNS { // not cut to a tick
			r.startNS, r.StartTime = old.startNS, old.StartTime
		}
		t.remove(old)
	}
	if before := t.byPID[r.PID]; before != nil && before.alive() && before.startNS < r.startNS {
		t.end(before, min(now, r.startNS))
	}
	r.seenNS = now
	t.link(r)
	r.class = r.classify()
	r.element = t.enter(r)
	for t.len() > t.max {
		t.evict(r)
	}
}

// link puts r into the chain of its pid, newest first.
func (t *table) link(r *record) {
	newest := t.byPID[r.PID]
	if newest == nil || newest.startNS <= r.startNS {
		r.older = newest
		t.byPID[r.PID] = r
		return
	}
	for newest.older != nil && newest.older.startNS > r.startNS {
		newest = newest.older
	}
	r.older, newest.older = newest.older, r
}

// end marks the end of a process.
func (t *table) end(r *record, ns uint64) {
	r.endNS = max(ns, 1)
	t.reclassify(r)
}

// reclassify moves r to the queue it now belongs to, if it is still in the table.
func (t *table) reclassify(r *record) {
	if c := r.classify(); r.element != nil && c != r.class {
		t.queues[r.class].Remove(r.element)
		r.class = c
		r.element = t.enter(r)
	}
}

func (t *table) enter(r *record) *fairlru.Element[*record] {
	return t.queues[r.class].Add(r, fairlru.Some, r.Domain, cmp.Or(r.PodUID, r.ContainerID))
}

// expire forgets processes that ended more than the retention ago.
func (t *table) expire(now uint64) {
	for _, c := range [...]class{exitedOther, exitedRank} {
		for t.queues[c].Len() > 0 {
			r := t.queues[c].Oldest()
			if r.endNS+uint64(t.retention) > now {
				break
			}
			t.remove(r)
		}
	}
}

// evict forgets the process that is missed least, but not the newest.
func (t *table) evict(newest *record) {
	for c := range t.queues {
		if t.queues[c].Len() == 0 {
			continue
		}
		if victim, _ := t.queues[c].Victim(); victim.Value != newest {
			t.remove(victim.Value)
			t.evicted++
			return
		}
	}
}

func (t *table) remove(r *record) {
	t.queues[r.class].Remove(r.element)
	newest := t.byPID[r.PID]
	switch {
	case newest != r:
		for newest.older != r {
			newest = newest.older
		}
		newest.older = r.older
	case r.older != nil:
		t.byPID[r.PID] = r.older
	default:
		delete(t.byPID, r.PID)
	}
	r.older, r.element = nil, nil
}

// living calls fn for each process that has not ended.
func (t *table) living(fn func(*record)) {
	for _, c := range [...]class{livingOther, livingRank} {
		t.queues[c].Each(fn)
	}
}

// livingRanks returns the rank processes that have not ended, without those that only wrap one.
func (t *table) livingRanks() []Process {
	queue := &t.queues[livingRank]
	ranks := make([]Process, 0, queue.Len())
	queue.Each(func(r *record) {
		if r.wraps == nil {
			p := r.Process
			p.TakesPart = r.work == member
			ranks = append(ranks, p)
		}
	})
	return ranks
}
