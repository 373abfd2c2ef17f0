package stall

import (
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// socket is one socket over time. Times are of the tracker's clock.
type socket struct {
	now   ncclsock.Socket // as of the last snapshot that had it
	round uint64          // number of that snapshot
	rank  *rank
	peer  *socket          // the other end, when it is on this node
	kind  socketstall.Kind // undecided: see resolve
	errno int32            // that it reported

	between bool    // it joins two ranks
	series  *Series // where its traffic is counted, nil when nowhere

	began    time.Duration // first seen
	moved    time.Duration // bytes last moved, in any direction
	readAt   time.Duration // when it was last read, or had nothing to read
	ackedAt  time.Duration // when data was last acknowledged, or there was none to be
	timeouts bool          // enough retransmit timeouts in a row
}

// change is what happened to a socket between two snapshots.
type change struct {
	moved bool          // bytes did, in any direction
	freed bool          // a queue that had stood moved again
	stood time.Duration // since when it had
}

// update takes the next snapshot of the socket.
func (s *socket) update(next *ncclsock.Socket, last, now time.Duration) (c change) {
	before := s.now
	read, acked := next.BytesRead > before.BytesRead, next.BytesAcked > before.BytesAcked
	c.moved = read || acked || next.BytesReceived > before.BytesReceived || next.BytesSent > before.BytesSent
	if c.moved {
		s.moved = refine(last, now, newest(next.LastSentAge, next.LastReceivedAge))
	}
	c.queue(&s.readAt, queue{before.ReceiveQueueBytes, next.ReceiveQueueBytes, read}, refine(last, now, next.LastReceivedAge), now)
	c.queue(&s.ackedAt, queue{outgoing(&before), outgoing(next), acked}, refine(last, now, next.LastSentAge), now)
	s.take(next)
	return c
}

// queue is one queue of a socket in two snapshots.
type queue struct {
	before, after uint32 // bytes in it
	drained       bool   // bytes left it between the two
}

// queue moves at, the moment since which a queue stands, and notes what had
// stood until now. filled is when bytes last came into it.
func (c *change) queue(at *time.Duration, q queue, filled, now time.Duration) {
	moves := q.drained || q.after == 0
	if q.before > 0 && moves && (!c.freed || *at < c.stood) {
		c.freed, c.stood = true, *at
	}
	switch {
	case q.after == 0:
		*at = now
	case q.drained || q.before == 0:
		*at = filled
	}
}

// outgoing is what was written and not acknowledged.
func outgoing(s *ncclsock.Socket) uint32 { return s.UnsentBytes + s.UnackedBytes }

func (s *socket) take(next *ncclsock.Socket) {
	s.now = *next
	s.now.Handshake = nil // was read, and is the caller's
	s.timeouts = next.Backoff >= timeouts
}

// refine returns the moment that lies age before now, but between two snapshots.
func refine(last, now, age time.Duration) time.Duration {
	if age < 0 {
		return now
	}
	return max(last, now-age)
}

// newest returns the smaller of two ages, of which either may be negative: never.
func newest(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// unread reports whether the process has left bytes unread, and since when.
func (s *socket) unread() (time.Duration, bool) {
	return s.readAt, s.now.State == ncclsock.Established && s.now.ReceiveQueueBytes > 0
}

// stuck reports why data of this side does not get away, and since when.
func (s *socket) stuck() (cause socketstall.Cause, since time.Duration, is bool) {
	if s.now.State != ncclsock.Established || outgoing(&s.now) == 0 {
		return "", 0, false
	}
	if s.peer != nil && s.peer.now.ReceiveQueueBytes > 0 && s.peer.readAt <= s.ackedAt {
		// A receiver whose buffer is full may drop what is beyond it, and the
		// sender then looks as if the network did.
		return socketstall.PeerNotReading, s.ackedAt, true
	}
	switch {
	case s.timeouts:
		return socketstall.Network, s.ackedAt, true
	case s.now.UnsentBytes > 0 || s.now.SendWindowBytes == 0:
		return socketstall.PeerNotReading, s.ackedAt, true
	}
	return "", 0, false
}

// pair is a connection seen from one end. On loopback addresses repeat from one
// network namespace to the next.
type pair struct {
	local, remote netip.AddrPort
	netns         uint64
}

func pairOf(s *ncclsock.Socket) pair {
	p := pair{local: plain(s.Local), remote: plain(s.Remote)}
	if p.local.Addr().IsLoopback() || p.remote.Addr().IsLoopback() {
		p.netns = s.NetNS
	}
	return p
}

func (p pair) turned() pair { return pair{local: p.remote, remote: p.local, netns: p.netns} }

// plain makes an IPv4 address of one that is mapped into IPv6.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// learnKind takes the first bytes of the connection, if they were seen. What the
// port says goes before: RAS and store are what listens there.
func (s *socket) learnKind(first []byte) {
	if s.kind != undecided {
		return
	}
	if s.kind = kindByHandshake(first); s.kind != undecided && s.peer != nil && s.peer.kind == undecided {
		s.peer.kind = s.kind
	}
}

// resolve says what the socket is for. Of one between two ranks whose first
// bytes nobody saw, the libraries of its process tell.
func (s *socket) resolve() socketstall.Kind {
	switch {
	case s.kind != undecided:
		return s.kind
	case s.peer != nil && s.peer.kind != undecided:
		return s.peer.kind
	case !s.between:
		return socketstall.Other
	case s.rank.now.NCCL:
		return socketstall.Data
	default:
		return socketstall.Gloo
	}
}

const established = ncclsock.Established
