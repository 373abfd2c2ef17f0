package incident

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// explain makes effect a symptom of cause, if the cause explains it and no better
// cause is known.
func (g *Graph) explain(cause, effect *Node, l *Link) {
	switch {
	case cause == effect:
		return
	case effect.parent == nil && !effect.IsRoot(): // its cause has left the state
		return
	case effect.parent != nil && !better(cause, l, effect.parent, effect.via):
		return
	case !explains(cause.verdict, effect.verdict, l):
		return
	case cause.descendsFrom(effect): // they explain each other
		if cause.parent != effect || !first(cause.verdict, effect.verdict) {
			return
		}
		cause.Turned()
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
func explains(cause, effect Verdict, l *Link) bool {
	return l.oneJob(cause, effect) && l.oneRun(cause, effect) && !cause.Withdrawn() && !effect.Withdrawn() && inTime(cause, effect, l) && l.stands(cause, effect)
}

// stands reports whether l holds by what the evidence of both tells and whom it names.
func (l *Link) stands(cause, effect Verdict) bool {
	return l.told(cause, effect) && l.fits(cause, effect) && !l.blames(cause, effect)
}

// told reports whether l allows what the evidence of both tells.
func (l *Link) told(cause, effect Verdict) bool {
	return l.accuses(cause, effect, effect.Onset()-int64(l.After)) &&
		(len(l.When) == 0 || slices.ContainsFunc(l.When, cause.Saw)) && !slices.ContainsFunc(l.Except, effect.Saw)
}

// oneJob reports whether two jobs of one id can be the same.
func (l *Link) oneJob(cause, effect Verdict) bool {
	a, b := cause.Domain(), effect.Domain()
	return !l.OfJob || a == "" || b == "" || a == b
}

// oneRun reports whether cause can have an effect on the start of the job that effect is about.
// Where they share the
// job, both are of one start of it. A machine, a mount, and what is of no start outlast them.
func (l *Link) oneRun(cause, effect Verdict) bool {
	of, all := []string{cause.Run()}, cause.Run() != ""
	if !all && l.OfJob {
		of, all = cause.Runs()
	}
	if !all || len(of) == 0 {
		return true
	}
	runs, _ := effect.Runs()
	return len(runs) == 0 || meet(of, runs) || together(cause, effect, of, runs)
}

// together reports whether both began since two of these starts are one job: a rank that began again alone
// and those that live.
func together(cause, effect Verdict, of, runs []string) bool {
	for _, one := range of {
		for _, other := range runs {
			if since := cause.Together(one, other); since != 0 && cause.Began() >= since && effect.Began() >= since {
				return true
			}
		}
	}
	return false
}

// inTime reports whether effect began when l allows, in event time: after its cause, and
// within its time from it; before the cause ended, or so soon after that its end shows. Of an effect whose first sign may
// precede its cause it does not ask more, but where l is near: then the cause was seen about when
// the effect began. Silence ends no cause where effects come after
// a time. How late a record arrives does not matter here.
func inTime(cause, effect Verdict, l *Link) bool {
	began, since := effect.Began(), cause.Began()
	switch told := effect.Onset() - cause.Onset(); {
	case told > int64(l.Within), l.After > 0 && told < int64(l.After), began < since-int64(l.Early):
		return false
	case effect.Resolved() != 0 && effect.Resolved() < since-int64(l.Over): // it was over
		return false
	case l.Near > 0 && !cause.SeenBetween(l.When, began-int64(l.Near), began+int64(l.Early)):
		return false
	case cause.Resolved() != 0 && !cause.Expired() && began > cause.Resolved()+int64(l.Lingers):
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

// first reports whether a is the root cause of two that explain each other: a fault stands above information, and
// what is certain above what is likely; then what people were told of stays where it is, or else the earlier is.
func first(a, b Verdict) bool {
	switch mild := a.Severity() == verdict.Info; {
	case mild != (b.Severity() == verdict.Info):
		return !mild
	case a.Full() != b.Full():
		return a.Full()
	case a.Leads() != b.Leads():
		return a.Leads()
	}
	return earlier(a, b)
}

// earlier orders verdicts by when they began, then by pattern id and verdict id, so that
// the order of arrival does not show.
func earlier(a, b Verdict) bool {
	switch {
	case a.Began() != b.Began():
		return a.Began() < b.Began()
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
