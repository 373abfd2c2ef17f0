package stall

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// never is before any time of the tracker's clock.
const never = time.Duration(math.MinInt64 / 2)

// ranks are the rank processes of this node by pid; one is gone when a snapshot
// lacks it.
type ranks map[uint32]*rank

// take takes the processes of this snapshot and returns their ranks in order.
func (rs ranks) take(processes map[uint32]Process, c *clock) []*rank {
	all := make([]*rank, 0, len(processes))
	for pid, p := range processes {
		r := rs[pid]
		if r == nil || restarted(&r.now, &p) {
			r = &rank{moved: never, baseAt: c.now, cpu: p.CPU, mainCPU: p.MainCPU, delayed: p.Delayed}
			rs[pid] = r
		}
		r.begin(p, c.round)
		all = append(all, r)
	}
	for pid, r := range rs {
		if r.round != c.round {
			delete(rs, pid)
		}
	}
	slices.SortFunc(all, byRank)
	return all
}

// restarted reports whether a pid is another process's now. Start times may be
// cut to a tick and lie on a wall clock that is slewed.
func restarted(before, now *Process) bool {
	return now.StartTime.Sub(before.StartTime).Abs() > time.Second
}

func byRank(a, b *rank) int {
	return cmp.Or(cmp.Compare(a.now.Rank, b.now.Rank), cmp.Compare(a.now.PID, b.now.PID))
}

// look takes what collective sockets say of their ranks.
func (rs ranks) look(seen []*socket) {
	for _, s := range seen {
		if s.kind.Collective() {
			s.rank.look(s)
		}
	}
}

// rank is one process of a rank over time.
type rank struct {
	now   Process
	job   *job
	round uint64

	moved       time.Duration // data last moved on one of its collective sockets
	movedBefore time.Duration // the same as of the snapshot before

	// What it had used of the CPU in the snapshot in which it last moved.
	baseAt        time.Duration
	cpu, mainCPU  time.Duration
	delayed       time.Duration
	movedNow      bool
	lastSent      time.Duration // ages of this snapshot; negative: never
	lastReceived  time.Duration
	collectiveNow bool // it has collective sockets
	undecided     bool // of some of them only its libraries tell which
}

// begin starts a snapshot.
func (r *rank) begin(p Process, round uint64) {
	r.now, r.round, r.movedBefore = p, round, r.moved
	r.undecided = false
	r.movedNow, r.collectiveNow, r.lastSent, r.lastReceived = false, false, Unknown, Unknown
}

// look takes what a collective socket of the rank says.
func (r *rank) look(s *socket) {
	r.collectiveNow = true
	r.undecided = r.undecided || s.guessed
	r.lastSent = newest(r.lastSent, s.now.LastSentAge)
	r.lastReceived = newest(r.lastReceived, s.now.LastReceivedAge)
	if s.change.moved {
		r.moved = max(r.moved, s.moved)
	}
	r.movedNow = r.movedNow || s.change.recent
}

// share is how many cores it has used since it fell silent.
func share(used, base, silent time.Duration) float64 {
	if silent <= 0 || used < 0 || base < 0 || used < base {
		return Unknown
	}
	return float64(used-base) / float64(silent)
}

func (r *rank) mainShare(now time.Duration) float64 {
	return share(r.now.MainCPU, r.mainCPU, now-r.baseAt)
}

// awakeShare is the share of time in which its main thread ran or could have.
func (r *rank) awakeShare(now time.Duration) float64 {
	main := r.mainShare(now)
	if main == Unknown {
		return Unknown
	}
	return main + max(0, share(r.now.Delayed, r.delayed, now-r.baseAt))
}

// computing reports whether its main thread has been at work since it fell
// silent. One that still moves data somewhere is at work, and one that was not
// watched for long enough to tell has to be taken for one that is. On a machine
// with more work than CPUs, one that waits for its turn is at work too.
func (r *rank) computing(now time.Duration, o *Options) bool {
	if r.now.State.Halted() {
		return false
	}
	if r.movedNow || now-r.baseAt < 2*o.Interval {
		return true
	}
	return r.awakeShare(now) >= computes
}

// facts of the rank for a record.
func (r *rank) facts(now time.Duration, o *Options) RankFacts {
	f := RankFacts{
		LastSentAge: r.lastSent, LastReceivedAge: r.lastReceived, State: r.now.State, UsualPhase: Unknown,
		CPUShare: share(r.now.CPU, r.cpu, now-r.baseAt), MainCPUShare: r.mainShare(now),
	}
	if r.job.phases.known(o) {
		f.UsualPhase = r.job.phases.usual(o)
	}
	return f
}
