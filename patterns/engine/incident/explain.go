package incident

import "slices"

// explain makes effect a symptom of cause, if the cause explains it and no better
// cause is known.
func (g *Graph) explain(cause, effect *Node, l *Link) {
	switch {
	case cause == effect, !g.explains(cause.verdict, effect.verdict, l):
		return
	case effect.parent == nil && !effect.IsRoot(): // its cause has left the state
		return
	case effect.parent != nil && !better(cause, l, effect.parent, effect.via):
		return
	case cause.descendsFrom(effect): // they explain each other: the earlier one does
		if cause.parent != effect || !earlier(cause.verdict, effect.verdict) {
			return
		}
		cause.detach()
		cause.root = cause.verdict.ID()
		cause.verdict.Changed()
		cause.reroot()
	}
	effect.attach(cause, l)
	if cause.verdict.Resolved() != 0 {
		effect.verdict.CauseCleared(cause.verdict)
	}
}

// explains decides whether l holds between two verdicts.
func (g *Graph) explains(cause, effect Verdict, l *Link) bool {
	until := effect.Onset() - int64(l.After)
	return l.oneJob(cause, effect) && !cause.Withdrawn() && !effect.Withdrawn() && g.inTime(cause, effect, l) && l.accuses(cause, effect, until) && l.fits(cause, effect) &&
		!slices.ContainsFunc(l.Unless, func(evidence int) bool { return cause.Saw(evidence, until) })
}

// oneJob reports whether two jobs of one id can be the same.
func (l *Link) oneJob(cause, effect Verdict) bool {
	a, b := cause.Domain(), effect.Domain()
	return !l.OfJob || a == "" || b == "" || a == b
}

// inTime reports whether effect began when l allows: within its time from the
// cause, or up to the lateness before it; not after the cause has cleared. Silence
// does not clear a cause where effects come after a time.
func (g *Graph) inTime(cause, effect Verdict, l *Link) bool {
	early, began := g.lateness, effect.Onset()
	switch late := began - cause.Onset(); {
	case late > int64(l.Within), l.After == 0 && late < -early, l.After > 0 && late < int64(l.After):
		return false
	case cause.Resolved() != 0 && !cause.Expired() && began > cause.Resolved()+early:
		return false
	}
	return true
}

// accuses reports whether the ranks that cause had until then are in the lists of
// effect as l wants them.
func (l *Link) accuses(cause, effect Verdict, until int64) bool {
	if len(l.In)+len(l.NotIn) == 0 {
		return true
	}
	seen, all := cause.RanksUntil(until)
	if effect.Lists(l.NotIn, seen) {
		return false
	}
	return len(l.In) == 0 || effect.Lists(l.In, seen) || !all && effect.Lists(l.In, cause.Ranks())
}

// better reports whether a explains more than b: it shares more fields, or else
// began earlier.
func better(a *Node, via *Link, b *Node, viaB *Link) bool {
	if via.Shared != viaB.Shared {
		return via.Shared > viaB.Shared
	}
	return earlier(a.verdict, b.verdict)
}

// earlier orders verdicts by onset, then by pattern id and verdict id, so that
// the order of arrival does not show.
func earlier(a, b Verdict) bool {
	switch {
	case a.Onset() != b.Onset():
		return a.Onset() < b.Onset()
	case a.PatternID() != b.PatternID():
		return a.PatternID() < b.PatternID()
	default:
		return a.ID() < b.ID()
	}
}

// KeepUntil is how long an expired cause is kept because an effect of l may show
// that late; 0 when there is none.
func (l *Link) KeepUntil(onset int64) int64 {
	if l.After == 0 {
		return 0
	}
	return onset + int64(l.Within)
}
