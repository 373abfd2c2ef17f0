package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// holdBack lets a verdict that was never told wait for what may say that it is another, and
// reports whether it waits.
func (f *Fault) holdBack() bool {
	v, until := f.verdict, int64(0)
	if v.revision > 0 || v.resolved != 0 || f.dead {
		return false
	}
	for i := range f.rule.HoldBack {
		h := &f.rule.HoldBack[i]
		w := f.rule.watch(h.Evidence)
		first := f.first(w, v.best.trust)
		if first != nil && f.saw(w) && !slices.ContainsFunc(h.Unless, func(name string) bool { return f.saw(f.rule.watch(name)) }) {
			until = max(until, first.Time+int64(h.For))
		}
	}
	if until <= f.set.time.Now() {
		return false
	}
	v.nextQuiet = until
	f.set.time.Call(f, until)
	return true
}

// endedUntold reports whether a verdict ended before anybody was told of it, and something that it explains goes on.
func (f *Fault) endedUntold() (goesOn bool) {
	if v := f.verdict; len(f.rule.HoldBack) > 0 && v.revision == 0 && v.resolved != 0 {
		v.node.Explained(func(effect incident.Verdict) { goesOn = goesOn || effect.Resolved() == 0 })
	}
	return goesOn
}

// open is the report of f as it was before it ended.
func (f *Fault) open() verdict.Verdict {
	v := f.verdict
	resolved, closing := v.resolved, v.closing
	v.resolved, v.closing = 0, nil
	open := f.report()
	v.resolved, v.closing = resolved, closing
	open.Evidence = slices.DeleteFunc(open.Evidence, func(e verdict.Evidence) bool {
		w := f.rule.watch(e.Name)
		return w != nil && w.Resolves
	})
	return open
}

// untold reports whether a verdict was refuted before anybody was told of it.
func (f *Fault) untold() bool {
	return len(f.rule.HoldBack) > 0 && f.verdict.revision == 0 && f.verdict.withdrawn
}
