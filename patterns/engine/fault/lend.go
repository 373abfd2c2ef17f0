package fault

import (
	"math"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// conditional reports whether w needs more than one trusted mark to hold: more of them, other evidence
// before it, or to be of the job of the fault.
func (w *Evidence) conditional() bool {
	return w.Follows != nil || w.Occurs.Count > 1 || w.Occurs.Values > 1 || w.depends() || w.OfMachine
}

// bears reports whether w holds in what was seen. Evidence that does not, or that speaks against a
// fault, says nothing of whose it is.
func (f *Fault) bears(w *Evidence) bool {
	switch {
	case w.Resolves || f.rule.refutes(w.Name):
		return false
	case !w.conditional():
		return true
	}
	return f.saw(w) || f.everSaw(w)
}

// lending yields the marks that say whose fault it is: those that count, of evidence that holds.
func (f *Fault) lending(yield func(*Evidence, *Mark) bool) {
	for i, w := range f.rule.Watches {
		if len(f.marks[i]) == 0 || !f.bears(w) {
			continue
		}
		for j := range f.marks[i] {
			if m := &f.marks[i][j]; f.lends(w, m) && !yield(w, m) {
				return
			}
		}
	}
}

// lends reports whether m, of evidence that bears, says whose fault it is.
func (f *Fault) lends(w *Evidence, m *Mark) bool {
	return f.counts(w, m, f.verdict.best.trust) && f.reached(w, m, f.verdict.best.trust)
}

// bearing is the conditional evidence that holds.
func (f *Fault) bearing() (h held) {
	for _, w := range f.rule.Watches {
		if w.conditional() && len(f.marks[w.index]) > 0 && f.bears(w) {
			h.add(w.index)
		}
	}
	return h
}

// ofAnotherJob reports whether m, which joins by the machine alone, is of another job than what names
// the fault: who shares a machine shares no fate.
func (t *trail) ofAnotherJob(m *Mark, least verdict.Trust) bool {
	mine, another := t.rule.process(m.Values).Job, false
	for i, w := range t.rule.Watches {
		for j := range t.marks[i] {
			led := &t.marks[i][j]
			if w.join >= 0 || led.Trust < least {
				continue
			}
			job := t.rule.process(led.Values).Job
			if mine.Is(job) {
				return false
			}
			another = another || job.ID != ""
		}
	}
	return another && mine.ID != ""
}

// lent adds the ranks of marks of w that count, before some of them leave.
func (t *trail) lent(w *Evidence) {
	if !w.conditional() || !t.holds(w, math.MinInt64, math.MaxInt64, verdict.Foreign) {
		return
	}
	for j := range t.marks[w.index] {
		if m := &t.marks[w.index][j]; t.counts(w, m, m.Trust) {
			t.addRanks(w, m)
		}
	}
}
