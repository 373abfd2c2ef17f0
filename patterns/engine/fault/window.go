package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// window is what the marks in the time that ends at end amount to.
type window struct {
	end        int64
	seen       held // evidence that holds
	confidence verdict.Confidence
	trust      verdict.Trust // the weakest of what the confidence rests on
	// stands is the strongest trust with which there is a verdict at all: what speaks
	// against it must be trusted as much.
	stands verdict.Trust
	// short is evidence that is not trusted enough to say more, and doubted its trust.
	short   held
	doubted verdict.Trust
}

// better reports whether a says more than b.
func (a window) better(b window) bool {
	switch {
	case a.confidence != b.confidence:
		return more(a.confidence, b.confidence)
	case a.confidence == "" || a.trust != b.trust:
		return a.confidence != "" && a.trust > b.trust
	case a.seen.first() != b.seen.first(): // the first in the file names the fault
		return a.seen.first() < b.seen.first()
	case a.seen.count() != b.seen.count():
		return a.seen.count() > b.seen.count()
	default:
		return a.short.count() > b.short.count()
	}
}

// more reports whether a is surer than b.
func more(a, b verdict.Confidence) bool {
	return a != b && (a == verdict.Full || b == "")
}

// best finds the window that says most, among those that end between from and to.
func (t *trail) best(from, to int64) window {
	within := int64(t.rule.Within)
	best := window{stands: verdict.Foreign}
	for _, end := range t.ends(from, to) {
		if w := t.judge(end-within, end); w.better(best) {
			w.stands = max(w.stands, best.stands)
			best = w
		} else if w.confidence != "" {
			best.stands = max(w.stands, best.stands)
		}
	}
	return best
}

// judge says what the marks in [start, end] amount to: as much as they show with those
// that are trusted enough for it, and of what shows as much, the strongest.
func (t *trail) judge(start, end int64) window {
	best := window{end: end, stands: verdict.Foreign}
	most, sure := verdict.Confidence(""), held{}
	for _, trust := range verdict.Trusts() {
		if !t.held.has(trust) {
			continue
		}
		seen := t.seen(start, end, trust)
		shown := t.rule.confidence(seen)
		allowed := t.rule.allowed(shown, trust)
		if trust >= t.rule.Trust.Full {
			sure = seen
		}
		if allowed != "" {
			best.stands = max(best.stands, trust)
		}
		if best.confidence == "" || more(allowed, best.confidence) {
			best.seen, best.confidence, best.trust = seen, allowed, trust
		}
		if more(shown, most) {
			most, best.short, best.doubted = shown, seen.without(sure), trust
		}
	}
	if most == best.confidence {
		best.short = held{}
	}
	return best
}

// confidence is that of a verdict that rests on this evidence, of any trust.
func (r *Rule) confidence(seen held) verdict.Confidence {
	holds := func(name string) bool { return seen.has(r.watch(name).index) }
	switch {
	case r.Full.Eval(holds):
		return verdict.Full
	case r.Partial.Eval(holds):
		return verdict.Partial
	}
	return ""
}

// settled is what a window still shows once what excludes its evidence, and came later, counts.
func (t *trail) settled(w window) window {
	seen := w.seen
	for i, e := range t.rule.Watches {
		if seen.has(i) && len(e.except)+len(e.unsaid)+len(e.over) > 0 && !t.holds(e, math.MinInt64, math.MaxInt64, w.trust) {
			seen.remove(i)
		}
	}
	if seen != w.seen {
		w.seen, w.confidence = seen, t.rule.allowed(t.rule.confidence(seen), w.trust)
	}
	return w
}

// allowed is what is left of a confidence that rests on evidence of that trust.
func (r *Rule) allowed(shown verdict.Confidence, trust verdict.Trust) verdict.Confidence {
	switch {
	case shown == verdict.Full && trust >= r.Trust.Full:
		return verdict.Full
	case shown != "" && trust >= r.Trust.Partial:
		return verdict.Partial
	}
	return ""
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

// seen returns which evidence holds in the window [start, end] by marks of at least
// that trust.
func (t *trail) seen(start, end int64, least verdict.Trust) (seen held) {
	for _, w := range t.rule.Watches {
		if w.Resolves {
			break
		}
		if t.holds(w, start, end, least) {
			seen.add(w.index)
		}
	}
	return seen
}

// holds reports whether the marks of w in the window that are trusted suffice.
func (t *trail) holds(w *Evidence, start, end int64, least verdict.Trust) bool {
	if len(t.marks[w.index]) == 0 { // as of most evidence of a fault: that is quicker seen than remembered
		return false
	}
	q := question{w.index, least, start, end}
	holds, known := t.answered().holds[q]
	if !known {
		holds = t.suffice(w, start, end, least)
		t.answered().holds[q] = holds
	}
	return holds
}

func (t *trail) suffice(w *Evidence, start, end int64, least verdict.Trust) bool {
	marks := t.marks[w.index]
	first, span := 0, int64(w.Occurs.Within)
	if len(w.firstOf) > 0 {
		if !t.leads(w, least) {
			return false
		}
		end = min(end, t.first(w, least).Time+span)
	}
	if !t.inPlace(w, start, end, least) {
		return false
	}
	sum := 0.0
	for i := range marks {
		m := &marks[i]
		if m.Last < start || m.Time > end || !t.counts(w, m, least) {
			continue
		}
		if w.Occurs.Count <= 1 && w.Occurs.Values <= 1 {
			return true
		}
		sum += m.Count
		for ; marks[first].Last < max(start, m.Time-span); first++ {
			if inWindow := marks[first].Last >= start; inWindow && t.counts(w, &marks[first], least) {
				sum -= marks[first].Count
			}
		}
		if len(w.By) > 0 && t.things(w, marks[first:i+1], least) >= w.Occurs.Values || len(w.By) == 0 && sum >= w.Occurs.Count {
			return true
		}
	}
	return false
}

// inPlace reports whether w came soon before what it must, and nothing holds that
// excludes it.
func (t *trail) inPlace(w *Evidence, start, end int64, least verdict.Trust) bool {
	if len(w.leads) > 0 && !t.soonBefore(w, least) {
		return false
	}
	if w.Lead != nil && !t.ahead(w, least) {
		return false
	}
	return !slices.ContainsFunc(w.except, func(other int) bool { return t.holds(t.rule.Watches[other], start, end, least) })
}

// soonBefore reports whether w came at most so long before the first of other evidence, which
// holds.
func (t *trail) soonBefore(w *Evidence, least verdict.Trust) bool {
	mine := t.first(w, least)
	return mine != nil && slices.ContainsFunc(w.leads, func(other int) bool {
		theirs := t.first(t.rule.Watches[other], least)
		return theirs != nil && theirs.Time > mine.Time && theirs.Time <= mine.Time+int64(w.SoonBefore.Within) &&
			t.holds(t.rule.Watches[other], math.MinInt64, math.MaxInt64, least)
	})
}

// ahead reports whether the first thing of w is as far ahead of the next as it asks for.
func (t *trail) ahead(w *Evidence, least verdict.Trust) bool {
	g := t.group(w, least)
	lead := g.second - g.first
	return g.things < 2 || lead >= int64(w.Lead.Least) && lead >= int64(w.Lead.Times)*(g.last-g.second)
}

// group is the things of evidence within its window, from the first: how many, and when the
// first, the second and the last was seen.
type group struct {
	things              int
	first, second, last int64
}

func (t *trail) group(w *Evidence, least verdict.Trust) group {
	q := question{evidence: w.index, least: least}
	g, known := t.answered().groups[q]
	if !known {
		g = t.count(w, least)
		t.answered().groups[q] = g
	}
	return g
}

func (t *trail) count(w *Evidence, least verdict.Trust) (g group) {
	seen := map[string]bool{}
	for i := range t.marks[w.index] {
		m := &t.marks[w.index][i]
		thing, ok := Tuple(m.Values, w.By)
		if !ok || seen[thing] || !t.counts(w, m, least) {
			continue
		}
		if g.things > 0 && m.Time > g.first+int64(w.Occurs.Within) {
			break
		}
		seen[thing] = true
		g.things++
		switch g.last = m.Time; g.things {
		case 1:
			g.first = m.Time
		case 2:
			g.second = m.Time
		}
	}
	return g
}

// leads reports whether no evidence that w must be the first of came before it.
func (t *trail) leads(w *Evidence, least verdict.Trust) bool {
	mine := t.first(w, least)
	return mine != nil && !slices.ContainsFunc(w.firstOf, func(other int) bool {
		theirs := t.first(t.rule.Watches[other], least)
		return theirs != nil && theirs.Time < mine.Time
	})
}

// things counts the values of by whose own marks add up to what w asks for.
func (t *trail) things(w *Evidence, marks []Mark, least verdict.Trust) int {
	sums := map[string]float64{}
	reached := 0
	for i := range marks {
		m := &marks[i]
		thing, ok := Tuple(m.Values, w.By)
		if !ok || !t.counts(w, m, least) {
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

// counts reports whether m shows anything (where it is believed, not that its thing has left its place), is trusted, is not of another job that shares the machine, and came soon enough after the
// evidence it must follow.
func (t *trail) counts(w *Evidence, m *Mark, least verdict.Trust) bool {
	switch {
	case m.Gone || w.Believed && w.left(m) || !t.trusted(w, m, least) || w.OfMachine && t.ofAnotherJob(m, least) || t.saidOtherwise(w, m) || t.endedBefore(w, m, least):
		return false
	case w.Follows == nil:
		return true
	}
	for _, other := range w.follows {
		for i := range t.marks[other] {
			before := &t.marks[other][i]
			if t.trusted(t.rule.Watches[other], before, least) && w.soonAfter(before, m) {
				return true
			}
		}
	}
	return false
}

// endedBefore reports whether the thing of m had ended before what w speaks against came.
func (t *trail) endedBefore(w *Evidence, m *Mark, least verdict.Trust) bool {
	thing, ok := Tuple(m.Values, w.overBy)
	if len(w.over) == 0 || !ok {
		return false
	}
	before := int64(math.MaxInt64)
	for _, other := range w.overAt {
		if marks := t.marks[other]; len(marks) > 0 {
			before = min(before, marks[0].Time)
		}
	}
	for _, other := range w.over {
		for i := range t.marks[other] {
			end := &t.marks[other][i]
			if its, _ := Tuple(end.Values, w.overBy); its == thing && end.Time >= m.Last && end.Time < before && t.trusted(t.rule.Watches[other], end, least) {
				return true
			}
		}
	}
	return false
}

// reached reports whether the thing of m is among those that w asks for: its own marks in one window,
// m among them, add up. What did not get there shows nothing of what others show.
func (t *trail) reached(w *Evidence, m *Mark, least verdict.Trust) bool {
	thing, ok := Tuple(m.Values, w.By)
	if len(w.By) == 0 || w.Occurs.Count <= 1 || !ok {
		return true
	}
	marks, span := t.marks[w.index], int64(w.Occurs.Within)
	for first := range marks {
		if marks[first].Last < m.Time-span || marks[first].Time > m.Time {
			continue
		}
		sum := 0.0
		for i := first; i < len(marks) && marks[i].Time-span <= marks[first].Last; i++ {
			if its, _ := Tuple(marks[i].Values, w.By); its == thing && t.counts(w, &marks[i], least) {
				sum += marks[i].Count
			}
		}
		if sum >= w.Occurs.Count {
			return true
		}
	}
	return false
}

// soonAfter reports whether m of w, which must follow something, came soon enough after before.
func (w *Evidence) soonAfter(before, m *Mark) bool {
	return before.Time <= m.Last && before.Last >= m.Time-int64(w.Follows.Within)
}

// refuting returns the mark of at least that trust that speaks against a verdict, nil
// when none does.
func (t *trail) refuting(least verdict.Trust) *Mark {
	for _, u := range t.rule.Unless {
		before := t.first(t.rule.watch(u.Before), least)
		if before == nil {
			continue
		}
		w := t.rule.watch(u.Evidence)
		if !t.inPlace(w, math.MinInt64, math.MaxInt64, least) {
			continue
		}
		for i := range t.marks[w.index] {
			m := &t.marks[w.index][i]
			if t.trusted(w, m, least) && m.Time <= before.Time && m.Last >= before.Time-int64(u.Within) {
				return m
			}
		}
	}
	return nil
}
