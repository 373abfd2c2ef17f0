package fairlru

import (
	"cmp"
	"container/list"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAFloodTakesRoomFromItselfAlone has one owner come ten times as often as there is
// room, under as many names as it likes, while fifty others have one member each.
func TestAFloodTakesRoomFromItselfAlone(t *testing.T) {
	const room, quiet = 1000, 50
	for name, flood := range map[string]func(i int) []string{
		"one job":        func(int) []string { return []string{"node-1", "rank_exit", "a"} },
		"invented jobs":  func(i int) []string { return []string{"node-1", "rank_exit", strconv.Itoa(i)} },
		"all patterns":   func(i int) []string { return []string{"node-1", strconv.Itoa(i % 30), strconv.Itoa(i)} },
		"a few nodes":    func(i int) []string { return []string{fmt.Sprint("mine-", i%5), "rank_exit", "a"} },
		"a quiet node's": func(i int) []string { return []string{"quiet-7", "rank_exit", strconv.Itoa(i)} },
	} {
		for _, when := range []int{0, room / 2, 5 * room} { // the quiet ones come first, between, late
			t.Run(fmt.Sprint(name, " ", when), func(t *testing.T) {
				var l List[string]
				for i := range 10 * room {
					if i == when {
						for q := range quiet {
							l.Add(fmt.Sprint("quiet-", q), Little, fmt.Sprint("quiet-", q), "gpu_lost", "")
						}
					}
					l.Add("flood", Much, flood(i)...)
					for l.Len() > room {
						e, _ := l.Victim()
						l.Remove(e)
					}
				}
				left := map[string]int{}
				l.Each(func(name string) { left[name]++ })
				require.Len(t, left, quiet+1)
				require.Equal(t, room-quiet, left["flood"])
			})
		}
	}
}

// TestAmongEqualsTheOldestLeaves: without a flood it is what it was, an LRU.
func TestAmongEqualsTheOldestLeaves(t *testing.T) {
	var l List[int]
	elements := make([]*Element[int], 5)
	for i := range elements {
		elements[i] = l.Add(i, Some, strconv.Itoa(i), "pattern")
	}
	l.Touch(elements[0], Some)
	l.Touch(elements[4], Little) // it matters least
	var left []int
	for l.Len() > 0 {
		e, depth := l.Victim()
		if l.Len() > 1 {
			require.Zero(t, depth, "owners were told apart by their first name")
		}
		left = append(left, e.Value)
		l.Remove(e)
	}
	require.Equal(t, []int{4, 1, 2, 3, 0}, left)
}

// TestWithinAnOwnerTheLeastWorthyLeaves also when it is the newest.
func TestWithinAnOwnerTheLeastWorthyLeaves(t *testing.T) {
	var l List[string]
	l.Add("proven", Much, "node", "pattern")
	l.Add("claimed", Some, "node", "pattern")
	resolved := l.Add("resolved", Some, "node", "pattern")
	l.Touch(resolved, Little)
	var left []string
	for l.Len() > 0 {
		e, _ := l.Victim()
		left = append(left, e.Value)
		l.Remove(e)
		l.Remove(e) // twice is fine
	}
	require.Equal(t, []string{"resolved", "claimed", "proven"}, left)
}

// TestAFavoredNameGivesWayLater: it may hold three times as much as the others together.
func TestAFavoredNameGivesWayLater(t *testing.T) {
	const room = 100
	for name, tc := range map[string]struct{ favored, others, want int }{
		"below its share": {10, 10 * room, 10},
		"at its share":    {75, 10 * room, 75},
		"beyond it":       {10 * room, 10 * room, 75},
		"the others few":  {10 * room, 10, 90},
	} {
		t.Run(name, func(t *testing.T) {
			var l List[string]
			l.Favor("proven", 3)
			add := func(name string, n int) {
				for i := range n {
					l.Add(name, Some, name, strconv.Itoa(i%20))
					for l.Len() > room {
						e, _ := l.Victim()
						l.Remove(e)
					}
				}
			}
			add("proven", tc.favored)
			add("claimed", tc.others)
			add("proven", min(tc.favored, room)) // comes again: nobody is pushed out beyond the share
			left := map[string]int{}
			l.Each(func(name string) { left[name]++ })
			require.Equal(t, room, left["proven"]+left["claimed"])
			require.GreaterOrEqual(t, left["proven"], min(tc.want, 75))
			require.GreaterOrEqual(t, left["claimed"], min(tc.others, room/4))
		})
	}
}

// model is the list as its documentation has it, without any speed.
type model []*Element[int]

func (m model) victim(paths map[*Element[int]][]string) *Element[int] {
	among := slices.Clone(m)
	order := func(a, b *Element[int]) int {
		return cmp.Or(cmp.Compare(a.worth, b.worth), cmp.Compare(a.touched, b.touched))
	}
	for depth := range 3 {
		byName := map[string][]*Element[int]{}
		for _, e := range among {
			byName[paths[e][depth]] = append(byName[paths[e][depth]], e)
		}
		among = nil
		for _, held := range byName {
			next := pick(held, paths, depth+1, order)
			if among == nil || len(held) > len(among) || len(held) == len(among) && order(next, pick(among, paths, depth+1, order)) < 0 {
				among = held
			}
		}
	}
	return slices.MinFunc(among, order)
}

// pick is whom an owner gives away.
func pick(held []*Element[int], paths map[*Element[int]][]string, depth int, order func(a, b *Element[int]) int) *Element[int] {
	if depth == 3 {
		return slices.MinFunc(held, order)
	}
	byName := map[string][]*Element[int]{}
	for _, e := range held {
		byName[paths[e][depth]] = append(byName[paths[e][depth]], e)
	}
	var most []*Element[int]
	for _, below := range byName {
		if most == nil || len(below) > len(most) ||
			len(below) == len(most) && order(pick(below, paths, depth+1, order), pick(most, paths, depth+1, order)) < 0 {
			most = below
		}
	}
	return pick(most, paths, depth+1, order)
}

// TestIsWhatItSays compares it with the model over random calls.
func TestIsWhatItSays(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var l List[int]
		var m model
		paths := map[*Element[int]][]string{}
		for i := range 400 {
			switch at := 0; {
			case len(m) == 0 || r.IntN(5) < 3:
				path := []string{strconv.Itoa(r.IntN(3)), strconv.Itoa(r.IntN(3)), strconv.Itoa(r.IntN(4))}
				e := l.Add(i, Worth(r.IntN(3)), path...)
				paths[e] = path
				m = append(m, e)
			case r.IntN(3) == 0:
				e, _ := l.Victim()
				require.Same(t, m.victim(paths), e, "seed %d, call %d", seed, i)
				at = slices.Index(m, e)
				fallthrough
			case r.IntN(2) == 0:
				l.Remove(m[at])
				m = slices.Delete(m, at, at+1)
			default:
				at = r.IntN(len(m))
				l.Touch(m[at], Worth(r.IntN(3)))
			}
			require.Equal(t, len(m), l.Len())
		}
		var order []int
		l.Each(func(v int) { order = append(order, v) })
		slices.SortFunc(m, func(a, b *Element[int]) int { return cmp.Compare(a.touched, b.touched) })
		for i, e := range m {
			require.Equal(t, e.Value, order[i])
		}
		for _, e := range m {
			require.Equal(t, e.Value, l.Oldest())
			l.Remove(e)
		}
		require.Empty(t, l.owners)
		require.Empty(t, l.root.below)
	}
}

// TestTrimSharesAsAListDoes compares it with the list, over random members.
func TestTrimSharesAsAListDoes(t *testing.T) {
	type member struct {
		name int
		path []string
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var l List[int]
		var members []member
		held := map[string]int{}
		for i := range 1 + r.IntN(100) {
			// Half of them are of one owner.
			path := []string{strconv.Itoa(r.IntN(2) * r.IntN(20)), strconv.Itoa(r.IntN(3))}
			members = append(members, member{i, path})
			l.Add(i, Some, path...)
		}
		room := r.IntN(len(members) + 1)
		for l.Len() > room {
			e, _ := l.Victim()
			l.Remove(e)
		}
		l.Each(func(i int) { held[members[i].path[0]]++ })
		paths := slices.Clone(members)
		stay := Trim(members, room, func(m member) []string { return m.path })
		require.Len(t, stay, room)
		require.True(t, slices.IsSortedFunc(stay, func(a, b member) int { return cmp.Compare(a.name, b.name) }))
		for _, m := range stay {
			require.Equal(t, paths[m.name].path, m.path)
			held[m.path[0]]--
		}
		for owner, more := range held { // who gets what is left over may differ
			require.LessOrEqual(t, more*more, 1, "seed %d: owner %s", seed, owner)
		}
	}
}

// BenchmarkTrim is one of eight calls of a flood of one owner.
func BenchmarkTrim(b *testing.B) {
	type member struct{ path []string }
	var members []member
	for i := range 65 {
		members = append(members, member{[]string{"node", "rank_exit", strconv.Itoa(i)}})
	}
	b.ReportAllocs()
	for range b.N {
		Trim(slices.Clone(members), 56, func(m member) []string { return m.path })
	}
}

// BenchmarkFlood is one call of a flood in a full list: enter one, forget one.
func BenchmarkFlood(b *testing.B) {
	const room = 5000
	jobs := make([]string, 4*room)
	for i := range jobs {
		jobs[i] = strconv.Itoa(i)
	}
	b.Run("fair", func(b *testing.B) {
		var l List[int]
		b.ReportAllocs()
		for i := range b.N {
			l.Add(i, Some, "node", "rank_exit", jobs[i%len(jobs)])
			if l.Len() > room {
				e, _ := l.Victim()
				l.Remove(e)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		var l list.List
		b.ReportAllocs()
		for i := range b.N {
			l.PushBack(i)
			if l.Len() > room {
				l.Remove(l.Front())
			}
		}
	})
}

// BenchmarkTouch is a record for a member that is there.
func BenchmarkTouch(b *testing.B) {
	var l List[int]
	var elements []*Element[int]
	for i := range 5000 {
		elements = append(elements, l.Add(i, Some, strconv.Itoa(i%100), strconv.Itoa(i%7), strconv.Itoa(i)))
	}
	b.ReportAllocs()
	for i := range b.N {
		l.Touch(elements[i*7919%len(elements)], Some)
	}
}

// TestALargeMemberCountsAsSeveral: few large members take as much room as many small ones.
func TestALargeMemberCountsAsSeveral(t *testing.T) {
	var l List[string]
	for i := range 10 {
		l.Add(fmt.Sprint("small-", i), Some, "quiet", strconv.Itoa(i))
	}
	large := l.Add("large", Some, "loud", "one")
	l.Resize(large, 100)
	require.Equal(t, 11, l.Len())
	require.Equal(t, 110, l.Size())
	victim, _ := l.Victim()
	require.Equal(t, "large", victim.Value)
	l.Resize(large, 1)
	victim, _ = l.Victim()
	require.Equal(t, "small-0", victim.Value)
	l.Resize(large, 50)
	l.Remove(large)
	l.Resize(large, 9)
	require.Equal(t, 10, l.Size())
}
