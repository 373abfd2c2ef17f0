package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/internal/lru"
)

// Fault is all that was seen for one key of one rule, and its verdict once its
// evidence suffices.
type Fault struct {
	set     *Set
	rule    *Rule
	key     string
	seq     uint64
	marks   [][]Mark  // by evidence, each sorted by time
	folded  []float64 // counts of marks that left because of the cap, by evidence
	known   uint64    // fields that have a value, one bit each
	ranks   []int     // seen on its marks, sorted
	touched int64     // newest time of a mark
	overdue int64     // newest time at which a mark came that was later than the lateness allows
	after   int64     // marks that ended by then belong to an earlier fault

	joinKeys []joinKey   // where joins has it
	verdict  *conclusion // nil while its evidence does not suffice

	past    bool // it expired, and is kept for effects that show later
	revised bool // a finding was replaced: all that rested on it is judged anew
	dead    bool // it left the state

	element lru.Element // in waiting or, with a verdict, in open
	wait    int64       // for the time line
}

// sighting is a mark with its evidence.
type sighting struct {
	w *Evidence
	m Mark
}

// add puts m on the time line of f, with the recent marks that waited for it,
// and evaluates.
func (f *Fault) add(w *Evidence, m Mark) {
	changed, loud, waiting := f.insert(w, m)
	if !changed {
		return
	}
	from := m.Time
	for _, r := range waiting { // all at once: one may refute what another shows
		if r.w.Resolves {
			continue
		}
		if changed, fresh, _ := f.insert(r.w, r.mark); changed {
			from, loud = min(from, r.mark.Time), loud || fresh
		}
	}
	f.evaluate(from, loud)
	for _, r := range waiting { // after the verdict: there must be something to resolve
		if r.w.Resolves && !f.dead {
			f.add(r.w, r.mark)
		}
	}
}

// insert reports whether m changed anything, whether it told something new,
// and which marks waited for it.
func (f *Fault) insert(w *Evidence, m Mark) (changed, loud bool, waiting []*recentMark) {
	if m.Last <= f.after {
		return false, false, nil
	}
	first, changed := f.put(w, m)
	if !changed {
		return false, false, nil
	}
	f.touched, f.overdue = max(f.touched, m.Last), max(f.overdue, m.Overdue)
	fresh := f.learn(&m)
	switch {
	case f.revised:
		waiting = f.rejoin()
	case w.join < 0:
		waiting = f.set.waitingFor(f.set.joins.enter(f, m.Values))
	}
	return true, first || fresh, waiting
}

// put inserts m in order of time, or corrects the mark it repeats. It reports
// whether it is the first of its kind, and whether anything changed.
func (f *Fault) put(w *Evidence, m Mark) (first, changed bool) {
	marks := f.marks[w.index]
	at := slices.IndexFunc(marks, func(o Mark) bool { return o.same(&m) })
	switch {
	case m.Finding:
		return f.putFinding(w, at, m)
	case at >= 0 && m.Count <= 0:
		f.marks[w.index] = slices.Delete(marks, at, at+1)
		return false, true
	case at >= 0 && marks[at].merge(&m):
		slices.SortStableFunc(marks, compare)
		return false, true
	case at >= 0 || m.Count <= 0:
		return false, false
	}
	at, _ = slices.BinarySearchFunc(marks, m, compare)
	marks = slices.Insert(marks, at, m)
	if len(marks) > max(f.set.opts.Marks, w.keep) { // the first stays: it is the onset
		f.set.stats.EvictedMarks++
		f.folded[w.index] += marks[1].Count
		marks = slices.Delete(marks, 1, 2)
	}
	f.marks[w.index] = marks
	return len(marks) == 1, true
}

// learn takes note of values and ranks; it reports whether a field got its first
// value.
func (f *Fault) learn(m *Mark) bool {
	before := f.known
	for i, v := range m.Values {
		if v != "" {
			f.known |= 1 << i
		}
	}
	if f.rule.RankList {
		for _, rank := range m.Ranks {
			f.addRank(rank)
		}
	} else if rank, ok := f.rule.rankOf(m); ok {
		f.addRank(rank)
	}
	return f.known != before
}

// rankOf returns the one rank that m is about, where the rule has no list of them.
func (r *Rule) rankOf(m *Mark) (int, bool) {
	if r.RankList || r.Rank < 0 {
		return 0, false
	}
	return ParseRank(m.Values[r.Rank])
}

func (f *Fault) addRank(rank int) {
	at, there := slices.BinarySearch(f.ranks, rank)
	if !there && len(f.ranks) < MaxRanks {
		f.ranks = slices.Insert(f.ranks, at, rank)
	}
}

// relearn takes note anew of values and ranks after marks have left. What was
// evicted because of the cap cannot be read any more: its ranks stay.
func (f *Fault) relearn() {
	f.known = 0
	if !slices.ContainsFunc(f.folded, func(count float64) bool { return count != 0 }) {
		f.ranks = nil
	}
	for i := range f.marks {
		for j := range f.marks[i] {
			f.learn(&f.marks[i][j])
		}
	}
}

// dropBefore drops the marks that ended before at: they belong to no window
// that holds.
func (f *Fault) dropBefore(at int64) {
	dropped := false
	for i := range f.marks {
		before := len(f.marks[i])
		f.marks[i] = slices.DeleteFunc(f.marks[i], func(m Mark) bool { return m.Last < at })
		if len(f.marks[i]) < before { // what was evicted came between
			f.folded[i], dropped = 0, true
		}
	}
	if dropped {
		f.relearn()
	}
}

// takeOut removes the marks of evidence that which picks.
func (f *Fault) takeOut(which func(Mark) bool) []sighting {
	var out []sighting
	for i, w := range f.rule.Watches {
		if w.Resolves {
			continue
		}
		for _, m := range f.marks[i] {
			if which(m) {
				out = append(out, sighting{w, m})
			}
		}
		f.marks[i] = slices.DeleteFunc(f.marks[i], which)
	}
	if len(out) > 0 {
		f.relearn()
	}
	return out
}

// onset is the time of the earliest evidence.
func (f *Fault) onset() int64 {
	onset := f.touched
	for i, w := range f.rule.Watches {
		if len(f.marks[i]) > 0 && !w.Resolves && !f.rule.refutes(w.Name) {
			onset = min(onset, f.marks[i][0].Time)
		}
	}
	return onset
}

// drop forgets f. Its verdict, if changed, is given out first.
func (f *Fault) drop() {
	if f.dead {
		return
	}
	f.dead, f.wait = true, 0 // what waits for it is stale
	f.leave()
	if f.verdict == nil {
		f.set.waiting.Remove(f.element)
		return
	}
	f.set.emit(f)
	f.set.graph.Leave(f.verdict.node)
	f.set.open.Remove(f.element)
}

// leave lets no more records join f.
func (f *Fault) leave() {
	if f.rule.faults[f.key] == f {
		delete(f.rule.faults, f.key)
	}
	f.set.joins.leave(f)
}
