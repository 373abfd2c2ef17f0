package fault

import (
	"slices"
)

// holdBack lets a verdict that was never told wait for what may say that it is another, and
// reports whether it waits.
func (f *Fault) holdBack() bool {
	v, until := f.verdict, int64(0)
	if v.given() || v.resolved != 0 || f.dead {
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

// untold reports whether a verdict was refuted before anybody was told of it.
func (f *Fault) untold() bool {
	return len(f.rule.HoldBack) > 0 && f.verdict.revision == 0 && f.verdict.withdrawn
}
