package ncclhang

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// view is what the sockets of a job say at one moment: of each rank what its own
// say, and what those of its peers say of it. Waits are counted, not followed:
// who waits for whom in the end is the wait-for graph of the pattern
// nccl_socket_stall.
type view struct {
	ranks   map[int]*standing
	open    []int // ranks with a stall, in order
	singled []int // ranks that hold others up, in order
}

// standing is what sockets say of one rank.
type standing struct {
	host   socketstall.Identity
	own    bool // a stall of its own is open
	ended  bool // its process ended before
	halted bool // its main thread is stopped
	deaf   bool // it does not read
	held   bool // it is held up itself: its peer does not read, or does not answer

	accusers   int // ranks that say it does not read
	unanswered int // ranks whose packets to it are not acknowledged
	waiters    int // ranks that wait for data from it
}

// singledOut reports whether the rank holds others up, by what the kernel knows:
// its process is stopped; it does not read and nobody keeps it from writing; or
// packets to it get no answer. That somebody waits for it says nothing: each rank
// of a ring waits for the one before it.
func (s *standing) singledOut() bool {
	return s.halted || (s.deaf || s.accusers > 0) && !s.held || s.unanswered > 0
}

// viewAt returns what the sockets say at that time, nil where no stall was open.
func viewAt(stalls *socketstall.Job, t int64) *view {
	v := &view{ranks: make(map[int]*standing, len(stalls.Processes))}
	procs := slices.SortedFunc(maps.Values(stalls.Processes), func(a, b *socketstall.Process) int {
		if a.Rank != b.Rank { // as nearly always
			return a.Rank - b.Rank
		}
		return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID))
	})
	where := make(addresses, 2*len(procs))
	for _, proc := range procs {
		v.look(proc, t, where)
	}
	if len(v.open) == 0 {
		return nil
	}
	told := map[claim]bool{}
	for _, proc := range procs {
		clear(told)
		v.accuse(proc, t, where, told)
	}
	for _, rank := range slices.Sorted(maps.Keys(v.ranks)) {
		if v.ranks[rank].singledOut() {
			v.singled = append(v.singled, rank)
		}
	}
	return v
}

// look enters what a process says of itself, and where it can be reached. Of two
// processes of a rank the one with open stalls counts, then the newer: it comes
// later.
func (v *view) look(proc *socketstall.Process, t int64, where addresses) {
	rank := v.of(proc.Rank)
	open := false
	for _, one := range proc.Stalls {
		if !one.OpenAt(t) {
			continue
		}
		open = true
		where.enter(one.Local, proc.Rank)
		cause := one.CauseAt(t)
		rank.deaf = rank.deaf || cause == socketstall.NotReading
		rank.held = rank.held || cause == socketstall.PeerNotReading || cause == socketstall.Network
	}
	if open || !rank.own {
		rank.host = proc.Identity
		rank.ended = !open && proc.ExitedAt(t)
	}
	if !open {
		return
	}
	rank.halted = rank.halted || proc.HaltedAt(t)
	if !rank.own {
		rank.own = true
		v.open = append(v.open, proc.Rank)
	}
}

// claim is what a process says of a peer.
type claim struct {
	rank  int
	cause socketstall.Cause
}

// accuse counts what a process says of its peers, each peer once.
func (v *view) accuse(proc *socketstall.Process, t int64, where addresses, told map[claim]bool) {
	for _, one := range proc.Stalls {
		if !one.OpenAt(t) {
			continue
		}
		says := claim{where.peerOf(one), one.CauseAt(t)}
		if says.rank < 0 || says.rank == proc.Rank || told[says] {
			continue
		}
		switch {
		case says.cause == socketstall.PeerNotReading:
			v.of(says.rank).accusers++
		case says.cause == socketstall.Network:
			v.of(says.rank).unanswered++
		case says.cause == socketstall.Waiting && one.Direction == socketstall.Receive:
			v.of(says.rank).waiters++
		default:
			continue
		}
		told[says] = true
	}
}

func (v *view) of(rank int) *standing {
	s := v.ranks[rank]
	if s == nil {
		s = &standing{}
		v.ranks[rank] = s
	}
	return s
}

// known returns what is known of a rank; v may be nil.
func (v *view) known(rank int) standing {
	if v == nil || v.ranks[rank] == nil {
		return standing{}
	}
	return *v.ranks[rank]
}

// addresses says which rank has an address and port, or an address alone.
type addresses map[netip.AddrPort]int

const several = -1

// enter notes where a rank can be reached. An address of the loopback is another
// on every host.
func (b addresses) enter(local netip.AddrPort, rank int) {
	if !local.IsValid() || local.Addr().IsLoopback() {
		return
	}
	for _, at := range []netip.AddrPort{local, netip.AddrPortFrom(local.Addr(), 0)} {
		if other, taken := b[at]; taken && other != rank {
			b[at] = several
			continue
		}
		b[at] = rank
	}
}

// peerOf returns the rank at the other end, -1 where it is not known: of several
// sockets between two ranks each end may have reported another one, so an address
// that one rank alone has is enough.
func (b addresses) peerOf(s *socketstall.Stall) int {
	if s.PeerRank >= 0 || !s.Peer.IsValid() {
		return s.PeerRank
	}
	for _, at := range []netip.AddrPort{s.Peer, netip.AddrPortFrom(s.Peer.Addr(), 0)} {
		if rank, found := b[at]; found && rank != several {
			return rank
		}
	}
	return several
}
