package engine

import (
	"math"
	"math/bits"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// finding is what the marks in one window ending at end amount to.
type finding struct {
	end        int64
	seen       uint64 // evidence that holds, one bit each
	confidence verdict.Confidence
}

// better reports whether f says more than o.
func (f finding) better(o finding) bool {
	if f.confidence != o.confidence {
		return f.confidence == verdict.Full || o.confidence == ""
	}
	return f.confidence != "" && bits.OnesCount64(f.seen) > bits.OnesCount64(o.seen)
}

// evaluate draws the conclusions of a mark at from. Loud: the mark told
// something that no mark had told before.
func (e *Engine) evaluate(inst *instance, from int64, loud bool) {
	v := inst.verdict
	to := from + int64(inst.state.rule.Within)
	if inst.revised {
		from, to = math.MinInt64, math.MaxInt64
	}
	best := inst.search(from, to)
	switch {
	case v != nil && inst.revised:
		e.reconsider(inst, best)
		e.settle(inst)
	case v == nil && best.confidence != "" && inst.refuting() == nil:
		e.conclude(inst, best)
		e.settle(inst)
	case v == nil:
		e.settle(inst)
	default:
		e.update(inst, best, loud)
		e.settle(inst)
	}
	inst.revised = false
	if !inst.dead {
		e.reschedule(inst)
	}
}

// search finds the window that says most, among those that end between from and
// to.
func (inst *instance) search(from, to int64) finding {
	within := int64(inst.state.rule.Within)
	var best finding
	for _, end := range inst.ends(from, to) {
		f := finding{end: end, seen: inst.seen(end-within, end)}
		holds := func(name string) bool { return f.seen&inst.bit(name) != 0 }
		switch {
		case inst.state.rule.Full.Eval(holds):
			f.confidence = verdict.Full
		case inst.state.rule.Partial.Eval(holds):
			f.confidence = verdict.Partial
		}
		if f.better(best) {
			best = f
		}
	}
	return best
}

// bit is the bit of the evidence called name.
func (inst *instance) bit(name string) uint64 {
	for _, w := range inst.state.watches {
		if !w.resolves && w.Name == name {
			return 1 << w.index
		}
	}
	return 0
}

// ends returns the times in [from, to] at which a window may newly hold: those
// of marks, sorted.
func (inst *instance) ends(from, to int64) []int64 {
	var ends []int64
	put := func(at int64) {
		if at >= from && at <= to {
			ends = append(ends, at)
		}
	}
	for _, w := range inst.state.watches {
		for i := range inst.marks[w.index] {
			put(inst.marks[w.index][i].Time)
		}
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// seen returns which evidence holds in the window [start, end].
func (inst *instance) seen(start, end int64) uint64 {
	var seen uint64
	for _, w := range inst.state.watches {
		if w.resolves {
			break
		}
		if inst.holds(w, start, end) {
			seen |= 1 << w.index
		}
	}
	return seen
}

func (inst *instance) holds(w *watch, start, end int64) bool {
	marks := inst.marks[w.index]
	first, span := 0, int64(w.Occurs.Within)
	sum := 0.0
	for i := range marks {
		m := &marks[i]
		if m.Last < start || m.Time > end || m.Gone || !inst.follows(w, m) {
			continue
		}
		if w.Occurs.Count <= 1 && w.Occurs.Values <= 1 {
			return true
		}
		sum += m.Count
		for ; marks[first].Last < max(start, m.Time-span); first++ {
			if inWindow := marks[first].Last >= start; inWindow && !marks[first].Gone && inst.follows(w, &marks[first]) {
				sum -= marks[first].Count
			}
		}
		if len(w.by) > 0 && inst.things(w, marks[first:i+1]) >= w.Occurs.Values || len(w.by) == 0 && sum >= w.Occurs.Count {
			return true
		}
	}
	return false
}

// things counts the values of by whose own marks add up to what w asks for.
func (inst *instance) things(w *watch, marks []mark) int {
	sums := map[string]float64{}
	reached := 0
	for i := range marks {
		m := &marks[i]
		t, ok := tuple(m.Values, w.by)
		if !ok || m.Gone || !inst.follows(w, m) {
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

// follows reports whether m came soon enough after evidence it must follow.
func (inst *instance) follows(w *watch, m *mark) bool {
	if w.Follows == nil {
		return true
	}
	for _, other := range w.follows {
		for i := range inst.marks[other] {
			cause := &inst.marks[other][i]
			if cause.Time <= m.Last && cause.Last >= m.Time-int64(w.Follows.Within) {
				return true
			}
		}
	}
	return false
}

// refuting returns the mark that speaks against a verdict, nil when none does.
func (inst *instance) refuting() *mark {
	for _, u := range inst.state.rule.Unless {
		before := inst.marks[inst.index(u.Before)]
		if len(before) == 0 {
			continue
		}
		against := inst.marks[inst.index(u.Evidence)]
		for i := range against {
			m := &against[i]
			if m.Time <= before[0].Time && m.Last >= before[0].Time-int64(u.Within) {
				return m
			}
		}
	}
	return nil
}

// index is the watch of the evidence called name; the rule was checked.
func (inst *instance) index(name string) int {
	return bits.TrailingZeros64(inst.bit(name))
}
