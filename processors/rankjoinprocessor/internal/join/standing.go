package join

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
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
	host   Host
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
func (s *sockets) viewAt(t int64) *view {
	if s == nil {
		return nil
	}
	v := &view{ranks: map[int]*standing{}}
	procs := slices.SortedFunc(maps.Values(s.procs), func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.last, b.last), cmp.Compare(a.host.Name, b.host.Name), cmp.Compare(a.host.PID, b.host.PID))
	})
	where := book{}
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
func (v *view) look(proc *process, t int64, where book) {
	rank := v.of(proc.rank)
	open := false
	for _, one := range proc.stalls {
		if !one.openAt(t) {
			continue
		}
		open = true
		where.enter(one.local, proc.rank)
		says := one.at(t)
		rank.deaf = rank.deaf || says == notReading
		rank.held = rank.held || says == peerNotReading || says == noAnswer
	}
	if open || !rank.own {
		rank.host = proc.host
		rank.ended = !open && proc.exited != 0 && proc.exited <= t
	}
	if !open {
		return
	}
	rank.halted = rank.halted || proc.haltedAt(t)
	if !rank.own {
		rank.own = true
		v.open = append(v.open, proc.rank)
	}
}

// claim is what a process says of a peer.
type claim struct {
	rank int
	says says
}

// accuse counts what a process says of its peers, each peer once.
func (v *view) accuse(proc *process, t int64, where book, told map[claim]bool) {
	for _, one := range proc.stalls {
		says := one.at(t)
		if !one.openAt(t) || says == saysNothing || says == notReading {
			continue
		}
		peer := where.peerOf(one)
		if peer < 0 || peer == proc.rank || told[claim{peer, says}] {
			continue
		}
		told[claim{peer, says}] = true
		switch rank := v.of(peer); says {
		case peerNotReading:
			rank.accusers++
		case noAnswer:
			rank.unanswered++
		case awaits:
			rank.waiters++
		}
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

// book says which rank has an address and port, or an address alone.
type book map[netip.AddrPort]int

const several = -1

// enter notes where a rank can be reached. An address of the loopback is another
// on every host.
func (b book) enter(local netip.AddrPort, rank int) {
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
func (b book) peerOf(s *stall) int {
	if s.peerRank >= 0 || !s.peer.IsValid() {
		return s.peerRank
	}
	for _, at := range []netip.AddrPort{s.peer, netip.AddrPortFrom(s.peer.Addr(), 0)} {
		if rank, found := b[at]; found && rank != several {
			return rank
		}
	}
	return several
}
