package stall

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// stallKey is what one stall is: a rank process, its peer, a direction.
type stallKey struct {
	pid       uint32
	started   int64
	direction socketstall.Direction
	kind      socketstall.Kind
	peerPID   uint32 // when the peer is, or was, on this node
	end       portKey
	own       uint16 // our port, when the socket shares neither end with another
}

// keyOf groups the sockets of one peer. Sockets of a stripe share a port at one
// end, so both nodes come to the same groups.
func (t *Tracker) keyOf(f *finding) stallKey {
	s := f.s
	key := stallKey{pid: s.rank.now.PID, started: s.rank.now.StartTime.Unix(), direction: f.direction, kind: s.kind}
	switch {
	case s.farPID != 0: // its death ends no stall
		key.peerPID = s.farPID
	case t.sockets.ports[connecting(s)] > 1 || f.cause == socketstall.Connecting:
		key.end = connecting(s)
	case t.sockets.ports[accepting(s)] > 1:
		key.end = accepting(s)
	default:
		key.end, key.own = connecting(s), s.now.Local.Port()
	}
	return key
}

// stall is one that was told and has not ended.
type stall struct {
	place *fairlru.Element[stallKey]
	last  Event // as last known; what was told of it may be older
	s     *socket
	told  time.Duration
	as    socketstall.Silence // of its rank, as told
	child socketstall.State   // of the child that holds its rank up, as told
	round uint64              // number of the snapshot that last found it
}

// group is what a snapshot says of one stall.
type group struct {
	key   stallKey
	chief finding // of the weightiest cause, the one that stands longest
	count int     // sockets with that cause
	due   bool
}

// book compares the findings with the stalls that are open.
func (t *Tracker) book(found []finding) []Event {
	var events []Event
	for _, g := range t.groups(found) {
		known := t.open[g.key]
		switch {
		case known != nil:
			events = t.renew(events, known, &g)
		case !g.due:
		default:
			if place := t.admit(&g); place != nil {
				events = append(events, t.begin(&g, place))
			}
		}
	}
	return t.end(events)
}

// admit gives a stall its place, nil where there is none. Domains and their processes share the
// room: the process that has most gives away the stall that began first, which ends untold.
func (t *Tracker) admit(g *group) *fairlru.Element[stallKey] {
	place := t.places.Add(g.key, fairlru.Some, g.chief.s.rank.now.Domain, strconv.FormatUint(uint64(g.key.pid), 10))
	if t.places.Len() <= t.o.MaxStalls {
		return place
	}
	t.counters.StallsDropped++
	victim, _ := t.places.Victim()
	if victim.Value.pid == g.key.pid {
		t.places.Remove(place)
		return nil
	}
	t.places.Remove(victim)
	delete(t.open, victim.Value)
	return place
}

// sustains reports whether a finding that is not due by itself goes on with a
// stall that is open: nothing has moved since the snapshot before. Nobody is
// accused because he waited before.
func (t *Tracker) sustains(key stallKey, f *finding) bool {
	known := t.open[key]
	return known != nil && f.since <= t.last && (known.last.Cause != socketstall.Waiting || f.cause == socketstall.Waiting)
}

// groups sorts the findings into stalls, in an order that does not depend on
// that of the maps.
func (t *Tracker) groups(found []finding) []group {
	index := map[stallKey]int{}
	var groups []group
	for i := range found {
		f := &found[i]
		key := t.keyOf(f)
		if !f.due && !t.sustains(key, f) {
			continue
		}
		at, known := index[key]
		if !known {
			index[key] = len(groups)
			groups = append(groups, group{key: key, chief: *f, count: 1, due: f.due})
			continue
		}
		groups[at].add(f)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(byRank(a.chief.s.rank, b.chief.s.rank), cmp.Compare(a.key.direction, b.key.direction), compareEnds(a.chief.s, b.chief.s))
	})
	return groups
}

// add takes one more socket into the group.
func (g *group) add(f *finding) {
	g.due = g.due || f.due
	switch order := cmp.Compare(weight(f.cause), weight(g.chief.cause)); {
	case order > 0:
		g.chief, g.count = *f, 1
	case order < 0:
	default:
		g.count++
		if f.before(&g.chief) {
			g.chief = *f
		}
	}
}

// before picks the socket that stands for its group. Where all are idle, both
// ends of a stripe must pick the same one.
func (f *finding) before(chief *finding) bool {
	if f.cause != socketstall.Waiting && f.since != chief.since {
		return f.since < chief.since
	}
	return compareEnds(f.s, chief.s) < 0
}

// compareEnds orders sockets in the same way at both ends.
func compareEnds(a, b *socket) int {
	la, ha := ends(a)
	lb, hb := ends(b)
	return cmp.Or(la.Compare(lb), ha.Compare(hb))
}

func ends(s *socket) (low, high netip.AddrPort) {
	low, high = plain(s.now.Local), plain(s.now.Remote)
	if high.Compare(low) < 0 {
		return high, low
	}
	return low, high
}

// begin opens a stall.
func (t *Tracker) begin(g *group, place *fairlru.Element[stallKey]) Event {
	opened := &stall{place: place}
	opened.last.ID = t.identify(g)
	t.open[g.key] = opened
	t.tell(opened, g)
	return opened.last
}

// identify names a stall by what it is and when it began.
func (t *Tracker) identify(g *group) string {
	hash := fnv.New64a()
	fmt.Fprint(hash, g.key, t.at.Add(-g.chief.age(t.now)).UnixNano())
	return fmt.Sprintf("%016x", hash.Sum64())
}

// renew takes what a snapshot says of an open stall and tells it when its cause
// changed or its turn has come.
func (t *Tracker) renew(events []Event, known *stall, g *group) []Event {
	news := known.last.Cause != g.chief.cause || g.chief.cause == socketstall.Waiting && (known.as != t.silence(g.chief.s.rank) || known.child != g.chief.s.rank.holder())
	if !news && t.now-known.told < t.o.Repeat {
		t.refresh(known, g)
		return events
	}
	t.tell(known, g)
	return append(events, known.last)
}

func (t *Tracker) tell(s *stall, g *group) {
	s.told = t.now
	t.refresh(s, g)
	s.as, s.child = s.last.Rank.Silence, s.s.rank.holder()
}

// refresh makes the event of a stall that of this snapshot.
func (t *Tracker) refresh(known *stall, g *group) {
	s, r := g.chief.s, g.chief.s.rank
	known.s, known.round = s, t.round
	known.last = Event{
		ID: known.last.ID, Time: t.at, Cause: g.chief.cause, Direction: g.chief.direction, Kind: g.key.kind, Process: r.now.Process,
		Age: g.chief.age(t.now), Socket: s.now, Count: g.count, Errno: s.errno, PeerRank: s.far, PeerReceived: Unknown, Rank: t.facts(r),
	}
	if s.peer != nil {
		known.last.PeerReceived = int64(s.peer.now.BytesReceived)
	}
}

// end closes the stalls that this snapshot did not find.
func (t *Tracker) end(events []Event) []Event {
	var over []stallKey
	for key, known := range t.open {
		missing := known.s.round != t.round && t.sockets.byCookie[known.s.now.Cookie] == known.s
		if known.round != t.round && !missing {
			over = append(over, key)
		}
	}
	ended := make([]Event, 0, len(over))
	for _, key := range over {
		known := t.open[key]
		delete(t.open, key)
		t.places.Remove(known.place)
		known.last.Time, known.last.End, known.last.Errno = t.at, t.reason(known), known.s.errno
		ended = append(ended, known.last)
	}
	slices.SortFunc(ended, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Process.Rank, b.Process.Rank), cmp.Compare(a.ID, b.ID))
	})
	return append(events, ended...)
}

// reason says why a stall is over.
func (t *Tracker) reason(s *stall) socketstall.EndReason {
	switch r := t.ranks[s.last.Process.PID]; {
	case r == nil || r != s.s.rank:
		return socketstall.Exited
	case s.last.Cause == socketstall.Connecting && s.s.now.Cookie == 0:
		return socketstall.Progress // nobody is refused any more
	case t.sockets.byCookie[s.s.now.Cookie] != s.s || s.s.now.State != established:
		return socketstall.Closed
	default:
		return socketstall.Progress
	}
}
