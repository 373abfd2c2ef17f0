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
func (f *Fault) best(from, to int64) window {
	within := int64(f.rule.Within)
	var best window
	for _, end := range f.ends(from, to) {
		w := window{end: end, seen: f.seen(end-within, end)}
		holds := func(name string) bool { return w.seen&f.rule.bit(name) != 0 }
		switch {
		case f.rule.Full.Eval(holds):
			w.confidence = verdict.Full
		case f.rule.Partial.Eval(holds):
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
func (f *Fault) ends(from, to int64) []int64 {
	var ends []int64
	for i := range f.marks {
		for j := range f.marks[i] {
			if at := f.marks[i][j].Time; at >= from && at <= to {
				ends = append(ends, at)
			}
		}
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// seen returns which evidence holds in the window [start, end].
func (f *Fault) seen(start, end int64) uint64 {
	var seen uint64
	for _, w := range f.rule.Watches {
		if w.Resolves {
			break
		}
		if f.holds(w, start, end) {
			seen |= 1 << w.index
		}
	}
	return seen
}

// holds reports whether the marks of w in the window suffice.
func (f *Fault) holds(w *Evidence, start, end int64) bool {
	marks := f.marks[w.index]
	first, span := 0, int64(w.Occurs.Within)
	sum := 0.0
	for i := range marks {
		m := &marks[i]
		if m.Last < start || m.Time > end || !f.counts(w, m) {
			continue
		}
		if w.Occurs.Count <= 1 && w.Occurs.Values <= 1 {
			return true
		}
		sum += m.Count
		for ; marks[first].Last < max(start, m.Time-span); first++ {
			if inWindow := marks[first].Last >= start; inWindow && f.counts(w, &marks[first]) {
				sum -= marks[first].Count
			}
		}
		if len(w.By) > 0 && f.things(w, marks[first:i+1]) >= w.Occurs.Values || len(w.By) == 0 && sum >= w.Occurs.Count {
			return true
		}
	}
	return false
}

// things counts the values of by whose own marks add up to what w asks for.
func (f *Fault) things(w *Evidence, marks []Mark) int {
	sums := map[string]float64{}
	reached := 0
	for i := range marks {
		m := &marks[i]
		t, ok := Tuple(m.Values, w.By)
		if !ok || !f.counts(w, m) {
			continue
		}
		before := sums[t]
		sums[t] = before + m.Count
		if before < w.Occurs.Count && sums[t] >= w.Occurs.Count {
			reached++
		}
	}
	return reached
}

// counts reports whether m shows anything, and came soon enough after the evidence
// it must follow.
func (f *Fault) counts(w *Evidence, m *Mark) bool {
	if m.Gone || w.Follows == nil {
		return !m.Gone
	}
	for _, other := range w.follows {
		for i := range f.marks[other] {
			before := &f.marks[other][i]
			if before.Time <= m.Last && before.Last >= m.Time-int64(w.Follows.Within) {
				return true
			}
		}
	}
	return false
}

// refuting returns the mark that speaks against a verdict, nil when none does.
func (f *Fault) refuting() *Mark {
	for _, u := range f.rule.Unless {
		before := f.marks[f.rule.watch(u.Before).index]
		if len(before) == 0 {
			continue
		}
		against := f.marks[f.rule.watch(u.Evidence).index]
		for i := range against {
			m := &against[i]
			if m.Time <= before[0].Time && m.Last >= before[0].Time-int64(u.Within) {
				return m
			}
		}
	}
	return nil
}
