package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// trail is the marks of one fault, and what they say together. It knows of no
// verdict.
type trail struct {
	rule    *Rule
	marks   [][]Mark       // by evidence, each sorted by time
	folded  []float64      // counts of marks that left because of the cap, by evidence
	known   uint64         // fields that have a value, one bit each
	ranks   byTrust[[]int] // on marks of evidence that holds by each, and on those that left, sorted
	began   verdict.Trust  // weakest of the marks that others join it by
	held    trusts         // trusts that its marks have
	touched int64          // newest time of a mark
	real    bool           // a mark that left because of the cap was no drill's
	// spoke has, of evidence that others ask for, the processes that have it, by host and pid; nil
	// where that is to be found anew.
	spoke map[int]map[string][]incident.Process
}

// bytes is about how much memory t takes.
func (t *trail) bytes() int {
	n := 8 * len(t.ranks)
	for i := range t.marks {
		for j := range t.marks[i] {
			n += t.marks[i][j].bytes()
		}
	}
	return n
}

// learn takes note of values and ranks; it reports whether a field got its first
// value.
func (t *trail) learn(w *Evidence, m *Mark) bool {
	before := t.known
	t.forget(w)
	t.held.add(m.Trust)
	if w.join < 0 {
		t.began = min(t.began, m.Trust)
	}
	for i, v := range m.Values {
		if v != "" {
			t.known |= 1 << i
		}
	}
	if !w.conditional() { // whether that holds is seen when it is asked for
		t.addRanks(w, m)
	}
	return t.known != before
}

func (t *trail) addRanks(w *Evidence, m *Mark) {
	trust := m.Trust
	if !t.rule.RankList {
		trust = t.trust(w, m)
	}
	for _, rank := range t.rule.ranksOf(m) {
		t.addRank(trust, rank)
	}
}

// rankOf returns the one rank that m is about, where the rule has no list of them.
func (r *Rule) rankOf(m *Mark) (int, bool) {
	if r.RankList || r.Rank < 0 {
		return 0, false
	}
	return ParseRank(m.Values[r.Rank])
}

// ranksOf returns the ranks that m is about.
func (r *Rule) ranksOf(m *Mark) []int {
	if rank, ok := r.rankOf(m); ok {
		return []int{rank}
	}
	if r.RankList {
		return m.Ranks
	}
	return nil
}

func (t *trail) addRank(trust verdict.Trust, rank int) {
	ranks := t.ranks.of(trust)
	at, there := slices.BinarySearch(*ranks, rank)
	if !there && len(*ranks) < MaxRanks {
		*ranks = slices.Insert(*ranks, at, rank)
	}
}

// relearn takes note anew of values and ranks after marks have left. What was
// evicted because of the cap cannot be read any more: its ranks stay.
func (t *trail) relearn() {
	t.known, t.began, t.held, t.spoke = 0, verdict.Proven, 0, nil
	t.rule.answers.of = nil
	if !slices.ContainsFunc(t.folded, func(count float64) bool { return count != 0 }) {
		t.ranks = byTrust[[]int]{}
	}
	for i, w := range t.rule.Watches { // first, for it says how far the others belong to the fault
		for j := range t.marks[i] {
			if w.join < 0 {
				t.began = min(t.began, t.marks[i][j].Trust)
			}
		}
	}
	for i, w := range t.rule.Watches {
		for j := range t.marks[i] {
			t.learn(w, &t.marks[i][j])
		}
	}
}

// dropBefore drops the marks that ended before at: they belong to no window
// that holds.
func (t *trail) dropBefore(at int64) {
	t.dropWhere(func(m *Mark) bool { return m.Last < at })
}

func (t *trail) dropWhere(which func(*Mark) bool) {
	dropped := false
	for i, w := range t.rule.Watches {
		before := len(t.marks[i])
		t.keep(w, slices.DeleteFunc(t.marks[i], func(m Mark) bool { return which(&m) }))
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
	t.returnPlaces()
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
		t.keep(w, slices.DeleteFunc(t.marks[i], which))
	}
	if len(out) > 0 {
		t.relearn()
	}
	return out
}

// fold leaves room for so many marks of one piece of evidence, and reports how many left.
// Those that are trusted least go before all others. Of those that are trusted alike the
// first stays: it is the onset. What names the fault still counts.
func (t *trail) fold(evidence, room int, named verdict.Trust) uint64 {
	marks := t.marks[evidence]
	all, before := len(marks), total(marks, named)
	t.real = t.real || !t.drill()
	t.lent(t.rule.Watches[evidence])
	for at := weakest(marks); at >= 0 && len(marks) > room; at = weakest(marks) {
		marks = slices.Delete(marks, at, at+1)
	}
	switch {
	case len(marks) <= room:
	case t.rule.Watches[evidence].depends(), t.rule.Watches[evidence].said: // the first ones decide
		marks = slices.Delete(marks, room, len(marks))
	default:
		owners := make([]string, 0, ownerLevels*len(marks))
		stay := fairlru.Trim(marks[1:], room-1, func(m Mark) []string {
			owners = t.rule.appendOwner(owners, m.Values)
			return owners[len(owners)-ownerLevels:]
		})
		marks = marks[:1+len(stay)]
	}
	t.keep(t.rule.Watches[evidence], marks)
	t.folded[evidence] += before - total(marks, named)
	return uint64(all - len(marks))
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

// onset is the time of the earliest evidence of at least that trust. What says how something is
// now, whatever it was before, dates nothing, nor does what only joins a fault: it tells of something
// else.
func (t *trail) onset(least verdict.Trust) int64 {
	onset := t.touched
	for i, w := range t.rule.Watches {
		if first := t.first(w, least); first != nil && w.join < 0 && !w.Resolves && !w.Newest && !t.rule.refutes(t.rule.Watches[i].Name) {
			onset = min(onset, first.Time)
		}
	}
	return onset
}

// since is when what the earliest evidence of at least that trust tells of began: it may
// be seen only later.
func (t *trail) since(least verdict.Trust) int64 {
	since := t.onset(least)
	for i, w := range t.rule.Watches {
		if w.join >= 0 || w.Newest || w.Resolves || t.rule.refutes(w.Name) {
			continue
		}
		for j := range t.marks[i] {
			if m := &t.marks[i][j]; m.since() < since && t.trusted(w, m, least) {
				since = m.since()
			}
		}
	}
	return since
}

// first returns the earliest mark of w of at least that trust, nil for none. One whose process
// speaks for itself is none.
func (t *trail) first(w *Evidence, least verdict.Trust) *Mark {
	for j := range t.marks[w.index] {
		if m := &t.marks[w.index][j]; t.trusted(w, m, least) && !t.saidOtherwise(w, m) {
			return m
		}
	}
	return nil
}

// clearing returns the newest mark of at least that trust that resolves the fault, nil
// when there is none.
func (t *trail) clearing(least verdict.Trust) *sighting {
	var newest *sighting
	for w, m := range t.resolving(least) {
		if (newest == nil || m.Time > newest.m.Time) && t.clearsAll(w, m, least) {
			newest = &sighting{w, *m}
		}
	}
	return newest
}

// resolving yields the marks of at least that trust that resolve the fault, or a thing of it.
func (t *trail) resolving(least verdict.Trust) func(yield func(*Evidence, *Mark) bool) {
	return func(yield func(*Evidence, *Mark) bool) {
		for i, w := range t.rule.Watches {
			if !w.Resolves || len(t.marks[i]) == 0 || !t.inPlace(w, math.MinInt64, math.MaxInt64, least) {
				continue
			}
			for j := range t.marks[i] {
				m := &t.marks[i][j]
				if t.trusted(w, m, least) && (w.Follows == nil || t.counts(w, m, least)) && !yield(w, m) {
					return
				}
			}
		}
	}
}

// clearsAll reports whether all that began the fault has cleared by m, which resolves some of
// it. A fault of several GPUs is over when each of them is well.
func (t *trail) clearsAll(w *Evidence, m *Mark, least verdict.Trust) bool {
	if len(w.parts) == 0 {
		return true
	}
	for i, began := range t.rule.Watches {
		if began.join >= 0 || began.Resolves || t.rule.refutes(began.Name) {
			continue
		}
		for j := range t.marks[i] {
			b := &t.marks[i][j]
			if !t.trusted(began, b, least) || b.later(m.Time) || w.clears(m, b) {
				continue
			}
			cleared := false
			for by, r := range t.resolving(least) {
				if cleared = r.Time <= m.Time && !b.later(r.Time) && by.clears(r, b); cleared {
					break
				}
			}
			if !cleared {
				return false
			}
		}
	}
	return true
}

// clears reports whether m, which resolves the fault or a thing of it, is of the thing of b.
func (w *Evidence) clears(m, b *Mark) bool {
	return !slices.ContainsFunc(w.parts, func(at int) bool { return b.Values[at] != "" && b.Values[at] != m.Values[at] })
}

// meet reports whether two sorted lists have a rank in common.
func meet(a, b []int) bool {
	return slices.ContainsFunc(b, func(rank int) bool {
		_, there := slices.BinarySearch(a, rank)
		return there
	})
}
