package activity

import (
	"cmp"
	"maps"
	"slices"
)

// shares is room for so many reads in each round. Domains share it, and in a domain its
// ranks, by what they asked for in the round before: a rank with thousands of children takes
// no look from the children of another. A rank that is new gets what is nobody's share, and
// has a share from the next round on.
type shares struct {
	most   int
	round  int
	left   int               // nobody's
	has    map[uint32]int    // by rank, what is left of its share
	claims map[uint32]*claim // by rank, in this round
}

// claim is what a rank asked for.
type claim struct {
	domain string
	wants  int
}

func newShares(most int) shares {
	return shares{most: most, claims: map[uint32]*claim{}}
}

// begin starts a round.
func (s *shares) begin() {
	s.round++
	before := s.claims
	s.claims, s.has, s.left = map[uint32]*claim{}, map[uint32]int{}, s.most
	of := map[string][]uint32{}
	for _, pid := range slices.Sorted(maps.Keys(before)) {
		of[before[pid].domain] = append(of[before[pid].domain], pid)
	}
	domains := slices.Sorted(maps.Keys(of))
	wanted := func(pid uint32) int { return before[pid].wants }
	rooms := level(s.most, s.round, domains, func(domain string) (all int) {
		for _, pid := range of[domain] {
			all += wanted(pid)
		}
		return all
	})
	for i, domain := range domains {
		for at, room := range level(rooms[i], s.round, of[domain], wanted) {
			s.has[of[domain][at]] = room
			s.left -= room
		}
	}
}

// take returns how many of n reads a rank may make.
func (s *shares) take(pid uint32, domain string, n int) int {
	c := s.claims[pid]
	if c == nil {
		c = &claim{domain: domain}
		s.claims[pid] = c
	}
	c.wants += min(n, s.most)
	own := min(n, s.has[pid])
	s.has[pid] -= own
	more := min(n-own, s.left)
	s.left -= more
	return own + more
}

// level shares room so that nobody has less than another but who wants less. Where it does
// not suffice for one each, those who want most go without, of equal ones others each round.
func level[T any](room, round int, all []T, wants func(T) int) []int {
	order := make([]int, len(all))
	for i := range order {
		order[i] = (i + round) % len(all)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants(all[a]), wants(all[b])) })
	rooms := make([]int, len(all))
	for i, at := range order {
		left := len(order) - i
		rooms[at] = min(wants(all[at]), (room+left-1)/left)
		room -= rooms[at]
	}
	return rooms
}
