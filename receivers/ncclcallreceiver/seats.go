package ncclcallreceiver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// A process whose environment names no rank is that rank which its largest communicator says, and
// its job is that communicator. All receivers know it then (identity.Candidates), so that its
// stack is taken, too.

// unranked are the processes that may be ranks and do not say so.
func (r *ncclCall) unranked() []identity.Process {
	candidates, ok := r.resolver.(identity.Candidates)
	if !ok {
		return nil
	}
	return candidates.Unranked()
}

// candidate reports whether a process is one of them, as the last look for libraries knew them.
func (r *ncclCall) candidate(p *identity.Process) bool {
	known := r.candidates.Load()
	if known == nil {
		return false
	}
	is, found := (*known)[p.PID]
	return found && is.Born() == p.Born()
}

// besideRanks are those of them that have room beside the ranks, the lowest numbers first. Domains
// share it: the ranks of a domain take it from nobody else's processes.
func (r *ncclCall) besideRanks(most int) (some []identity.Process, over int) {
	some = r.unranked()
	all := len(some)
	slices.SortFunc(some, func(a, b identity.Process) int { return cmp.Compare(b.PID, a.PID) }) // Trim keeps the last
	kept := fairlru.Trim(slices.Concat(some, r.resolver.Ranks()), most, func(p identity.Process) []string { return []string{p.Domain} })
	some = slices.DeleteFunc(kept, func(p identity.Process) bool { return p.IsRank() })
	slices.Reverse(some)
	return some, all - len(some)
}

// seat is the rank that one communicator gives a process.
type seat struct {
	*ncclcall.Communicator
	ranks int // of the communicator that the process has
}

// largest are the largest communicators of these processes, of several the first that was used.
// Where a process is several of its ranks, one for each GPU, it is the lowest of them.
func largest(scan *ncclcall.Scan, of map[uint32]identity.Process) map[uint32]seat {
	seats := map[uint32]seat{}
	for i := range scan.Communicators {
		c := &scan.Communicators[i]
		if _, is := of[c.PID]; !is || c.Identity != ncclcall.Known || c.Hash == 0 || c.Size < 2 {
			continue
		}
		before, has := seats[c.PID]
		switch {
		case has && before.Hash == c.Hash:
			if c.Rank < before.Rank {
				before.Communicator = c
			}
			seats[c.PID] = seat{before.Communicator, before.ranks + 1}
		case !has || c.Size > before.Size || c.Size == before.Size && c.First.Before(before.First):
			seats[c.PID] = seat{c, 1}
		}
	}
	return seats
}

// seat tells who the processes are that do not say it: by the communicators that they use, and by
// those in whose making they wait. One that is all ranks of its communicator waits for nobody.
func (r *ncclCall) seat(scan *ncclcall.Scan, l *look) {
	candidates, ok := r.resolver.(identity.Candidates)
	known := r.candidates.Load()
	if !ok || known == nil || len(*known) == 0 {
		return
	}
	seats := largest(scan, *known)
	for _, pid := range slices.Sorted(maps.Keys(seats)) {
		if s := seats[pid]; s.ranks < int(s.Size) {
			candidates.Ranked((*known)[pid], placeIn(s.Hash, s.Rank, s.Size))
		}
	}
	for i := range l.changes {
		c := &l.changes[i]
		if process, is := (*known)[c.pid]; is && c.what == waiting && process.Born() == c.by.Born() && c.init.Size > 1 && seats[c.pid].Communicator == nil {
			candidates.Ranked(process, placeIn(c.init.Hash, c.init.Rank, c.init.Size))
		}
	}
}

func placeIn(of uint64, rank, size int32) identity.Place {
	return identity.Place{Rank: int(rank), WorldSize: int(size), Rendezvous: fmt.Sprintf("communicator %s/%d", hash(of), size)}
}
