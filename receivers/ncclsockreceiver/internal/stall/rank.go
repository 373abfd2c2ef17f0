package stall

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// never is before any time of the tracker's clock.
const never = time.Duration(math.MinInt64 / 2)

// forever is after any.
const forever = time.Duration(math.MaxInt64 / 2)

// ranks are the rank processes of this node by pid; one is gone when a snapshot
// lacks it.
type ranks map[uint32]*rank

// take takes the processes of this snapshot and returns their ranks in order.
func (rs ranks) take(processes map[uint32]Process, recalled map[identity.Born]Memory, partings *partings, c *clock) []*rank {
	all := make([]*rank, 0, len(processes))
	for pid, p := range processes {
		r := rs[pid]
		if r == nil || restarted(&r.now, &p) {
			if r != nil && r.joins() {
				partings.outlive(r, c.now)
			}
			r = &rank{sockets: map[uint64]*socket{}, moved: never, metAt: c.now, met: c.at, baseAt: c.now, cpu: p.CPU, mainCPU: p.MainCPU, now: p, haltedAt: never}
			r.work = work{last: c.now, how: socketstall.Idle}
			m, known := recalled[p.Born()]
			r.known, r.movedBefore = known, m.Moved
			if m.Takes {
				r.taken = takesOnly
			}
			delete(recalled, p.Born())
			rs[pid] = r
		}
		r.begin(p, c)
		all = append(all, r)
	}
	for pid, r := range rs {
		if r.round != c.round {
			if r.job != nil && r.collectiveNow {
				r.job.tainted = c.now // what it ends is no pause
			}
			if !r.parting.told && !r.kept && r.joins() {
				partings.add(&parted{r.now.Process, r, c.now + ended})
			}
			if r.joins() {
				partings.outlive(r, c.now)
			}
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
func (rs ranks) look(seen []*socket, c *clock) {
	for _, s := range seen {
		if s.joins() {
			if s.now.State == established {
				s.rank.open++
			}
			s.rank.halfClosed = s.rank.halfClosed || s.now.State == ncclsock.CloseWait
		}
		switch {
		case s.kind.Collective():
			s.rank.look(s, c)
			s.rank.carry(s)
		case s.kind == socketstall.Bootstrap, s.kind == socketstall.Proxy:
			s.rank.communicates = true
		case s.kind == socketstall.Other:
			s.rank.ask(s)
			s.rank.elsewhere += s.change.sent + s.change.received
		}
		if since, is := s.unread(); is && s.kind != socketstall.Other {
			s.rank.standing = min(s.rank.standing, since)
		}
	}
	for _, r := range rs {
		r.turn()
	}
}

// rank is one process of a rank over time.
type rank struct {
	now   Process
	job   *job
	round uint64

	moved time.Duration // data last moved on one of its collective sockets
	metAt time.Duration // when it was first seen
	met   time.Time     // the same
	moves bool          // data has moved on a collective socket since

	known, movedBefore bool // a tracker before this knew it, and that it had moved data

	communicates bool // it has had sockets of a communicator, whose data may go another way
	joined       bool // it was told that it takes part in its job

	sockets    map[uint64]*socket // that it has, and lately had
	open       int                // connections to its job
	halfClosed bool               // it has one that the far end has closed, as of the last snapshot
	lostAt     time.Time          // when the far end of one last closed it, or it failed
	parting    parting

	endedAt  time.Time // when it failed; zero while it lives, or where it ended well
	brokenAt time.Time // when the far end of any connection last closed it, or it failed, or nobody heard how it ended
	passedAt time.Time // of the snapshot in which a process that it had started still holds one
	kept     bool      // that it lost none was told

	losses []loss    // connections of its job that it has lost, the first ones
	gaveAt time.Time // when it last closed one that stood, and had lost none
	fate   fate
	victim bool // it failed, and may have died of a loss
	traced bool // who closed it was looked for
	// forgiven: what it had lost is forgotten. It is gone.
	forgiven bool

	haltedAt time.Duration // the last snapshot before it was halted; never if it was when it was met

	// What it had used of the CPU in the snapshot in which it last moved.
	baseAt       time.Duration
	cpu, mainCPU time.Duration

	lines         map[netip.Addr]*Line // what it moved, by local address; nil before it did
	before        activity.Usage       // in the snapshot before
	work          work
	elsewhere     uint64        // bytes moved since then on sockets that are none of the job's
	served        time.Duration // when it last read from a socket of its store
	standing      time.Duration // since when it has left bytes unread
	movedNow      bool
	lastSent      time.Duration // ages of this snapshot; negative: never
	lastReceived  time.Duration
	request       *socket       // none of the job's, on which it waits for an answer; of several the one that it used last
	asked         time.Duration // age of what it last sent to a rank of its job, and
	askedOutside  time.Duration // to a process of this node that is none: both by Gloo
	collectiveNow bool          // it has collective sockets
	undecided     bool          // of some of them only its libraries tell which

	tick         time.Duration // how exact those ages are
	gives, takes bool          // it has sent data since the snapshot before, and received some
	taken        int           // snapshots in which it took, since it last gave
}

// takesOnly is in how many snapshots a rank receives data and sends none until it is known only to receive: the last
// stage of a pipeline that runs one way has sent a handshake, or the data of a first step. What it receives it does not
// answer, and so it owes nothing.
const takesOnly = 10

// onlyTakes reports whether a rank only receives.
func (r *rank) onlyTakes() bool { return r.taken >= takesOnly }

// turn counts the snapshots in which it received data and sent none. What one that only receives sent once says nothing.
func (r *rank) turn() {
	switch {
	case r.gives:
		r.taken = 0
	case r.takes:
		r.taken++
	}
	if r.onlyTakes() {
		r.lastSent = Unknown
	}
}

// isNew reports whether this snapshot is the first that has it.
func (r *rank) isNew(c *clock) bool { return r.metAt == c.now && !r.known }

// hasMoved reports whether it has moved data of its job.
func (r *rank) hasMoved() bool { return r.movedBefore || r.moved != never }

// joins reports whether it takes part in the collectives of its job.
func (r *rank) joins() bool { return r.communicates || r.hasMoved() }

// begin starts a snapshot.
func (r *rank) begin(p Process, c *clock) {
	if p.State.Halted() && !r.now.State.Halted() {
		r.haltedAt = c.last
	}
	r.before = r.now.Usage()
	r.now, r.round, r.tick, r.gives, r.takes = p, c.round, c.tick, false, false
	r.undecided, r.elsewhere, r.standing = false, 0, forever
	r.open, r.halfClosed = 0, false
	r.movedNow, r.collectiveNow, r.lastSent, r.lastReceived = false, false, Unknown, Unknown
	r.asked, r.askedOutside, r.request = Unknown, Unknown, nil
}

// look takes what a collective socket of the rank says.
func (r *rank) look(s *socket, c *clock) {
	r.collectiveNow = true
	r.undecided = r.undecided || s.guessed
	r.gives, r.takes = r.gives || s.change.recent && s.change.sent > 0, r.takes || s.change.recent && s.change.received > 0
	r.lastSent = newest(r.lastSent, s.now.LastSentAge)
	r.lastReceived = newest(r.lastReceived, s.now.LastReceivedAge)
	switch {
	case s.kind != socketstall.Gloo:
	case s.far == Unknown:
		r.askedOutside = newest(r.askedOutside, s.now.LastSentAge)
	default:
		r.asked = newest(r.asked, s.now.LastSentAge)
	}
	if s.change.moved {
		r.moved = max(r.moved, s.moved)
	}
	r.movedNow = r.movedNow || s.change.recent
	r.moves = r.moves || s.change.recent && r.met.Before(c.at)
}

// waitsOutside reports whether the rank waits for a process that is none of its job, all of which is on this node: an engine
// that generates, a parameter server. Gloo asks a rank before it sends or receives: whom a rank asked last it waits for
// (gloo/transport/tcp/unbound_buffer.cc). One that it asked as late as a rank may be meant.
func (r *rank) waitsOutside() bool {
	return r.askedOutside >= 0 && (r.asked < 0 || r.askedOutside-r.asked <= r.tick) && r.now.WorldSize > 1 && !r.job.beyond()
}

// ask takes a socket of the rank that is none of its job's: something was sent on it, has arrived, and was not answered.
func (r *rank) ask(s *socket) {
	n := &s.now
	if n.State != ncclsock.Established || n.LastSentAge < 0 || n.ReceiveQueueBytes > 0 || outgoing(n) > 0 ||
		n.LastReceivedAge >= 0 && n.LastReceivedAge-n.LastSentAge <= r.tick {
		return
	}
	if r.request == nil || n.LastSentAge < r.request.now.LastSentAge {
		r.request = s
	}
}

// forAnswers are the system calls in which a thread waits for data of a socket, or for another thread that does.
var forAnswers = map[string]bool{
	"read": true, "readv": true, "recvfrom": true, "recvmsg": true, "poll": true, "ppoll": true, "select": true, "pselect6": true,
	"epoll_wait": true, "epoll_pwait": true, "epoll_pwait2": true, "futex": true,
}

// awaits is the process of no rank for whose answer the rank waits: it has asked that one since it fell silent, over a connection
// that it opened for that, or on which it was answered before. Who logs to another process waits for none. Not valid for none.
func (r *rank) awaits(now time.Duration) (none netip.AddrPort) {
	in, s := r.work.inside, r.request
	if s == nil || in == nil || in.Pauses || !forAnswers[in.Syscall] {
		return none
	}
	since := now - max(r.job.moved, r.moved) + time.Second
	if opened := now-s.began <= since || s.now.Age >= 0 && s.now.Age <= since; s.now.LastSentAge > since || !opened && s.now.BytesReceived == 0 {
		return none
	}
	return s.now.Remote
}

// halted reports whether the rank has been unable to go on for long.
func (r *rank) halted(now time.Duration, o *Options) bool {
	if r.now.Ending {
		return now-max(r.haltedAt, r.metAt) >= activity.Ending
	}
	return r.now.State.Halted() && now-r.haltedAt >= o.halted()
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

// facts of the rank for a record.
func (t *Tracker) facts(r *rank) RankFacts {
	now, o := t.now, &t.o
	f := RankFacts{
		LastSentAge: r.lastSent, LastReceivedAge: r.lastReceived, Tick: t.told, State: r.now.State, UsualPhase: Unknown,
		CPUShare: share(r.now.CPU, r.cpu, now-r.baseAt), MainCPUShare: r.mainShare(now),
		Awaits: r.awaits(now), Activity: r.activity(now, o), Rest: r.atRest(now), Watched: now - r.metAt, Silence: t.silence(r), Inside: r.work.inside,
	}
	if p := &r.job.phases; p.known(o) {
		f.UsualPhase = p.usual(r.now.Rank, cmp.Or(f.Activity, socketstall.Idle), now, o)
	}
	return f
}
