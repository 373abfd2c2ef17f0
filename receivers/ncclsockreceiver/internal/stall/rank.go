package stall

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// never is before any time of the tracker's clock.
const never = time.Duration(math.MinInt64 / 2)

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
func (r *rank) look(s *socket, moved bool) {
	r.collectiveNow = true
	r.undecided = r.undecided || s.kind == undecided
	r.lastSent = newest(r.lastSent, s.now.LastSentAge)
	r.lastReceived = newest(r.lastReceived, s.now.LastReceivedAge)
	if moved {
		r.movedNow = true
		r.moved = max(r.moved, s.moved)
	}
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

// jobKey tells jobs apart, those without an id by their store.
type jobKey struct {
	id, master  string
	port, world int
}

func keyOf(p *identity.Process) jobKey {
	if p.JobID != "" {
		return jobKey{id: p.JobID}
	}
	return jobKey{master: p.MasterAddr, port: p.MasterPort, world: p.WorldSize}
}

// job is the ranks of one job on this node.
type job struct {
	id      string
	phases  phases
	ranks   []*rank // of this snapshot
	round   uint64
	seen    time.Duration
	moved   time.Duration // data last moved on a collective socket of any rank
	halted  bool          // a rank is stopped, in this snapshot
	accused bool          // a stall with another cause than waiting is open
	waiting bool          // its ranks are told to wait, until data moves
	tainted time.Duration // when last a process was halted or the network failed
}

// suspect is the rank that fell silent first: whose last data is the oldest. One
// that only ever receives goes by what it received.
func (j *job) suspect() *rank {
	var first *rank
	oldest := time.Duration(Unknown)
	for _, r := range j.ranks {
		age := r.lastSent
		if age < 0 {
			age = r.lastReceived
		}
		if age > oldest {
			first, oldest = r, age
		}
	}
	return first
}

// learn takes the silences that ended in this snapshot and starts
// to measure the next. last is the time of the snapshot before.
func (j *job) learn(last, now time.Duration, o *Options) {
	moved := false
	for _, r := range j.ranks {
		j.moved = max(j.moved, r.moved)
		if !r.movedNow {
			continue
		}
		moved = true
		j.ended(r.movedBefore, last, o)
		r.baseAt, r.cpu, r.mainCPU, r.delayed = now, r.now.CPU, r.now.MainCPU, r.now.Delayed
	}
	if moved {
		j.phases.moved(now, o)
		j.waiting = false
	}
}

// ended notes that something which stood since from moved again after the
// snapshot before, which was at last. What was halted or cut off is no phase.
func (j *job) ended(from, last time.Duration, o *Options) {
	if from > never && last-from >= o.Interval && (j.tainted == never || j.tainted < from) {
		j.phases.silence(from, last, o)
	}
}

func byRank(a, b *rank) int {
	return cmp.Or(cmp.Compare(a.now.Rank, b.now.Rank), cmp.Compare(a.now.PID, b.now.PID))
}

func sortRanks(ranks []*rank) { slices.SortFunc(ranks, byRank) }
