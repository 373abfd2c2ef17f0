package engine

import (
	"math"
	"slices"
	"strconv"
)

// linkEnds are the open verdicts that share the values of one explanation's
// fields: those that may explain, and those that may be explained.
type linkEnds struct {
	causes, effects []*instance
}

// connect enters inst under the explanations of its rule and looks for what it
// explains and what explains it.
func (e *Engine) connect(inst *instance) { e.connectTo(inst, e.explain) }

// connectQuietly only enters inst: who explains whom is already known.
func (e *Engine) connectQuietly(inst *instance) {
	e.connectTo(inst, func(_, _ *instance, _ *link) {})
}

func (e *Engine) connectTo(inst *instance, found func(cause, effect *instance, l *link)) {
	for i, w := range inst.state.watches {
		if w.resolves {
			break
		}
		for j := range inst.marks[i] {
			values := inst.marks[i][j].Values
			for _, l := range inst.state.causes {
				e.enter(inst, l, values, true, found)
			}
			for _, l := range inst.state.effects {
				e.enter(inst, l, values, false, found)
			}
		}
	}
}

func (e *Engine) enter(inst *instance, l *link, values []string, cause bool, found func(cause, effect *instance, l *link)) {
	positions := l.theirs
	if cause {
		positions = l.mine
	}
	t, ok := tuple(values, positions)
	if !ok {
		return
	}
	key := linkKey(l, t)
	own := key + "/effect"
	if cause {
		own = key + "/cause"
	}
	if slices.Contains(inst.linkKeys, own) || len(inst.linkKeys) >= maxKeys {
		return
	}
	inst.linkKeys = append(inst.linkKeys, own)
	ends := e.linked[key]
	if ends == nil {
		ends = &linkEnds{}
		e.linked[key] = ends
	}
	if cause {
		ends.causes = e.limited(append(ends.causes, inst))
		for _, effect := range ends.effects {
			found(inst, effect, l)
		}
		return
	}
	ends.effects = e.limited(append(ends.effects, inst))
	for _, other := range ends.causes {
		found(other, inst, l)
	}
}

func linkKey(l *link, tuple string) string { return strconv.Itoa(l.no) + "/" + tuple }

// explain makes effect a symptom of cause, if that fits in time and no better
// cause is known: one that shares more fields, then the earlier one, then the
// smaller pattern id and verdict id.
func (e *Engine) explain(cause, effect *instance, l *link) {
	a, b := cause.verdict, effect.verdict
	switch {
	case cause == effect, !e.inTime(cause, effect, l), a.withdrawn, b.withdrawn:
		return
	case b.parent == nil && b.root != b.id: // its cause has left the state
		return
	case b.parent != nil && !betterCause(cause, l, b.parent, b.via):
		return
	case cause.descendsFrom(effect): // they explain each other: the earlier one does
		if a.parent != effect || !earlier(cause, effect) {
			return
		}
		e.detach(cause)
		a.root = a.id
		e.touchVerdict(cause)
		e.reroot(cause)
	}
	e.quietlyAbove(effect)
	e.detach(effect)
	b.parent, b.via = cause, l
	a.children = append(a.children, effect)
	e.reroot(effect)
	e.quietlyAbove(effect)
	if a.resolved != 0 {
		e.resolveWith(effect, cause)
	}
}

// inTime reports whether effect began when l allows: within its time from the
// cause, or up to the lateness before it; not after the cause has cleared. That
// nothing more was heard of a cause clears nothing where effects come after a time.
func (e *Engine) inTime(cause, effect *instance, l *link) bool {
	early, began := int64(e.opts.Lateness), effect.verdict.onset
	a := cause.verdict
	switch late := began - a.onset; {
	case late > l.within, l.after == 0 && late < -early, l.after > 0 && late < l.after:
		return false
	case a.resolved != 0 && !cause.past && began > a.resolved+early:
		return false
	}
	return l.ranksFit(cause, effect, began-l.after) && !slices.ContainsFunc(l.unless, func(w *watch) bool {
		return cause.holds(w, math.MinInt64, began-l.after)
	})
}

// ranksFit reports whether the ranks that cause had until then are in the lists
// of effect as l wants them.
func (l *link) ranksFit(cause, effect *instance, until int64) bool {
	if len(l.in)+len(l.notIn) == 0 {
		return true
	}
	seen, all := cause.ranksUntil(until)
	if effect.lists(l.notIn, seen) {
		return false
	}
	return len(l.in) == 0 || effect.lists(l.in, seen) || !all && effect.lists(l.in, cause.ranks)
}

// ranksUntil returns the ranks of the marks until then; all is false when marks
// have left because of the cap.
func (inst *instance) ranksUntil(until int64) (ranks []int, all bool) {
	all = true
	for i := range inst.marks {
		all = all && inst.folded[i] == 0
		for j := range inst.marks[i] {
			m := &inst.marks[i][j]
			if m.Time > until || m.Gone || inst.state.rank < 0 {
				continue
			}
			ranks = union(ranks, m.Ranks)
			if rank, ok := parseRank(m.Values[inst.state.rank]); ok && !inst.state.list {
				ranks = union(ranks, []int{rank})
			}
		}
	}
	return ranks, all
}

// lists reports whether one of the ranks is in one of these fields.
func (inst *instance) lists(fields, ranks []int) bool {
	for i := range inst.marks {
		for j := range inst.marks[i] {
			for _, field := range fields {
				if meet(inst.marks[i][j].Lists[field], ranks) {
					return true
				}
			}
		}
	}
	return false
}

// meet reports whether two sorted lists have a rank in common.
func meet(a, b []int) bool {
	return slices.ContainsFunc(b, func(rank int) bool {
		_, there := slices.BinarySearch(a, rank)
		return there
	})
}

func betterCause(a *instance, via *link, b *instance, viaB *link) bool {
	if len(via.mine) != len(viaB.mine) {
		return len(via.mine) > len(viaB.mine)
	}
	return earlier(a, b)
}

// earlier orders verdicts by onset, then by pattern id and verdict id, so that
// the order of arrival does not show.
func earlier(a, b *instance) bool {
	switch {
	case a.verdict.onset != b.verdict.onset:
		return a.verdict.onset < b.verdict.onset
	case a.state.rule.ID != b.state.rule.ID:
		return a.state.rule.ID < b.state.rule.ID
	default:
		return a.verdict.id < b.verdict.id
	}
}

// descendsFrom reports whether other explains inst, directly or not.
func (inst *instance) descendsFrom(other *instance) bool {
	for at := inst; at != nil; at = at.verdict.parent {
		if at == other {
			return true
		}
	}
	return false
}

// top is the root cause of inst.
func (inst *instance) top() *instance {
	for inst.verdict.parent != nil {
		inst = inst.verdict.parent
	}
	return inst
}

// reroot tells inst and all it explains who their root cause is.
func (e *Engine) reroot(inst *instance) {
	root := inst.top().verdict.root
	stack := []*instance{inst}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at.verdict.root != root {
			at.verdict.root = root
			e.touchVerdict(at)
		}
		stack = append(stack, at.verdict.children...)
	}
}

// quietlyAbove has what explains inst, directly or not, tell its blast radius
// anew.
func (e *Engine) quietlyAbove(inst *instance) {
	for above := inst.verdict.parent; above != nil; above = above.verdict.parent {
		e.quietly(above)
	}
}

// detach takes inst from what explains it.
func (e *Engine) detach(inst *instance) {
	parent := inst.verdict.parent
	if parent == nil {
		return
	}
	parent.verdict.children = slices.DeleteFunc(parent.verdict.children, func(o *instance) bool { return o == inst })
	inst.verdict.parent, inst.verdict.via = nil, nil
}

// unlink takes a dropped fault from its incident. Its symptoms keep the root
// cause they were given.
func (e *Engine) unlink(inst *instance) {
	e.detach(inst)
	for _, child := range inst.verdict.children {
		child.verdict.parent, child.verdict.via = nil, nil
	}
	inst.verdict.children = nil
	e.forgetLinks(inst)
}

// forgetLinks takes inst out of the index of explanations.
func (e *Engine) forgetLinks(inst *instance) {
	for _, own := range inst.linkKeys {
		key := own[:len(own)-len(cutRole(own))]
		ends := e.linked[key]
		if ends == nil {
			continue
		}
		is := func(o *instance) bool { return o == inst }
		ends.causes = slices.DeleteFunc(ends.causes, is)
		ends.effects = slices.DeleteFunc(ends.effects, is)
		if len(ends.causes)+len(ends.effects) == 0 {
			delete(e.linked, key)
		}
	}
	inst.linkKeys = nil
}

// cutRole returns the role at the end of a link key.
func cutRole(own string) string {
	if own[len(own)-1] == 'e' {
		return "/cause"
	}
	return "/effect"
}
