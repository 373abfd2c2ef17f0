package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// socket is one socket over time. Times are of the tracker's clock.
type socket struct {
	now     ncclsock.Socket // as of the last snapshot that had it
	round   uint64          // number of that snapshot
	met     uint64          // number of the snapshot that first had it
	change  change          // what that snapshot changed
	rank    *rank
	pair    pair             // as which it is found
	peer    *socket          // the other end, when it is on this node
	other   *socket          // the same, also when one of the two is gone
	told    socketstall.Kind // what itself tells that it is for, or undecided
	kind    socketstall.Kind // what it is for
	guessed bool             // the libraries of its process told, or nothing did
	errno   int32            // that it reported
	shut    bool             // an end has closed it since the last snapshot
	over    ending           // how it ended, as far as that was heard
	overAt  time.Time        // when its process closed it, while it stood
	free    bool             // it did, and had lost none before
	goneAt  time.Duration    // when it was missed

	far     int     // rank of its job at the other end, also when that has died; Unknown
	farPID  uint32  // process at the other end, also when it has died; 0 when never on this node
	between bool    // it joins two ranks
	series  *Series // where its traffic is counted, nil when nowhere

	began    time.Duration // first seen
	moved    time.Duration // bytes last moved, in any direction
	readAt   time.Duration // when it was last read, or had nothing to read
	ackedAt  time.Duration // when data was last acknowledged, or there was none to be
	timeouts bool          // enough retransmit timeouts in a row
}

// change is what happened to a socket between two snapshots, or before it was met.
type change struct {
	moved  bool  // bytes did, in any direction
	recent bool  // since the snapshot before
	read   freed // its queue of received data moved again
	acked  freed // that of data to send did

	sent, received, retransmits uint64
}

// freed is a queue that had stood; is says that there is one.
type freed struct {
	is    bool
	since time.Duration
}

// newSocket is one that no snapshot had before.
func newSocket(next *ncclsock.Socket, r *rank, c *clock) *socket {
	age := newest(next.LastSentAge, next.LastReceivedAge)
	s := &socket{rank: r, far: Unknown, met: c.round, began: c.now, moved: c.now, readAt: c.now, ackedAt: c.now}
	if age >= 0 {
		s.moved = c.now - age
	}
	s.change = change{moved: age >= 0, recent: age >= 0 && age <= c.now-c.last}
	s.take(next, c.round)
	return s
}

// update takes the next snapshot of the socket.
func (s *socket) update(next *ncclsock.Socket, c *clock) {
	before := s.now
	read, acked := next.BytesRead > before.BytesRead, next.BytesAcked > before.BytesAcked
	s.change = change{moved: read || acked || next.BytesReceived > before.BytesReceived || next.BytesSent > before.BytesSent}
	s.change.recent = s.change.moved
	if read && s.kind == socketstall.Store {
		s.rank.served = c.now
	}
	if s.change.moved {
		s.moved = c.since(newest(next.LastSentAge, next.LastReceivedAge))
	}
	s.change.read.queue(&s.readAt, queue{before.ReceiveQueueBytes, next.ReceiveQueueBytes, read}, c.since(next.LastReceivedAge), c.now)
	s.change.acked.queue(&s.ackedAt, queue{outgoing(&before), outgoing(next), acked}, c.since(next.LastSentAge), c.now)
	s.take(next, c.round)
}

// take makes the snapshot what is known of the socket.
func (s *socket) take(next *ncclsock.Socket, round uint64) {
	before := &s.now
	s.change.sent, s.change.received = grown(before.BytesSent, next.BytesSent), grown(before.BytesReceived, next.BytesReceived)
	s.change.retransmits = grown(uint64(before.Retransmits), uint64(next.Retransmits))
	s.now, s.round, s.shut = *next, round, false
	s.timeouts = next.Backoff >= timeouts
}

// grown is never negative: a counter that fell is another connection's.
func grown(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// queue is one queue of a socket in two snapshots.
type queue struct {
	before, after uint32 // bytes in it
	drained       bool   // bytes left it between the two
}

// queue moves at, the moment since which a queue stands, and notes what had
// stood until now. filled is when bytes last came into it.
func (f *freed) queue(at *time.Duration, q queue, filled, now time.Duration) {
	moves := q.drained || q.after == 0
	if q.before > 0 && moves {
		*f = freed{true, *at}
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

const (
	established = ncclsock.Established
	synSent     = ncclsock.SynSent
)
