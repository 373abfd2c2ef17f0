package stall

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// sockets are those of the ranks of this node.
type sockets struct {
	most      int    // watched at a time
	portsFrom uint16 // ports that the kernel chooses begin here

	byCookie map[uint64]*socket // gone when two snapshots lack it
	lately   lately             // connections of ranks that are gone: how they ended may be heard later
	pairs    map[pair]*socket   // the same by job and address, to find the other end
	ports    map[portKey]int    // how many sockets share one end
	skipped  uint64
}

func newSockets(o *Options) sockets {
	return sockets{most: o.MaxSockets, portsFrom: o.RankPortsFrom, byCookie: map[uint64]*socket{}, lately: lately{of: map[uint64]*fairlru.Element[*socket]{}}, pairs: map[pair]*socket{}, ports: map[portKey]int{}}
}

// take updates what is known of each socket, and returns those of the snapshot in
// its order.
func (ss *sockets) take(snapshot []ncclsock.Socket, ranks map[uint32]*rank, c *clock) []*socket {
	seen := make([]*socket, 0, len(snapshot))
	ss.make(snapshot, c)
	for i := range snapshot {
		next := &snapshot[i]
		r := ranks[next.PID]
		if r == nil || r.round != c.round || next.State == ncclsock.Listen {
			continue
		}
		s := ss.byCookie[next.Cookie]
		switch {
		case s == nil && len(ss.byCookie) >= ss.most:
			ss.skipped++
			continue
		case s == nil:
			s = ss.meet(next, r, c)
		case s.rank != r, pairOf(r.job, next) != s.pair:
			// Another process has it now; or it just began to connect when it was
			// met, and had no port yet: tcp_v4_connect (net/ipv4/tcp_ipv4.c) sets
			// the state first. Or it has become known whose job its rank is of.
			if s.rank != r {
				s.passes(next, c)
			}
			ss.unlink(s)
			s = ss.meet(next, r, c)
		default:
			again := s.round == c.round
			s.update(next, c)
			if again {
				continue
			}
		}
		seen = append(seen, s)
	}
	ss.forget(c)
	return slices.DeleteFunc(seen, func(s *socket) bool { return ss.byCookie[s.now.Cookie] != s })
}

// make makes room for a snapshot, in which processes have shared it already. Sockets that it lacks
// give way, those of the process that lacks most first: it makes them come and go.
func (ss *sockets) make(snapshot []ncclsock.Socket, c *clock) {
	if len(ss.byCookie)+len(snapshot) <= ss.most {
		return
	}
	there, fresh := make(map[uint64]bool, len(snapshot)), 0
	for i := range snapshot {
		cookie := snapshot[i].Cookie
		if !there[cookie] && ss.byCookie[cookie] == nil {
			fresh++
		}
		there[cookie] = true
	}
	missing := map[uint32][]*socket{}
	for cookie, s := range ss.byCookie {
		if !there[cookie] {
			missing[s.rank.now.PID] = append(missing[s.rank.now.PID], s)
		}
	}
	most := func(a, b uint32) int { return cmp.Or(len(missing[b])-len(missing[a]), cmp.Compare(a, b)) }
	for _, pid := range slices.SortedFunc(maps.Keys(missing), most) {
		for _, s := range missing[pid] {
			if len(ss.byCookie)+fresh > ss.most {
				ss.unlink(s)
				s.vanishes(c)
			}
		}
	}
}

// meet takes a socket that was not known.
func (ss *sockets) meet(next *ncclsock.Socket, r *rank, c *clock) *socket {
	s := newSocket(next, r, c)
	ss.link(s)
	s.between = s.peer != nil && strangers(r, s.peer.rank) || s.peer == nil && ss.ranksPorts(next)
	return s
}

// strangers reports whether two processes of a job are of different ranks. The processes
// of one rank (a loader and its workers) talk about other things.
func strangers(a, b *rank) bool { return a.now.Rank != b.now.Rank }

// ranksPorts reports whether the kernel chose both ports.
func (ss *sockets) ranksPorts(s *ncclsock.Socket) bool {
	return s.Local.Port() >= ss.portsFrom && s.Remote.Port() >= ss.portsFrom
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

// pair is a connection of a job seen from one end. On loopback addresses repeat from one
// network namespace to the next. So may all others: who has a namespace of his own gives
// himself any address there. The ranks of one job do not lie to each other.
type pair struct {
	job           *job
	local, remote netip.AddrPort
	netns         uint64
}

func pairOf(j *job, s *ncclsock.Socket) pair {
	p := pair{job: j, local: plain(s.Local), remote: plain(s.Remote)}
	if p.local.Addr().IsLoopback() || p.remote.Addr().IsLoopback() {
		p.netns = s.NetNS
	}
	return p
}

func (p pair) turned() pair {
	return pair{job: p.job, local: p.remote, remote: p.local, netns: p.netns}
}

// plain makes an IPv4 address of one that is mapped into IPv6.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// link puts s into the indices and finds its other end.
func (ss *sockets) link(s *socket) {
	ss.byCookie[s.now.Cookie], s.rank.sockets[s.now.Cookie] = s, s
	ss.ports[accepting(s)]++
	ss.ports[connecting(s)]++
	s.pair = pairOf(s.rank.job, &s.now)
	ss.pairs[s.pair] = s
	if other := ss.pairs[s.pair.turned()]; other != nil && other != s {
		s.peer, other.peer = other, s
		s.other, other.other = other, s
		s.meetRank(other.rank)
		other.meetRank(s.rank)
		other.between = strangers(s.rank, other.rank)
	}
}

// meetRank notes who is at the other end.
func (s *socket) meetRank(far *rank) { s.farPID, s.far = far.now.PID, far.now.Rank }

// unlink takes s out of the indices.
func (ss *sockets) unlink(s *socket) {
	delete(ss.byCookie, s.now.Cookie)
	delete(s.rank.sockets, s.now.Cookie)
	for _, key := range [...]portKey{accepting(s), connecting(s)} {
		if ss.ports[key]--; ss.ports[key] <= 0 {
			delete(ss.ports, key)
		}
	}
	if ss.pairs[s.pair] == s {
		delete(ss.pairs, s.pair)
	}
	if s.peer != nil && s.peer.peer == s {
		s.peer.peer = nil
	}
	s.peer = nil
}

// Where the machine is busy, a change of a socket is heard seconds after it.
const (
	heardFor   = 10 * time.Second
	maxLately  = 8192
	roundsGone = 2 // a socket may be missing once: a process whose descriptors could not be read has them still
)

// forget drops what is gone. The last of it that is heard may come later.
func (ss *sockets) forget(c *clock) {
	for _, s := range ss.byCookie {
		if c.round-s.round < roundsGone && s.rank.round == c.round {
			continue
		}
		ss.unlink(s)
		if s.kind == socketstall.Other {
			s.vanishes(c)
			continue
		}
		ss.lately.add(s, c)
		if _, there := ss.lately.of[s.now.Cookie]; there {
			s.rank.sockets[s.now.Cookie] = s
		}
	}
	for ss.lately.order.Len() > 0 && c.now-ss.lately.order.Oldest().goneAt > heardFor {
		ss.lately.drop(ss.lately.order.Oldest(), c)
	}
}

// lately are connections that are gone. Domains and their processes share the room: those of one may come and go without end.
type lately struct {
	of    map[uint64]*fairlru.Element[*socket]
	order fairlru.List[*socket]
}

func (l *lately) add(s *socket, c *clock) {
	l.forget(s)
	s.goneAt = c.now
	l.of[s.now.Cookie] = l.order.Add(s, fairlru.Little, s.rank.now.Domain, strconv.FormatUint(uint64(s.rank.now.PID), 10))
	if l.order.Len() > maxLately {
		victim, _ := l.order.Victim()
		l.drop(victim.Value, c)
	}
}

// drop takes one out whose end is not waited for any more.
func (l *lately) drop(s *socket, c *clock) {
	l.forget(s)
	delete(s.rank.sockets, s.now.Cookie)
	s.vanishes(c)
}

func (l *lately) forget(s *socket) {
	if e := l.of[s.now.Cookie]; e != nil {
		l.order.Remove(e)
		delete(l.of, s.now.Cookie)
	}
}

// of is the socket that a change is of, nil where none of a rank is known.
func (ss *sockets) of(c *ncclsock.Change) *socket {
	if s := ss.byCookie[c.Cookie]; s != nil {
		return s
	}
	if e := ss.lately.of[c.Cookie]; e != nil {
		return e.Value
	}
	return nil
}
