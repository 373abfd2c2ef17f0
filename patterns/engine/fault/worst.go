package fault

import (
	"slices"
)

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

// worst is the mark of the worst fault: the first that names one. What only asks for an action
// has nothing that tells one fault from another, and the fault is that of another mark. Nil where
// the rule does not say what is worse.
func (f *Fault) worst() (by *Evidence, worst *Mark) {
	if f.rule.Worst.By == "" {
		return nil, nil
	}
	tells := f.rule.Positions(f.rule.Returns.With)
	for w, m := range f.naming {
		switch {
		case w.Follows != nil:
		case slices.ContainsFunc(tells, func(at int) bool { return m.Values[at] != "" }):
			return w, m
		case worst == nil:
			by, worst = w, m
		}
	}
	return by, worst
}

// ofWorst reports whether m came soon enough after the worst fault, or one as bad, where it
// must follow a fault.
func (f *Fault) ofWorst(w *Evidence, m *Mark) bool {
	by, worst := f.worst()
	if w.Follows == nil || worst == nil {
		return true
	}
	place := f.rule.place(by, worst)
	for before, b := range f.naming {
		if before.Follows == nil && f.rule.place(before, b) == place && f.rule.agree(worst.Values, b.Values) && f.rule.agree(b.Values, m.Values) && w.soonAfter(b, m) {
			return true
		}
	}
	return false
}

// endedBefore reports whether what the process of m has come to, came before the worst fault,
// which names no process.
func (f *Fault) endedBefore(m *Mark) bool {
	_, worst := f.worst()
	process := f.rule.process(m.Values)
	if worst == nil || process.PID == "" || f.rule.process(worst.Values).PID != "" {
		return false
	}
	return slices.ContainsFunc(f.rule.Watches, func(w *Evidence) bool {
		return w.Follows != nil && slices.ContainsFunc(f.marks[w.index], func(one Mark) bool {
			return one.Last < worst.Time && process.Is(f.rule.process(one.Values)) && f.counts(w, &one, f.verdict.best.trust)
		})
	})
}

// followed is the mark of what w follows that came last before m, of the same process or thing; nil
// for none. What joins by its process was named by what it follows.
func (f *Fault) followed(w *Evidence, m *Mark) *Mark {
	var last *Mark
	for _, other := range w.follows {
		for i := range f.marks[other] {
			before := &f.marks[other][i]
			if f.trusted(f.rule.Watches[other], before, f.verdict.best.trust) && f.rule.agree(before.Values, m.Values) &&
				(!w.OfProcess || f.rule.process(before.Values).PID != "") && before.Time <= m.Last && (last == nil || before.Time >= last.Time) {
				last = before
			}
		}
	}
	return last
}
