package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Counters are what the tracker holds and what it had no room for.
type Counters struct {
	Sockets, Ranks, Jobs, Open int // now

	SocketsSkipped uint64 // sockets beyond Options.MaxSockets, once a snapshot
	StallsDropped  uint64 // stalls beyond Options.MaxStalls, once a snapshot
	PeersFolded    uint64 // pairs of job and peer beyond Options.MaxPeers
	ChangesDropped uint64 // refusals beyond what is remembered
}

// clock is the time of the tracker. It stops while nobody looks.
type clock struct {
	at    time.Time     // of the last snapshot
	now   time.Duration // its time on this clock
	last  time.Duration // of the snapshot before
	round uint64        // number of the snapshot
	tick  time.Duration // how exact ages of data are
	told  time.Duration // tick of the kernel's clock, 0 not known
}

// advance moves the clock. A gap of more than two intervals is time in which
// nobody looked (a suspended machine, a starved agent): it ages nobody.
func (c *clock) advance(at time.Time, interval time.Duration) {
	step := interval
	if c.round > 0 {
		step = min(max(0, at.Sub(c.at)), 2*interval)
	}
	c.round++
	c.at, c.last, c.now = at, c.now, c.now+step
}

// since is the moment that lies age before the snapshot, but after the one before;
// an age below zero is not known.
func (c *clock) since(age time.Duration) time.Duration {
	if age < 0 {
		return c.now
	}
	return max(c.last, c.now-age)
}

// Tracker follows the sockets of the ranks of this node from snapshot to
// snapshot. It is not safe for concurrent use.
type Tracker struct {
	o Options
	clock
	ranks    ranks
	jobs     jobs
	sockets  sockets
	traffic  traffic
	refused  refused
	partings partings
	missed   bool                   // what happened before this snapshot is not known
	missedAt time.Time              // the last that was so
	open     map[stallKey]*stall    // gone when they end
	places   fairlru.List[stallKey] // of those that are open

	recalled map[identity.Born]Memory // processes that a tracker before this knew, until they are seen

	counters Counters
}

// New makes a tracker.
func New(o Options) *Tracker {
	return &Tracker{
		o: o, ranks: ranks{}, jobs: jobs{of: map[jobKey]*job{}}, sockets: newSockets(&o), traffic: newTraffic(o.MaxPeers),
		refused: refused{of: map[target]*fairlru.Element[*refusals]{}}, open: map[stallKey]*stall{}, partings: partings{of: map[identity.Born]*fairlru.Element[*parted]{}}, missed: true, recalled: map[identity.Born]Memory{},
	}
}

// Counters returns the counters as of the last snapshot.
func (t *Tracker) Counters() Counters {
	c := t.counters
	c.Sockets, c.Ranks, c.Jobs, c.Open = len(t.sockets.byCookie), len(t.ranks), len(t.jobs.of), len(t.open)
	c.SocketsSkipped, c.PeersFolded = t.sockets.skipped, t.traffic.folded
	return c
}

// Undecided reports whether it would help to know the libraries of a process.
func (t *Tracker) Undecided(pid uint32) bool {
	r := t.ranks[pid]
	return r != nil && r.undecided
}

// A rank that has rested for longRest is looked into in two of restingRounds rounds: a job
// may hang for hours, and a rank that goes on moves data in the end.
const (
	longRest      = 30 * time.Second
	restingRounds = 10
)

// Wanted reports whether it would help to look into the process tree of a rank: it is
// silent for longer than usual. Under a launch script that has the rank in its environment the
// process with the sockets is one that the script started.
func (t *Tracker) Wanted(pid uint32) bool {
	r := t.ranks[pid]
	if r == nil || r.job == nil || r.movedNow || !r.collectiveNow && (r.now.Inherited || r.standing == forever) {
		return false
	}
	since := min(r.job.moved, r.standing)
	if since <= never {
		return false
	}
	switch {
	case r.now.State == socketstall.DiskSleep, r.now.State == socketstall.Frozen: // a file, or a freezer
		return t.now-since >= t.o.Interval/2
	case r.judged() && r.atRest(t.now) > longRest && t.round%restingRounds >= 2:
		return false
	}
	return t.now-since >= max(t.o.Interval/2, r.job.phases.usual(r.now.Rank, socketstall.Idle, t.now, &t.o))
}

// Watched are the jobs whose data moved over sockets in the last snapshot: at first, when all ranks have moved
// theirs, and again after a while.
func (t *Tracker) Watched() []Watched { return t.jobs.watched(&t.clock) }

// Joined are the processes that were not seen before to take part in the collectives of their job.
func (t *Tracker) Joined() (fresh []identity.Process) {
	for _, r := range t.ranks {
		if !r.joined && r.joins() {
			r.joined = true
			fresh = append(fresh, r.now.Process)
		}
	}
	return fresh
}

// Silent are the processes of ranks whose job waits, and since when: its data moves nowhere.
func (t *Tracker) Silent() map[uint32]time.Time {
	silent := map[uint32]time.Time{}
	for key, s := range t.open {
		if e := &s.last; e.Cause == socketstall.Waiting {
			if at, known := silent[key.pid]; !known || e.Time.Add(-e.Age).After(at) {
				silent[key.pid] = e.Time.Add(-e.Age)
			}
		}
	}
	return silent
}

// Observe takes the next snapshot and returns the stalls that began, are due
// for repetition, changed or ended. Data flows one way: processes, their sockets,
// what these are for and moved, what that says of ranks and jobs, what is wrong,
// what is new of it.
func (t *Tracker) Observe(r *Round) []Event {
	t.advance(r.Time, t.o.Interval)
	t.told, t.tick = r.Tick, socketstall.Tick(r.Tick)
	t.jobs.take(t.ranks.take(r.Processes, t.recalled, &t.partings, &t.clock), &t.clock)
	skipped := t.sockets.skipped
	seen := t.sockets.take(r.Sockets, t.ranks, &t.clock)
	if t.missed || r.Partial || t.sockets.skipped > skipped {
		t.missed, t.missedAt = false, r.Time
	}
	decide(seen)
	t.traffic.take(seen, t.round)
	t.ranks.look(seen, &t.clock)
	t.jobs.learn(seen, &t.clock, &t.o)
	events := t.book(t.judge(seen))
	t.traffic.stand(t.open, &t.clock)
	for _, gone := range t.jobs.forget(&t.clock, &t.o) {
		t.traffic.forget(gone)
	}
	for _, gone := range t.partings.of {
		t.vouch(gone.Value.of)
	}
	t.partings.unblamed = true
	return events
}
