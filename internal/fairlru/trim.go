package fairlru

import (
	"cmp"
	"slices"
)

// Trim shares room for so many between the owners of members, as a List would that was
// never larger, and returns the members that stay, in their order. Members stand in the
// order in which they were last touched. It is for short lists that seldom have to give.
func Trim[T any](members []T, room int, path func(T) []string) []T {
	if len(members) <= room {
		return members
	}
	all := make([]claim, len(members))
	for i, one := range members {
		all[i] = claim{path: path(one), at: i}
	}
	stay := share(all, 0, max(room, 0), make([]int, 0, room))
	slices.Sort(stay)
	kept := members[:0]
	for _, at := range stay {
		kept = append(kept, members[at])
	}
	clear(members[len(kept):])
	return kept
}

// claim is one member that wants to stay.
type claim struct {
	path []string
	at   int // in the order of the members
}

// share gives room to the owners at that depth, those that hold least first, and appends
// the places of the members that stay. Where it does not suffice for one each, the
// newest stay.
func share(all []claim, depth, room int, stay []int) []int {
	if len(all) <= room || depth == len(all[0].path) {
		for _, one := range all[len(all)-min(room, len(all)):] {
			stay = append(stay, one.at)
		}
		return stay
	}
	slices.SortStableFunc(all, func(a, b claim) int { return cmp.Compare(a.path[depth], b.path[depth]) })
	var owners [][]claim
	for begin, i := 0, 1; i <= len(all); i++ {
		if i == len(all) || all[i].path[depth] != all[begin].path[depth] {
			owners, begin = append(owners, all[begin:i]), i
		}
	}
	slices.SortFunc(owners, func(a, b []claim) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a[0].at, b[0].at))
	})
	for i, one := range owners {
		most := min(room/(len(owners)-i), len(one))
		room -= most
		stay = share(one, depth+1, most, stay)
	}
	return stay
}
