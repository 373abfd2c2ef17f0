package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// holdBack lets a verdict that was never told wait for what may say that it is another, and
// reports whether it waits: also where its job was started again meanwhile, as it is told as open first.
func (f *Fault) holdBack() bool {
	v, until := f.verdict, int64(0)
	if v.given() || v.resolved != 0 && !f.byRestart() || f.dead {
		return false
	}
	for i := range f.rule.HoldBack {
		h := &f.rule.HoldBack[i]
		if since := f.holdsSince(f.rule.watch(h.Evidence)); since != 0 && !slices.ContainsFunc(h.Unless, f.shown) {
			until = max(until, since+int64(h.For))
		}
	}
	if until <= f.set.time.Now() {
		return false
	}
	v.nextQuiet = until
	f.set.time.Call(f, until)
	return true
}

// shown reports whether evidence of that name was seen, also by a weaker word than that of the verdict, if the rule
// takes that for certain.
func (f *Fault) shown(name string) bool {
	w := f.rule.watch(name)
	return f.saw(w) || f.holds(w, math.MinInt64, math.MaxInt64, f.rule.Trust.Full)
}

// holdsSince is since when evidence holds a verdict back, 0 where it does not. What a detector found, and what the thing
// that is named says of itself, may have begun long before there is a verdict: that waits since it was made.
func (f *Fault) holdsSince(w *Evidence) int64 {
	v, since := f.verdict, int64(0)
	switch first := f.first(w, v.best.trust); {
	case len(w.quotes) > 0 && f.saysOfItself(w):
	case first == nil || !f.saw(w):
		return 0
	case !first.Finding:
		return first.Time
	default:
		since = first.Time
	}
	if v.held == 0 {
		v.held = f.set.time.Now()
	}
	return max(since, v.held)
}

// Resumed notes that the program goes on after a time in which nobody spoke: what verdicts wait for may be said now. It
// reports whether any waits.
func (s *Set) Resumed(now int64) (waits bool) {
	for _, list := range []*fairlru.List[*Fault]{&s.waiting, &s.open} {
		list.Each(func(f *Fault) {
			if v := f.verdict; v != nil && v.held != 0 && !v.given() {
				v.held, waits = max(v.held, now), true
			}
		})
	}
	return waits
}

// saysOfItself reports whether the thing that the verdict names says of itself what w quotes.
func (f *Fault) saysOfItself(w *Evidence) bool {
	for _, lead := range f.naming {
		return slices.ContainsFunc(w.quotes, func(at int) bool { return f.quotedFrom(w, at, lead.Values) != "" })
	}
	return false
}

// untold reports whether a verdict was refuted before anybody was told of it.
func (f *Fault) untold() bool {
	return len(f.rule.HoldBack) > 0 && f.verdict.revision == 0 && f.verdict.withdrawn
}
