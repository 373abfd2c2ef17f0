package engine

import (
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// withdrawnEvidence closes a verdict whose finding its detector took back.
const withdrawnEvidence = "withdrawn"

// find puts a finding on the time line, or in the place at of the one it
// replaces. One that is taken back before anyone was told leaves no trace.
func (inst *instance) find(w *watch, at int, m mark) (first, changed bool) {
	marks := inst.marks[w.index]
	if at < 0 {
		if m.Gone || m.Count <= 0 {
			return false, false
		}
		inst.marks[w.index] = append(marks, m)
		slices.SortStableFunc(inst.marks[w.index], func(a, b mark) int { return a.compare(&b) })
		return true, true
	}
	old := marks[at]
	news := old.Gone != m.Gone || old.Time != m.Time || !slices.Equal(old.Values, m.Values) || !slices.Equal(old.Ranks, m.Ranks) ||
		!maps.EqualFunc(old.Lists, m.Lists, slices.Equal[[]int])
	if !news && old.Last == m.Last {
		return false, false
	}
	inst.revised = inst.revised || news
	if m.Count <= 0 || m.Gone && inst.verdict == nil {
		inst.revised = true
		inst.marks[w.index] = slices.Delete(marks, at, at+1)
		return false, true
	}
	if m.Gone { // what it had shown stays to be read
		m.Values, m.Ranks, m.Lists = old.Values, old.Ranks, old.Lists
	}
	marks[at] = m
	slices.SortStableFunc(marks, func(a, b mark) int { return a.compare(&b) })
	return news, true
}

// revise has inst join by what its findings say now: evidence that only an
// earlier finding led to leaves, the recent marks that fit now are returned.
func (e *Engine) revise(inst *instance) []*recentMark {
	e.unjoin(inst)
	var waiting []*recentMark
	for i, w := range inst.state.watches {
		for j := range inst.marks[i] {
			if w.join < 0 {
				waiting = append(waiting, e.register(inst, inst.marks[i][j].Values)...)
			}
		}
	}
	for i, w := range inst.state.watches {
		inst.marks[i] = slices.DeleteFunc(inst.marks[i], func(m mark) bool {
			leaves := !inst.joined(w, &m)
			if leaves {
				e.recent.giveBack(e, w, m)
			}
			return leaves
		})
	}
	inst.relearn()
	return waiting
}

// joined reports whether m still belongs to inst.
func (inst *instance) joined(w *watch, m *mark) bool {
	if w.join < 0 {
		return true
	}
	t, ok := tuple(m.Values, w.match)
	return ok && slices.Contains(inst.joinKeys, joinKey(inst.state, w.join, t))
}

// reconsider gives a verdict whose finding was replaced what it now says, less
// than before too. When nothing is left that it rests on, it is withdrawn.
func (e *Engine) reconsider(inst *instance, best finding) {
	v := inst.verdict
	e.open.touch(inst.element)
	v.best = best
	e.touchVerdict(inst)
	e.reconnect(inst)
	if best.confidence == "" && !v.withdrawn && v.resolved == 0 {
		v.withdrawn = true
		e.resolve(inst, inst.touched, &verdict.Evidence{
			Name: withdrawnEvidence, Time: moment(inst.touched), Count: 1, Source: verdict.EventName,
			Shows: "what came later refutes it",
		})
	}
}

// reconnect looks anew for what inst explains and what explains it.
func (e *Engine) reconnect(inst *instance) {
	children := slices.Clone(inst.verdict.children)
	alone := inst.verdict.parent == nil // its cause, if it had one, has left the state and keeps it
	e.quietlyAbove(inst)
	e.unlink(inst)
	for _, one := range append(children, inst) {
		if one != inst || !alone {
			one.verdict.root = one.verdict.id
		}
		e.touchVerdict(one)
		e.reroot(one)
	}
	e.connect(inst)
	for _, child := range children {
		if child.verdict.parent == nil {
			e.forgetLinks(child)
			e.connect(child)
		}
	}
}
