package stall

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// world is a job whose ranks form a ring, each in a namespace of its own, all on
// this node unless told otherwise. Rank r sends to rank r+1 over links[r].
type world struct {
	t       testing.TB
	tracker *Tracker
	at      time.Time
	ranks   []*Process
	links   []*link
	extra   []*ncclsock.Socket
	remote  map[int]bool    // ranks of another node: neither processes nor sockets are seen
	inside  map[int]Inside  // what a look into the tree of a rank shows
	looked  map[uint32]bool // ranks that were looked into before the last snapshot
	partial bool            // snapshots lack sockets
}

// link is one connection, seen from both ends.
type link struct {
	out, in *ncclsock.Socket
	hidden  []*ncclsock.Socket // ends that are closed
}

var began = time.Unix(1_700_000_000, 0)

func address(rank int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(rank + 1)}) }

func newWorld(t testing.TB, size int, o Options) *world {
	w := &world{t: t, tracker: New(o), at: began, remote: map[int]bool{}, inside: map[int]Inside{}, looked: map[uint32]bool{}}
	for r := range size {
		w.ranks = append(w.ranks, &Process{
			Process: identity.Process{
				PID: uint32(1000 + r), StartTime: began.Add(-time.Hour), StartNS: uint64(70 + r), Comm: "python", Rank: r, LocalRank: r, WorldSize: size, JobID: "job",
				MasterAddr: "10.0.0.1", MasterPort: 29500,
			},
			State: socketstall.Sleeping, NetNS: uint64(4000 + r),
		})
	}
	for r := range size {
		w.links = append(w.links, w.connect(r, (r+1)%size, uint64(100+2*r), 40000, 50000))
	}
	return w
}

func (w *world) connect(from, to int, cookie uint64, out, in uint16) *link {
	end := func(rank int, cookie uint64, port uint16) *ncclsock.Socket {
		return &ncclsock.Socket{
			Cookie: cookie, NetNS: w.ranks[rank].NetNS, PID: w.ranks[rank].PID, Local: netip.AddrPortFrom(address(rank), port),
			State: ncclsock.Established, SendWindowBytes: 65536, LastSentAge: -1, LastReceivedAge: -1,
		}
	}
	l := &link{out: end(from, cookie, out), in: end(to, cookie+1, in)}
	l.out.Remote, l.in.Remote = l.in.Local, l.out.Local
	return l
}

// add puts a socket of a rank beside the ring.
func (w *world) add(rank int, cookie uint64, local, remote string) *ncclsock.Socket {
	s := &ncclsock.Socket{
		Cookie: cookie, NetNS: w.ranks[rank].NetNS, PID: w.ranks[rank].PID, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote),
		State: ncclsock.Established, SendWindowBytes: 65536, LastSentAge: -1, LastReceivedAge: -1,
	}
	w.extra = append(w.extra, s)
	return s
}

// send moves bytes over a link, the last of them ago before the next snapshot.
func (l *link) send(n uint64, ago time.Duration) {
	l.out.BytesSent, l.out.BytesAcked, l.out.LastSentAge = l.out.BytesSent+n, l.out.BytesAcked+n, ago
	l.in.BytesReceived, l.in.BytesRead, l.in.LastReceivedAge = l.in.BytesReceived+n, l.in.BytesRead+n, ago
}

// deliver leaves bytes unread at the receiver.
func (l *link) deliver(n uint32, ago time.Duration) {
	l.send(uint64(n), ago)
	l.in.BytesRead -= uint64(n)
	l.in.ReceiveQueueBytes += n
}

// read lets the receiver read all.
func (l *link) read() {
	l.in.BytesRead += uint64(l.in.ReceiveQueueBytes)
	l.in.ReceiveQueueBytes = 0
}

func (w *world) sockets() []*ncclsock.Socket {
	var all []*ncclsock.Socket
	for _, l := range w.links {
		all = append(all, l.out, l.in)
	}
	return append(all, w.extra...)
}

func (w *world) closed(s *ncclsock.Socket) bool {
	return slices.ContainsFunc(w.links, func(l *link) bool { return slices.Contains(l.hidden, s) })
}

func (w *world) rankOf(s *ncclsock.Socket) int { return int(s.PID) - 1000 }

// pass lets time go by: ages grow, nothing else happens.
func (w *world) pass(d time.Duration) {
	w.at = w.at.Add(d)
	for _, s := range w.sockets() {
		if s.LastSentAge >= 0 {
			s.LastSentAge += d
		}
		if s.LastReceivedAge >= 0 {
			s.LastReceivedAge += d
		}
		if s.Age >= 0 {
			s.Age += d
		}
	}
}

// look takes a snapshot.
func (w *world) look() []Event {
	r := Round{Time: w.at, Tick: 10 * time.Millisecond, Partial: w.partial, Processes: map[uint32]Process{}}
	for i, p := range w.ranks {
		if !w.remote[i] {
			r.Processes[p.PID] = w.inspect(i, *p)
		}
	}
	for _, s := range w.sockets() {
		if !w.remote[w.rankOf(s)] && !w.closed(s) {
			r.Sockets = append(r.Sockets, *s)
		}
	}
	return w.tracker.Observe(&r)
}

// inspect looks into the tree of a rank if the tracker asks for it, as the receiver does.
func (w *world) inspect(rank int, p Process) Process {
	if !w.tracker.Wanted(p.PID) {
		delete(w.looked, p.PID)
		return p
	}
	in := w.inside[rank]
	in.Compared = w.looked[p.PID]
	in.Unsure = in.OnFile && !in.Compared
	w.looked[p.PID] = true
	p.Inside = &in
	return p
}

// idle takes n snapshots, a second apart, in which nothing moves.
func (w *world) idle(n int) []Event {
	var events []Event
	for range n {
		w.pass(time.Second)
		events = append(events, w.look()...)
	}
	return events
}

// train takes n snapshots, a second apart, with data on every link before each.
func (w *world) train(n int) {
	for range n {
		w.pass(time.Second)
		for _, l := range w.links {
			l.send(1<<20, 10*time.Millisecond)
		}
		for _, p := range w.ranks {
			p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+800*time.Millisecond
		}
		require.Empty(w.t, w.look(), "a job that trains has no stall")
	}
}

// told is an event in short.
type told struct {
	Rank      int
	Cause     socketstall.Cause
	Direction socketstall.Direction
	Peer      int
	End       socketstall.EndReason
}

func short(events []Event) []told {
	out := []told{}
	for _, e := range events {
		out = append(out, told{e.Process.Rank, e.Cause, e.Direction, e.PeerRank, e.End})
	}
	return out
}

func accusing(events []Event) []Event {
	var out []Event
	for _, e := range events {
		if e.Cause != socketstall.Waiting && e.End == "" {
			out = append(out, e)
		}
	}
	return out
}

// firstAfter idles until there are events and returns them with the seconds it took.
func (w *world) firstAfter(limit int) ([]Event, int) {
	for second := 1; second <= limit; second++ {
		if events := w.idle(1); len(events) > 0 {
			return events, second
		}
	}
	require.FailNow(w.t, "no event", "in %d s", limit)
	return nil, 0
}
