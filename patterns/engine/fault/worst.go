package fault

import (
	"cmp"
	"slices"
)

// naming yields the marks that name things, the leading one first: the worst, where the rule
// says what is worse. What is told later of one fault may be worse than how it began.
func (f *Fault) naming(yield func(*Evidence, *Mark) bool) {
	if f.rule.Worst.By == "" {
		f.inOrder(yield)
		return
	}
	type named struct {
		w  *Evidence
		m  *Mark
		at int
	}
	var marks []named
	for w, m := range f.inOrder {
		marks = append(marks, named{w, m, f.rule.place(w, m)})
	}
	slices.SortStableFunc(marks, func(a, b named) int { return cmp.Compare(a.at, b.at) })
	for _, one := range marks {
		if !yield(one.w, one.m) {
			return
		}
	}
}

// place is where m stands among what is worse or better, from 0 for the worst. What shows
// something only together with more like it comes last.
func (r *Rule) place(w *Evidence, m *Mark) int {
	last := len(r.Worst.Values)
	if w.Occurs.Count > 1 || w.Occurs.Values > 1 {
		return last
	}
	if at := slices.Index(r.Worst.Values, r.get(m.Values, r.Worst.By)); at >= 0 {
		return at
	}
	return last
}

// worsens reports whether m, of which this is the first report, now names the fault.
func (f *Fault) worsens(w *Evidence, m *Mark) bool {
	if f.verdict == nil || f.rule.place(w, m) == len(f.rule.Worst.Values) {
		return false
	}
	for named, lead := range f.naming {
		return named == w && lead.same(m)
	}
	return false
}

// followed is the mark of what w follows that came last before m, of the same process or thing; nil
// for none.
func (f *Fault) followed(w *Evidence, m *Mark) *Mark {
	var last *Mark
	for _, other := range w.follows {
		for i := range f.marks[other] {
			before := &f.marks[other][i]
			if f.trusted(f.rule.Watches[other], before, f.verdict.best.trust) && f.rule.agree(before.Values, m.Values) &&
				before.Time <= m.Last && (last == nil || before.Time >= last.Time) {
				last = before
			}
		}
	}
	return last
}
