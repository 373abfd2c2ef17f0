package engine

import (
	"container/list"
	"slices"
)

// instance is one fault of one rule: the marks seen for one key, and its
// verdict once its evidence suffices.
type instance struct {
	state   *ruleState
	key     string
	seq     uint64
	marks   [][]mark  // by watch, each sorted by time
	folded  []float64 // counts of marks that left because of the cap, by watch
	known   uint64    // fields that have a value, one bit each
	ranks   []int     // seen on its marks, sorted
	touched int64     // newest time of a mark
	heard   int64     // newest time at which a mark came that was later than the lateness allows
	after   int64     // marks that ended by then belong to an earlier fault

	joinKeys []string    // where joins has it
	linkKeys []string    // where linked has it
	verdict  *conclusion // nil while its evidence does not suffice

	past    bool // it expired, and is kept for effects that show later
	revised bool // a finding was replaced: all that rested on it is judged anew

	element *list.Element // in waiting or, with a verdict, in open
	wait    int64         // for the tasks
	dead    bool
}

// maxRanks bounds a blast radius: more ranks than any job has.
const maxRanks = 1 << 17

// place gives m to the faults it belongs to: to the fault of its key, which it
// may begin, or to those it joins, now or when they begin.
func (e *Engine) place(w *watch, m mark) {
	t, _ := tuple(m.Values, w.match)
	if w.join < 0 {
		inst := e.fault(w, t, &m)
		if inst != nil {
			e.add(inst, w, m)
		}
		return
	}
	key := joinKey(w.state, w.join, t)
	e.recent.add(e, key, w, m)
	for _, inst := range slices.Clone(e.joins[key]) {
		if !inst.dead {
			e.add(inst, w, m)
		}
	}
}

// fault returns the fault of key that m belongs to, made when there is none.
// A fault that has cleared before m gives way to a new one.
func (e *Engine) fault(w *watch, key string, m *mark) *instance {
	inst := w.state.instances[key]
	if inst != nil && inst.over(m.Time) {
		after := inst.verdict.resolved
		e.drop(inst)
		inst = e.begin(w.state, key)
		inst.after = after
	}
	if inst == nil && m.Count > 0 && !m.Gone {
		return e.begin(w.state, key)
	}
	if inst != nil {
		if cleared := inst.clearedBetween(m); cleared != nil {
			e.bygone(inst, []late{{w, *m}}, *cleared)
			return nil
		}
	}
	return inst
}

// clearedBetween returns the resolving mark between m and an open fault that
// began after it, nil when there is none: then m belongs to the fault.
func (inst *instance) clearedBetween(m *mark) *late {
	if inst.verdict == nil {
		return nil
	}
	for i, w := range inst.state.watches {
		for j := range inst.marks[i] {
			r := &inst.marks[i][j]
			if w.resolves && m.Time <= r.Time && r.Time < inst.onset() {
				return &late{w, *r}
			}
		}
	}
	return nil
}

// late is a mark with its evidence.
type late struct {
	w *watch
	m mark
}

// bygone gives out the verdict of a fault that had cleared before inst began,
// and of which only now is heard.
func (e *Engine) bygone(inst *instance, marks []late, cleared late) {
	past := e.begin(inst.state, inst.key)
	for _, one := range append(marks, cleared) {
		if !past.dead {
			e.add(past, one.w, one.m)
		}
	}
	e.drop(past)
	if !inst.dead {
		inst.state.instances[inst.key] = inst
	}
}

// over reports whether the fault had cleared before at.
func (inst *instance) over(at int64) bool {
	v := inst.verdict
	return v != nil && v.resolved != 0 && !v.withdrawn && at > v.resolved
}

func (e *Engine) begin(s *ruleState, key string) *instance {
	e.seq++
	inst := &instance{
		state: s, key: key, seq: e.seq,
		marks: make([][]mark, len(s.watches)), folded: make([]float64, len(s.watches)),
	}
	s.instances[key] = inst
	inst.element = e.waiting.add(inst)
	if e.waiting.len() > e.opts.Waiting {
		e.stats.EvictedWaiting++
		e.drop(e.waiting.oldest())
	}
	return inst
}

// add puts m on the time line of inst, with the recent marks that waited for it,
// and evaluates.
func (e *Engine) add(inst *instance, w *watch, m mark) {
	changed, loud, waiting := e.insertMark(inst, w, m)
	if !changed {
		return
	}
	from := m.Time
	for _, r := range waiting { // all at once: one may refute what another shows
		if r.w.resolves {
			continue
		}
		if changed, fresh, _ := e.insertMark(inst, r.w, r.mark); changed {
			from, loud = min(from, r.mark.Time), loud || fresh
		}
	}
	e.evaluate(inst, from, loud)
	for _, r := range waiting { // after the verdict: there must be something to resolve
		if r.w.resolves && !inst.dead {
			e.add(inst, r.w, r.mark)
		}
	}
}

// insertMark reports whether m changed anything, whether it told something new,
// and which marks waited for it.
func (e *Engine) insertMark(inst *instance, w *watch, m mark) (changed, loud bool, waiting []*recentMark) {
	if m.Last <= inst.after {
		return false, false, nil
	}
	first, changed := e.upsert(inst, w, m)
	if !changed {
		return false, false, nil
	}
	inst.touched, inst.heard = max(inst.touched, m.Last), max(inst.heard, m.Heard)
	fresh := inst.learn(&m)
	switch {
	case inst.revised:
		waiting = e.revise(inst)
	case w.join < 0:
		waiting = e.register(inst, m.Values)
	}
	return true, first || fresh, waiting
}

// learn takes note of values and ranks; it reports whether a field got its first
// value.
func (inst *instance) learn(m *mark) bool {
	before := inst.known
	for i, v := range m.Values {
		if v != "" {
			inst.known |= 1 << i
		}
	}
	switch {
	case inst.state.list:
		inst.addRanks(m.Ranks)
	case inst.state.rank >= 0:
		if rank, ok := parseRank(m.Values[inst.state.rank]); ok {
			inst.addRanks([]int{rank})
		}
	}
	return inst.known != before
}

// relearn takes note anew of values and ranks after marks have left. What was
// evicted because of the cap cannot be read any more: its ranks stay.
func (inst *instance) relearn() {
	inst.known = 0
	if !slices.ContainsFunc(inst.folded, func(f float64) bool { return f != 0 }) {
		inst.ranks = nil
	}
	for i := range inst.marks {
		for j := range inst.marks[i] {
			inst.learn(&inst.marks[i][j])
		}
	}
}

// addRanks adds sorted ranks.
func (inst *instance) addRanks(ranks []int) {
	for _, rank := range ranks {
		at, there := slices.BinarySearch(inst.ranks, rank)
		if !there && len(inst.ranks) < maxRanks {
			inst.ranks = slices.Insert(inst.ranks, at, rank)
		}
	}
}

// parseRank reads a rank: a number from 0 to 2^31-1 without sign.
func parseRank(text string) (int, bool) {
	if text == "" || len(text) > 10 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= 1<<31-1
}

// drop forgets inst. Its verdict, if changed, is given out first.
func (e *Engine) drop(inst *instance) {
	if inst.dead {
		return
	}
	inst.dead, inst.wait = true, 0 // what waits for it is stale
	e.leave(inst)
	if inst.verdict == nil {
		e.waiting.remove(inst.element)
		return
	}
	e.emit(inst)
	e.unlink(inst)
	e.open.remove(inst.element)
}

// leave has no more records join inst.
func (e *Engine) leave(inst *instance) {
	if inst.state.instances[inst.key] == inst {
		delete(inst.state.instances, inst.key)
	}
	e.unjoin(inst)
}
