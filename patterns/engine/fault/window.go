package fault

import (
	"math/bits"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// window is what the marks in the time that ends at end amount to.
type window struct {
	end        int64
	seen       uint64 // evidence that holds, one bit each
	confidence verdict.Confidence
}

// better reports whether a says more than b.
func (a window) better(b window) bool {
	if a.confidence != b.confidence {
		return a.confidence == verdict.Full || b.confidence == ""
	}
	return a.confidence != "" && bits.OnesCount64(a.seen) > bits.OnesCount64(b.seen)
}

// best finds the window that says most, among those that end between from and to.
func (t *trail) best(from, to int64) window {
	within := int64(t.rule.Within)
	var best window
	for _, end := range t.ends(from, to) {
		w := window{end: end, seen: t.seen(end-within, end)}
		holds := func(name string) bool { return w.seen&t.rule.bit(name) != 0 }
		switch {
		case t.rule.Full.Eval(holds):
			w.confidence = verdict.Full
		case t.rule.Partial.Eval(holds):
			w.confidence = verdict.Partial
		}
		if w.better(best) {
			best = w
		}
	}
	return best
}

// ends returns the times in [from, to] at which a window may newly hold: those of
// marks, sorted.
func (t *trail) ends(from, to int64) []int64 {
	var ends []int64
	for i := range t.marks {
		for j := range t.marks[i] {
			if at := t.marks[i][j].Time; at >= from && at <= to {
				ends = append(ends, at)
			}
		}
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// seen returns which evidence holds in the window [start, end].
func (t *trail) seen(start, end int64) uint64 {
	var seen uint64
	for _, w := range t.rule.Watches {
		if w.Resolves {
			break
		}
		if t.holds(w, start, end) {
			seen |= 1 << w.index
		}
	}
	return seen
}

// holds reports whether the marks of w in the window suffice.
func (t *trail) holds(w *Evidence, start, end int64) bool {
	marks := t.marks[w.index]
	first, span := 0, int64(w.Occurs.Within)
	sum := 0.0
	for i := range marks {
		m := &marks[i]
		if m.Last < start || m.Time > end || !t.counts(w, m) {
			continue
		}
		if w.Occurs.Count <= 1 && w.Occurs.Values <= 1 {
			return true
		}
		sum += m.Count
		for ; marks[first].Last < max(start, m.Time-span); first++ {
			if inWindow := marks[first].Last >= start; inWindow && t.counts(w, &marks[first]) {
				sum -= marks[first].Count
			}
		}
		if len(w.By) > 0 && t.things(w, marks[first:i+1]) >= w.Occurs.Values || len(w.By) == 0 && sum >= w.Occurs.Count {
			return true
		}
	}
	return false
}

// things counts the values of by whose own marks add up to what w asks for.
func (t *trail) things(w *Evidence, marks []Mark) int {
	sums := map[string]float64{}
	reached := 0
	for i := range marks {
		m := &marks[i]
		thing, ok := Tuple(m.Values, w.By)
		if !ok || !t.counts(w, m) {
			continue
		}
		before := sums[thing]
		sums[thing] = before + m.Count
		if before < w.Occurs.Count && sums[thing] >= w.Occurs.Count {
			reached++
		}
	}
	return reached
}

// counts reports whether m shows anything, and came soon enough after the evidence
// it must follow.
func (t *trail) counts(w *Evidence, m *Mark) bool {
	if m.Gone || w.Follows == nil {
		return !m.Gone
	}
	for _, other := range w.follows {
		for i := range t.marks[other] {
			before := &t.marks[other][i]
			if before.Time <= m.Last && before.Last >= m.Time-int64(w.Follows.Within) {
				return true
			}
		}
	}
	return false
}

// refuting returns the mark that speaks against a verdict, nil when none does.
func (t *trail) refuting() *Mark {
	for _, u := range t.rule.Unless {
		before := t.marks[t.rule.watch(u.Before).index]
		if len(before) == 0 {
			continue
		}
		against := t.marks[t.rule.watch(u.Evidence).index]
		for i := range against {
			m := &against[i]
			if m.Time <= before[0].Time && m.Last >= before[0].Time-int64(u.Within) {
				return m
			}
		}
	}
	return nil
}
