package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Fault is all that was seen for one key of one rule, and its verdict once its
// evidence suffices.
type Fault struct {
	trail
	set     *Set
	key     string
	seq     uint64
	domain  string         // of its job: the first that a mark which begins it says
	run     string         // start of the job, where the rule tells faults apart by it
	others  []string       // boots of other machines of its name
	owner   []string       // as Rule.Owner has it of its first mark
	overdue int64          // newest time at which a mark came that was later than the lateness allows
	after   byTrust[int64] // marks of that trust that ended by then belong to an earlier fault

	joinKeys []joinKey   // where joins has it
	verdict  *conclusion // nil while its evidence does not suffice

	past    bool // it expired, and is kept for effects that show later
	aside   bool // it gave way to another of its key, and is kept for its return
	revised bool // a finding was replaced: all that rested on it is judged anew
	dead    bool // it left the state

	element *fairlru.Element[*Fault] // in waiting or, with a verdict, in open
	shelved verdict.Trust            // among which it stands there
	wait    int64                    // for the time line
}

// sighting is a mark with its evidence.
type sighting struct {
	w *Evidence
	m Mark
}

// add puts m on the time line of f, with the recent marks that waited for it,
// and evaluates.
func (f *Fault) add(w *Evidence, m Mark) {
	changed, loud, waiting := f.insert(w, m)
	if !changed {
		return
	}
	from, with := m.Time, brought{loud: loud, counts: f.adds(w, &m)}
	if f.verdict != nil {
		with.marks = append(with.marks, sighting{w, m})
	}
	for _, r := range waiting { // all at once: one may refute what another shows
		if r.w.Resolves {
			continue
		}
		if changed, fresh, _ := f.insert(r.w, r.mark); changed {
			from, with.loud, with.counts = min(from, r.mark.Time), with.loud || fresh, with.counts || f.adds(r.w, &r.mark)
			if f.verdict != nil {
				with.marks = append(with.marks, sighting{r.w, r.mark})
			}
		}
	}
	f.evaluate(from, with)
	f.part()
	for _, r := range waiting { // after the verdict: there must be something to resolve
		if r.w.Resolves && !f.dead {
			f.add(r.w, r.mark)
		}
	}
}

// ended reports whether the fault had ended before at: how a thing is then is no part of it.
func (f *Fault) ended(at int64) bool {
	v := f.verdict
	return v != nil && v.resolved != 0 && !v.withdrawn && at > v.resolved
}

// insert reports whether m changed anything, whether it told something new,
// and which marks waited for it.
func (f *Fault) insert(w *Evidence, m Mark) (changed, loud bool, waiting []*recentMark) {
	if m.Last <= *f.after.of(m.Trust) || w.Reboot && !f.mayEnd(&m) || w.Newest && f.ended(m.Time) {
		return false, false, nil
	}
	first, changed := f.put(w, m)
	if !changed {
		return false, false, nil
	}
	f.touch(w, &m)
	mixed := w.join < 0 && f.began < m.Trust
	fresh := f.learn(w, &m)
	if mixed { // what joined by a weaker mark may be trusted now
		f.relearn()
	}
	switch {
	case f.revised:
		waiting = f.rejoin()
	case w.join < 0:
		waiting = f.set.waitingFor(f, f.set.joins.enter(f, m.Values))
	}
	return true, first || fresh || f.worsens(w, &m), waiting
}

// touch notes when f was last seen: by m, and by what counts because m came before it. What names
// nothing, and what does not count, keeps nothing open.
func (f *Fault) touch(w *Evidence, m *Mark) {
	if f.trusted(w, m, f.named()) && (w.Resolves || m.Gone || f.counts(w, m, f.named())) {
		f.touched, f.overdue = max(f.touched, m.Last), max(f.overdue, m.Overdue)
	}
	for i, other := range f.rule.Watches {
		if !slices.Contains(other.follows, w.index) {
			continue
		}
		for j := range f.marks[i] {
			if after := &f.marks[i][j]; f.counts(other, after, f.named()) {
				f.touched, f.overdue = max(f.touched, after.Last), max(f.overdue, after.Overdue)
			}
		}
	}
}

// adds reports whether m adds to what the verdict says: it is trusted as much, quoted, or asked for
// by other evidence. A place that is left is told when it is (leavePlaces).
func (f *Fault) adds(w *Evidence, m *Mark) bool {
	if w.left(m) {
		return false
	}
	return f.trusted(w, m, f.named()) && (w.Resolves || m.Gone || f.counts(w, m, f.named())) || (len(w.quotes) > 0 || w.said) && f.trusted(w, m, verdict.Claimed)
}

// named is the least trust of a mark that names and dates the fault: that of its verdict.
func (f *Fault) named() verdict.Trust {
	if f.verdict == nil {
		return verdict.Foreign
	}
	return f.verdict.best.trust
}

// stands is the least trust of what can clear or refute the fault.
func (f *Fault) stands() verdict.Trust {
	if f.verdict == nil {
		return verdict.Foreign
	}
	return f.verdict.best.stands
}

// put inserts m in order of time, or corrects the mark it repeats. It reports
// whether it is the first of its kind, and whether anything changed.
func (f *Fault) put(w *Evidence, m Mark) (first, changed bool) {
	marks := f.marks[w.index]
	at := find(marks, &m)
	switch {
	case m.Finding:
		return f.putFinding(w, at, m)
	case at >= 0 && m.Count <= 0:
		f.keep(w, slices.Delete(marks, at, at+1))
		return false, true
	case at >= 0 && marks[at].merge(&m):
		slices.SortStableFunc(marks, compare)
		f.keep(w, marks)
		return false, true
	case at >= 0 || m.Count <= 0:
		return false, false
	}
	at, _ = slices.BinarySearchFunc(marks, m, compare)
	switch {
	case w.left(&m):
		return f.putLeft(w, m)
	case w.Newest:
		if slices.ContainsFunc(marks, func(o Mark) bool { return f.replaces(&o, &m) && w.comesLate(&m, &o) }) {
			return false, false
		}
		marks = append(slices.DeleteFunc(marks[:at:at], func(o Mark) bool { return f.replaces(&m, &o) }), marks[at:]...)
		at, _ = slices.BinarySearchFunc(marks, m, compare)
	}
	f.keep(w, slices.Insert(marks, at, m))
	if most := max(f.set.opts.Marks, w.keep); len(f.marks[w.index]) > most+most/8 {
		f.set.stats.EvictedMarks += f.fold(w.index, most, f.named())
	}
	return len(f.marks[w.index]) == 1, true
}

// replaces reports whether a later mark says how the thing of an earlier one is now.
func (f *Fault) replaces(later, earlier *Mark) bool {
	return later.Trust >= earlier.Trust && f.rule.agree(later.Values, earlier.Values)
}

// drop forgets f. Its verdict, if changed, is given out first, with counts that still wait.
func (f *Fault) drop() {
	if f.dead {
		return
	}
	goesOn := f.verdict != nil && f.goesOn() != ""
	f.dead, f.wait = true, 0 // what waits for it is stale
	f.leave()
	if f.verdict == nil {
		f.set.waiting.Remove(f.element)
		clear(f.marks) // the time line may hold f until its time comes
		return
	}
	now := f.set.time.Now()
	if goesOn { // as far as is known: nothing more is told of it
		f.verdict.ended = now
	}
	if v := f.verdict; v.given() && (v.nextQuiet != 0 || goesOn) {
		v.changed = true
	}
	f.set.emit(f)
	f.outlast(now)
	f.verdict.node.Over(func(cause incident.Verdict) { // while it still says whom f has hit
		cause.Changed()
		f.set.emit(cause.(witness).Fault)
	})
	f.set.graph.Leave(f.verdict.node)
	f.set.open.Remove(f.element)
}

// outlast notes with what led to f until when it went on, as f leaves the state or has expired: until now where
// it has not ended.
func (f *Fault) outlast(now int64) {
	v := f.verdict
	if v.withdrawn {
		return
	}
	until := v.resolved
	if until == 0 && !f.past {
		until = now
	}
	v.node.Over(func(cause incident.Verdict) {
		if w := cause.(witness); w.verdict.node.Awaits(witness{f}) {
			w.verdict.ended = max(w.verdict.ended, until)
		}
	})
}

// leave lets no more records join f.
func (f *Fault) leave() {
	if f.rule.faults[f.key] == f {
		delete(f.rule.faults, f.key)
	}
	if f.rule.aside[f.key] == f {
		delete(f.rule.aside, f.key)
	}
	f.set.joins.leave(f)
}
