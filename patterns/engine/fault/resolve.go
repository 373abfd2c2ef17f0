package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// settle closes the verdict when the fault has cleared or was none, and opens it
// again when evidence came that stands.
func (f *Fault) settle() {
	v := f.verdict
	against := f.refuting(f.stands())
	switch {
	case v != nil && v.resolved == 0 && against != nil:
		v.withdrawn = true
		f.resolve(f.touched, nil)
		return
	case v != nil && v.withdrawn && against == nil && v.best.confidence != "":
		v.withdrawn, v.resolved, v.closing = false, 0, nil
		f.set.open.Touch(f.element, f.worth())
		f.reopened()
	}
	if v == nil {
		f.clearWaiting()
		return
	}
	cleared := f.clearing(v.best.stands)
	switch {
	case cleared == nil && v.resolved != 0 && !v.withdrawn && v.closing == nil: // only a weaker word had cleared it
		v.resolved = 0
		f.reopened()
	case cleared == nil:
	case v.resolved == 0 && f.onset(v.best.trust) <= cleared.m.Time:
		f.clearAt(*cleared)
	case v.resolved != 0 && !v.withdrawn && v.closing == nil: // one that comes late may have ended it before
		if cleared := f.clearedBefore(); cleared != nil {
			f.clearAt(*cleared)
		}
	}
}

// clearedBefore returns the first mark that clears f before its end.
func (f *Fault) clearedBefore() *sighting {
	stands := f.verdict.best.stands
	var first *sighting
	for w, m := range f.resolving(stands) {
		if m.Time >= f.onset(f.named()) && m.Time < f.verdict.resolved && (first == nil || m.Time < first.m.Time) && f.clearsAll(w, m, stands) {
			first = &sighting{w, *m}
		}
	}
	return first
}

// reopened lets all learn that f is open again.
func (f *Fault) reopened() {
	f.Changed()
	f.set.graph.Refit(f.verdict.node)
	f.verdict.node.Turned()
}

// clearWaiting forgets the marks that were cleared before there was a verdict, each by
// what is trusted as much. What cleared a weaker word alone waits for the truth: it may be
// told late, and is no less true for that word.
func (f *Fault) clearWaiting() {
	if f.clearing(verdict.Foreign) == nil {
		return
	}
	for _, trust := range verdict.Trusts() {
		if cleared := f.clearing(trust); cleared != nil && f.shows(trust) {
			after := f.after.of(trust)
			*after = max(*after, cleared.m.Time)
		}
	}
	f.dropWhere(func(m *Mark) bool { return m.Last <= *f.after.of(m.Trust) })
}

// shows reports whether a mark of that trust is evidence of the fault.
func (t *trail) shows(trust verdict.Trust) bool {
	for i, w := range t.rule.Watches {
		if !w.Resolves && slices.ContainsFunc(t.marks[i], func(m Mark) bool { return m.Trust == trust }) {
			return true
		}
	}
	return false
}

// clearedBetween returns the resolving mark, trusted as much as m, between m and an open
// fault that began after it, nil when there is none: then m belongs to the fault.
func (f *Fault) clearedBetween(m *Mark) *sighting {
	if f.verdict == nil {
		return nil
	}
	for i, w := range f.rule.Watches {
		for j := range f.marks[i] {
			r := &f.marks[i][j]
			if w.Reboot && f.rule.get(r.Values, "boot") == f.rule.get(m.Values, "boot") {
				continue
			}
			if w.Resolves && f.inPlace(w, math.MinInt64, math.MaxInt64, m.Trust) && w.clears(r, m) && f.trusted(w, r, m.Trust) && m.Time <= r.Time && r.Time < f.onset(f.named()) {
				return &sighting{w, *r}
			}
		}
	}
	return nil
}

// clearAt resolves f at that time. What came after it, and was told before it, is
// another fault. The verdict stays with the part it was first given for.
func (f *Fault) clearAt(cleared sighting) {
	at := cleared.m.Time
	if f.verdict.onset > at {
		earlier := f.takeOut(func(m Mark) bool { return m.Time <= at && m.Trust <= cleared.m.Trust })
		f.Changed()
		f.bygone(append(earlier, cleared), 0)
		return
	}
	f.endAt(at, nil)
}

// endAt resolves f at that time, and makes another fault of what came after it.
func (f *Fault) endAt(at int64, closing *verdict.Evidence) {
	after := f.takeOut(func(m Mark) bool { return m.later(at) })
	f.resolve(at, closing)
	if len(after) > 0 {
		f.set.graph.Reconsider(f.verdict.node)
	}
	for _, one := range after {
		f.set.Place(one.w, one.m)
	}
}

// bygone gives out the verdict of a fault that had ended before f began, but is
// told only now: by its marks, or where f returned then.
func (f *Fault) bygone(marks []sighting, returned int64) {
	past := f.set.begin(f.rule, f.key, f.owner)
	for _, one := range marks {
		if !past.dead {
			past.add(one.w, one.m)
		}
	}
	if v := past.verdict; returned != 0 && !past.dead && v != nil && v.resolved == 0 {
		past.resolve(returned, seenAgain(returned))
	}
	if !f.follows(past) {
		past.giveWay()
	}
	if !f.dead {
		f.rule.faults[f.key] = f
	}
}

// over reports whether the fault had cleared before m happened.
func (f *Fault) over(m *Mark) bool {
	v := f.verdict
	return v != nil && v.resolved != 0 && !v.withdrawn && m.later(v.resolved) && !f.aftermath()
}

// tooLate reports whether m came after the end of f, and so says nothing of it. Not so of a
// reboot, which ends whatever it finds; and what is trusted more may show that it had not ended.
func (f *Fault) tooLate(w *Evidence, m *Mark) bool {
	return !w.Reboot && f.over(m) && m.Trust <= f.stands()
}

// returns reports whether m, trusted as much, shows that the fault had ended and begins
// anew: it comes long after, and is of another process, say, than all that was seen.
func (f *Fault) returns(m *Mark) bool {
	again := f.rule.Returns
	if f.verdict == nil || f.verdict.resolved != 0 || again.After == 0 || m.Gone || m.Count <= 0 ||
		m.Trust < f.verdict.best.stands || m.Time <= f.touched+int64(again.After) {
		return false
	}
	return slices.ContainsFunc(f.rule.Positions(again.With), func(at int) bool { return m.Values[at] != "" && f.never(at, m.Values[at]) })
}

// seenAgain is the evidence of that.
func seenAgain(at int64) *verdict.Evidence {
	return closed("returned", at, "it was seen again, of another: it had ended before")
}

// part makes two faults of f where it began anew, in whatever order that was told.
func (f *Fault) part() {
	if f.dead || f.verdict == nil || f.verdict.resolved != 0 {
		return
	}
	switch again, ended := f.anew(); {
	case again == 0:
	case f.verdict.onset >= again:
		earlier := f.takeOut(func(m Mark) bool { return m.Time < again })
		f.Changed()
		f.bygone(earlier, ended)
	default:
		f.endAt(ended, seenAgain(ended))
	}
}

// anew is when f is first seen of another process than before, and all those had ended, and when
// the last of them had; 0 for never, and where what was seen until then outlasts its process.
func (f *Fault) anew() (again, over int64) {
	if f.rule.Returns.Ended == "" {
		return 0, 0
	}
	ended := f.rule.watch(f.rule.Returns.Ended)
	var before []incident.Process
	for _, one := range f.byTime() {
		process := f.rule.process(one.m.Values)
		switch {
		case f.rule.place(one.w, &one.m) < len(f.rule.Worst.Values):
			return 0, 0
		case process.PID == "", slices.ContainsFunc(before, process.Is):
			continue
		case len(before) > 0 && !slices.ContainsFunc(before, func(p incident.Process) bool { return !f.endedBy(p, ended, &one.m) }):
			for _, m := range f.marks[ended.index] {
				if m.Last < one.m.Time {
					over = max(over, m.Last)
				}
			}
			return one.m.Time, over
		}
		before = append(before, process)
	}
	return 0, 0
}

// endedBy reports whether w tells that a process had ended before next, and is trusted as much.
func (f *Fault) endedBy(p incident.Process, w *Evidence, next *Mark) bool {
	return slices.ContainsFunc(f.marks[w.index], func(m Mark) bool {
		return m.Last < next.Time && p.Is(f.rule.process(m.Values)) && f.counts(w, &m, next.Trust)
	})
}

// byTime returns the marks that begin f and are trusted as what it stands on, in the order of time.
func (f *Fault) byTime() (all []sighting) {
	for i, w := range f.rule.Watches {
		if w.join >= 0 || w.Resolves {
			continue
		}
		for _, m := range f.marks[i] {
			if !m.Gone && f.trusted(w, &m, f.stands()) {
				all = append(all, sighting{w, m})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b sighting) int { return compare(a.m, b.m) })
	return all
}

// never reports whether evidence that begins the fault, and is trusted, names this field,
// and never so.
func (f *Fault) never(at int, value string) bool {
	named := false
	for i, w := range f.rule.Watches {
		for j := range f.marks[i] {
			if w.join >= 0 || f.marks[i][j].Values[at] == "" || !f.trusted(w, &f.marks[i][j], f.stands()) {
				continue
			}
			if named = true; f.marks[i][j].Values[at] == value {
				return false
			}
		}
	}
	return named
}

// resolve closes the verdict at that time, and with a root cause the symptoms that
// nothing of their own can resolve. A closing evidence says why, when no mark
// does.
func (f *Fault) resolve(at int64, closing *verdict.Evidence) {
	v := f.verdict
	v.resolved, v.closing = at, closing
	f.leavePlaces()
	f.set.open.Touch(f.element, f.worth())
	f.Changed()
	f.set.graph.Ended(v.node)
}

// closed is evidence that the engine itself gives for the end of a verdict.
func closed(name string, at int64, shows string) *verdict.Evidence {
	return &verdict.Evidence{Name: name, Time: moment(at), Count: 1, Source: verdict.EventName, Shows: shows}
}

// clears reports whether the rule has evidence of its own that a fault has cleared, beside
// a reboot.
func (r *Rule) clears() bool {
	return slices.ContainsFunc(r.Resolves, func(e rule.Evidence) bool { return !e.Reboot })
}
