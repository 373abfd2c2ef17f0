package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// trail is the marks of one fault, and what they say together. It knows of no
// verdict.
type trail struct {
	rule    *Rule
	marks   [][]Mark  // by evidence, each sorted by time
	folded  []float64 // counts of marks that left because of the cap, by evidence
	known   uint64    // fields that have a value, one bit each
	ranks   []int     // seen on its marks, sorted
	touched int64     // newest time of a mark
	real    bool      // a mark that left because of the cap was no drill's
}

// learn takes note of values and ranks; it reports whether a field got its first
// value.
func (t *trail) learn(m *Mark) bool {
	before := t.known
	for i, v := range m.Values {
		if v != "" {
			t.known |= 1 << i
		}
	}
	if t.rule.RankList {
		for _, rank := range m.Ranks {
			t.addRank(rank)
		}
	} else if rank, ok := t.rule.rankOf(m); ok {
		t.addRank(rank)
	}
	return t.known != before
}

// rankOf returns the one rank that m is about, where the rule has no list of them.
func (r *Rule) rankOf(m *Mark) (int, bool) {
	if r.RankList || r.Rank < 0 {
		return 0, false
	}
	return ParseRank(m.Values[r.Rank])
}

func (t *trail) addRank(rank int) {
	at, there := slices.BinarySearch(t.ranks, rank)
	if !there && len(t.ranks) < MaxRanks {
		t.ranks = slices.Insert(t.ranks, at, rank)
	}
}

// relearn takes note anew of values and ranks after marks have left. What was
// evicted because of the cap cannot be read any more: its ranks stay.
func (t *trail) relearn() {
	t.known = 0
	if !slices.ContainsFunc(t.folded, func(count float64) bool { return count != 0 }) {
		t.ranks = nil
	}
	for i := range t.marks {
		for j := range t.marks[i] {
			t.learn(&t.marks[i][j])
		}
	}
}

// dropBefore drops the marks that ended before at: they belong to no window
// that holds.
func (t *trail) dropBefore(at int64) {
	dropped := false
	for i := range t.marks {
		before := len(t.marks[i])
		t.marks[i] = slices.DeleteFunc(t.marks[i], func(m Mark) bool { return m.Last < at })
		if len(t.marks[i]) < before { // what was evicted came between
			t.folded[i], dropped = 0, true
		}
	}
	if dropped {
		t.relearn()
	}
}

// takeOut removes the marks of evidence that which picks.
func (t *trail) takeOut(which func(Mark) bool) []sighting {
	var out []sighting
	for i, w := range t.rule.Watches {
		if w.Resolves {
			continue
		}
		for _, m := range t.marks[i] {
			if which(m) {
				out = append(out, sighting{w, m})
			}
		}
		t.marks[i] = slices.DeleteFunc(t.marks[i], which)
	}
	if len(out) > 0 {
		t.relearn()
	}
	return out
}

// fold leaves room for so many marks of one piece of evidence, and reports how many left.
// The first stays: it is the onset.
func (t *trail) fold(evidence, room int) uint64 {
	marks := t.marks[evidence]
	before := 0.0
	for i := range marks {
		before += marks[i].Count
	}
	stay := fairlru.Trim(marks[1:], room-1, func(m Mark) []string { return t.rule.Owner(m.Values) })
	t.real = t.real || !t.drill()
	t.marks[evidence] = marks[:1+len(stay)]
	for i := range t.marks[evidence] {
		before -= t.marks[evidence][i].Count
	}
	t.folded[evidence] += before
	return uint64(len(marks) - 1 - len(stay))
}

// drill reports whether a drill made all that was seen.
func (t *trail) drill() bool {
	seen := false
	for i, w := range t.rule.Watches {
		for j := range t.marks[i] {
			if !w.Resolves && !t.marks[i][j].Drill {
				return false
			}
			seen = true
		}
	}
	return seen && !t.real
}

// onset is the time of the earliest evidence.
func (t *trail) onset() int64 {
	onset := t.touched
	for i, w := range t.rule.Watches {
		if len(t.marks[i]) > 0 && !w.Resolves && !t.rule.refutes(w.Name) {
			onset = min(onset, t.marks[i][0].Time)
		}
	}
	return onset
}

// clearing returns the newest mark that resolves the fault, nil when there is none.
func (t *trail) clearing() *sighting {
	var newest *sighting
	for i, w := range t.rule.Watches {
		if n := len(t.marks[i]); w.Resolves && n > 0 && (newest == nil || t.marks[i][n-1].Time > newest.m.Time) {
			newest = &sighting{w, t.marks[i][n-1]}
		}
	}
	return newest
}

// Ranks returns the ranks on its marks.
func (t *trail) Ranks() []int { return t.ranks }

// Saw reports whether that evidence held in what was seen until then.
func (t *trail) Saw(evidence int, until int64) bool {
	return t.holds(t.rule.Watches[evidence], math.MinInt64, until)
}

// RanksUntil returns the ranks of the marks until then; all is false when marks
// have left because of the cap.
func (t *trail) RanksUntil(until int64) (ranks []int, all bool) {
	all = true
	for i := range t.marks {
		all = all && t.folded[i] == 0
		for j := range t.marks[i] {
			m := &t.marks[i][j]
			if m.Time > until || m.Gone || t.rule.Rank < 0 {
				continue
			}
			ranks = union(ranks, m.Ranks)
			if rank, ok := t.rule.rankOf(m); ok {
				ranks = union(ranks, []int{rank})
			}
		}
	}
	return ranks, all
}

// Lists reports whether one of the ranks is in one of these fields.
func (t *trail) Lists(fields, ranks []int) bool {
	for i := range t.marks {
		for j := range t.marks[i] {
			for _, field := range fields {
				if meet(t.marks[i][j].Lists[field], ranks) {
					return true
				}
			}
		}
	}
	return false
}

// meet reports whether two sorted lists have a rank in common.
func meet(a, b []int) bool {
	return slices.ContainsFunc(b, func(rank int) bool {
		_, there := slices.BinarySearch(a, rank)
		return there
	})
}
