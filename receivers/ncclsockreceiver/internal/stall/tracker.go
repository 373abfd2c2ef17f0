package stall

import (
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
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

// Tracker follows the sockets of the ranks of this node from snapshot to
// snapshot. It is not safe for concurrent use.
type Tracker struct {
	o     Options
	at    time.Time     // of the last snapshot
	now   time.Duration // its time on the tracker's clock, which stops while nobody looks
	last  time.Duration // of the snapshot before
	round uint64

	sockets map[uint64]*socket   // by cookie; gone when two snapshots lack it
	pairs   map[pair]*socket     // the same by address, to find the other end
	ports   map[portKey]int      // how many sockets share one end
	ranks   map[uint32]*rank     // by pid; gone when a snapshot lacks it
	jobs    map[jobKey]*job      // gone an hour after their last rank
	open    map[stallKey]*stall  // gone when they end
	refused map[target]*refusals // gone some seconds after the last
	traffic traffic

	counters Counters
}

// New makes a tracker.
func New(o Options) *Tracker {
	return &Tracker{
		o: o, sockets: map[uint64]*socket{}, pairs: map[pair]*socket{}, ports: map[portKey]int{}, ranks: map[uint32]*rank{},
		jobs: map[jobKey]*job{}, open: map[stallKey]*stall{}, refused: map[target]*refusals{}, traffic: newTraffic(o.MaxPeers),
	}
}

// Counters returns the counters as of the last snapshot.
func (t *Tracker) Counters() Counters {
	c := t.counters
	c.Sockets, c.Ranks, c.Jobs, c.Open = len(t.sockets), len(t.ranks), len(t.jobs), len(t.open)
	c.PeersFolded = t.traffic.folded
	return c
}

// Undecided reports whether it would help to know the libraries of a process.
func (t *Tracker) Undecided(pid uint32) bool {
	r := t.ranks[pid]
	return r != nil && r.undecided
}

// Observe takes the next snapshot and returns the stalls that began, are due
// for repetition, changed or ended.
func (t *Tracker) Observe(r *Round) []Event {
	t.advance(r.Time)
	t.takeProcesses(r.Processes)
	t.takeSockets(r.Sockets)
	for _, j := range t.jobs {
		if j.round == t.round {
			j.learn(t.last, t.now, &t.o)
		}
	}
	t.forget()
	return t.book(t.judge())
}

// advance moves the tracker's clock. A gap of more than two intervals is time in
// which nobody looked (a suspended machine, a starved agent): it ages nobody.
func (t *Tracker) advance(at time.Time) {
	step := t.o.Interval
	if t.round > 0 {
		step = min(max(0, at.Sub(t.at)), 2*t.o.Interval)
	}
	t.round++
	t.at, t.last, t.now = at, t.now, t.now+step
}

// takeProcesses takes the ranks of this snapshot and sorts them into jobs.
func (t *Tracker) takeProcesses(processes map[uint32]Process) {
	for pid, p := range processes {
		r := t.ranks[pid]
		if r == nil || restarted(&r.now, &p) {
			r = &rank{moved: never, baseAt: t.now, cpu: p.CPU, mainCPU: p.MainCPU, delayed: p.Delayed}
			t.ranks[pid] = r
		}
		r.begin(p, t.round)
		t.assign(r)
	}
	for _, j := range t.jobs {
		if j.round == t.round {
			sortRanks(j.ranks)
		}
	}
}

// restarted reports whether a pid is another process's now. Start times may be
// cut to a tick and lie on a wall clock that is slewed.
func restarted(before, now *Process) bool {
	return now.StartTime.Sub(before.StartTime).Abs() > time.Second
}

func (t *Tracker) assign(r *rank) {
	key := keyOf(&r.now.Process)
	j := t.jobs[key]
	if j == nil {
		j = &job{id: r.now.JobID, moved: never, tainted: never}
		t.jobs[key] = j
	}
	if j.round != t.round {
		j.round, j.seen, j.ranks, j.halted, j.accused = t.round, t.now, j.ranks[:0], false, false
	}
	r.job = j
	j.ranks = append(j.ranks, r)
}

// takeSockets updates what is known of each socket.
func (t *Tracker) takeSockets(sockets []ncclsock.Socket) {
	for i := range sockets {
		next := &sockets[i]
		r := t.ranks[next.PID]
		if r == nil || r.round != t.round || next.State == ncclsock.Listen {
			continue
		}
		s := t.sockets[next.Cookie]
		switch {
		case s == nil && len(t.sockets) >= t.o.MaxSockets:
			t.counters.SocketsSkipped++
			continue
		case s == nil:
			t.meet(next, r)
			continue
		case s.rank != r, pairOf(next) != pairOf(&s.now):
			// Another process has it now; or it just began to connect when it was
			// met, and had no port yet: tcp_v4_connect (net/ipv4/tcp_ipv4.c) sets
			// the state first.
			t.unlink(s)
			t.meet(next, r)
			continue
		}
		t.follow(s, next)
	}
}

// follow takes the next snapshot of a known socket.
func (t *Tracker) follow(s *socket, next *ncclsock.Socket) {
	t.traffic.count(s, next)
	s.learnKind(next.Handshake)
	c := s.update(next, t.last, t.now)
	s.round = t.round
	kind := s.resolve()
	if s.series == nil {
		t.traffic.meet(s, true)
	}
	if kind.Collective() {
		s.rank.look(s, c.moved)
	}
	if c.freed && !kind.Service() && kind != socketstall.Other {
		s.rank.job.ended(c.stood, t.last, &t.o)
	}
}

// meet takes a socket that was not known.
func (t *Tracker) meet(next *ncclsock.Socket, r *rank) {
	age := newest(next.LastSentAge, next.LastReceivedAge)
	s := &socket{rank: r, round: t.round, began: t.now, moved: t.now, readAt: t.now, ackedAt: t.now}
	if age >= 0 {
		s.moved = t.now - age
	}
	s.take(next)
	t.link(s)
	s.kind = kindByPort(next, r.now.MasterPort)
	s.learnKind(next.Handshake)
	s.between = s.peer != nil && strangers(r, s.peer.rank) || s.peer == nil && t.ranksPorts(next)
	t.traffic.meet(s, t.round == 1)
	if s.resolve().Collective() {
		r.look(s, age >= 0)
		r.movedNow = r.movedNow && age <= t.now-t.last
	}
}

// strangers reports whether two processes are of different ranks. The processes
// of one rank (a loader and its workers) talk about other things.
func strangers(a, b *rank) bool { return a.job != b.job || a.now.Rank != b.now.Rank }

// ranksPorts reports whether the kernel chose both ports.
func (t *Tracker) ranksPorts(s *ncclsock.Socket) bool {
	return s.Local.Port() >= t.o.RankPortsFrom && s.Remote.Port() >= t.o.RankPortsFrom
}

// portKey is one end of the sockets of a process: where it listens for a host,
// or where it connects to. The sockets of a stripe share one.
type portKey struct {
	pid   uint32
	kind  socketstall.Direction // Receive: our port, Send: the peer's
	peer  netip.Addr
	port  uint16
	netns uint64
}

func accepting(s *socket) portKey {
	return portKey{pid: s.rank.now.PID, kind: socketstall.Receive, peer: s.now.Remote.Addr(), port: s.now.Local.Port(), netns: s.now.NetNS}
}

func connecting(s *socket) portKey {
	return portKey{pid: s.rank.now.PID, kind: socketstall.Send, peer: s.now.Remote.Addr(), port: s.now.Remote.Port(), netns: s.now.NetNS}
}

// link puts s into the indices and finds its other end.
func (t *Tracker) link(s *socket) {
	t.sockets[s.now.Cookie] = s
	t.ports[accepting(s)]++
	t.ports[connecting(s)]++
	p := pairOf(&s.now)
	t.pairs[p] = s
	if other := t.pairs[p.turned()]; other != nil && other != s {
		s.peer, other.peer = other, s
		other.between = strangers(s.rank, other.rank)
	}
}

// unlink takes s out of the indices.
func (t *Tracker) unlink(s *socket) {
	delete(t.sockets, s.now.Cookie)
	for _, key := range [...]portKey{accepting(s), connecting(s)} {
		if t.ports[key]--; t.ports[key] <= 0 {
			delete(t.ports, key)
		}
	}
	if p := pairOf(&s.now); t.pairs[p] == s {
		delete(t.pairs, p)
	}
	if s.peer != nil && s.peer.peer == s {
		s.peer.peer = nil
	}
	s.peer = nil
}

// forget drops what is gone. A socket may be missing once: a process whose
// descriptors could not be read has them still.
func (t *Tracker) forget() {
	for _, s := range t.sockets {
		if t.round-s.round >= 2 || s.rank.round != t.round {
			t.unlink(s)
		}
	}
	for pid, r := range t.ranks {
		if r.round != t.round {
			delete(t.ranks, pid)
		}
	}
	for key, j := range t.jobs {
		if t.now-j.seen > t.o.PhaseMemory {
			delete(t.jobs, key)
			t.traffic.forget(j.id)
		}
	}
}
