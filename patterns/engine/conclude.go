package engine

import (
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// conclusion is the verdict of one fault, between its revisions.
type conclusion struct {
	id       string
	best     finding
	onset    int64 // when it was first given out: part of the id
	revision int
	emitted  string // hash of the newest revision

	dirty      bool
	quietEvery int64 // counts alone are given out this often, ever more rarely
	nextQuiet  int64 // 0: no count waits

	resolved  int64 // 0: open
	withdrawn bool  // resolved because evidence refuted it
	closing   *verdict.Evidence

	parent   *instance // what explains it
	via      *link
	children []*instance
	root     string // verdict id of the root cause, its own when it is one
}

// Counts of an open verdict are given out after firstQuiet, then at twice the
// interval each time, up to lastQuiet.
const (
	firstQuiet = int64(time.Second)
	lastQuiet  = int64(5 * time.Minute)
)

// conclude gives inst its verdict.
func (e *Engine) conclude(inst *instance, best finding) {
	inst.dropBefore(best.end - int64(inst.state.rule.Within))
	onset := inst.onset()
	id := identifier(inst.state.rule.Name, inst.key, strconv.FormatInt(onset, 10))
	inst.verdict = &conclusion{id: id, root: id, best: best, onset: onset, quietEvery: firstQuiet}
	e.waiting.remove(inst.element)
	inst.element = e.open.add(inst)
	e.touchVerdict(inst)
	e.connect(inst)
	if e.open.len() > e.opts.OpenVerdicts {
		e.stats.EvictedVerdicts++
		e.drop(e.open.oldest())
	}
}

// dropBefore drops the marks that ended before at: they belong to no window
// that holds.
func (inst *instance) dropBefore(at int64) {
	dropped := false
	for i := range inst.marks {
		before := len(inst.marks[i])
		inst.marks[i] = slices.DeleteFunc(inst.marks[i], func(m mark) bool { return m.Last < at })
		if len(inst.marks[i]) < before { // what was evicted came between
			inst.folded[i], dropped = 0, true
		}
	}
	if dropped {
		inst.relearn()
	}
}

// update takes new evidence into an existing verdict.
func (e *Engine) update(inst *instance, best finding, loud bool) {
	v := inst.verdict
	e.open.touch(inst.element)
	if best.better(v.best) {
		v.best, loud = best, true
	}
	if loud {
		e.touchVerdict(inst)
		e.connect(inst)
	} else {
		e.quietly(inst)
	}
	e.quietlyAbove(inst)
}

// touchVerdict has the verdict given out with the next Verdicts.
func (e *Engine) touchVerdict(inst *instance) {
	if v := inst.verdict; !v.dirty {
		v.dirty = true
		e.dirty = append(e.dirty, inst)
	}
	if len(e.dirty) > 2*e.opts.OpenVerdicts+1024 { // some were given out when they left the state
		e.dirty = slices.DeleteFunc(e.dirty, func(o *instance) bool { return !o.verdict.dirty })
	}
}

// quietly has the verdict given out later: only a count or its ranks changed.
func (e *Engine) quietly(inst *instance) {
	v := inst.verdict
	if v.nextQuiet == 0 && !v.dirty {
		v.nextQuiet = e.now + v.quietEvery
		v.quietEvery = min(2*v.quietEvery, lastQuiet)
		e.schedule(inst, v.nextQuiet)
	}
}

// onset is the time of the earliest evidence.
func (inst *instance) onset() int64 {
	onset := inst.touched
	for i, w := range inst.state.watches {
		if len(inst.marks[i]) > 0 && !w.resolves && !inst.refutes(w.Name) {
			onset = min(onset, inst.marks[i][0].Time)
		}
	}
	return onset
}

// refutes reports whether the evidence called name speaks against the fault.
func (inst *instance) refutes(name string) bool {
	for _, u := range inst.state.rule.Unless {
		if u.Evidence == name {
			return true
		}
	}
	return false
}

// settle closes the verdict when the fault has cleared or was none.
func (e *Engine) settle(inst *instance) {
	v := inst.verdict
	against := inst.refuting()
	switch {
	case v != nil && v.resolved == 0 && against != nil:
		v.withdrawn = true
		e.resolve(inst, inst.touched, nil)
		return
	case v != nil && v.withdrawn && against == nil && v.best.confidence != "": // evidence came that stands
		v.withdrawn, v.resolved, v.closing = false, 0, nil
		e.touchVerdict(inst)
		e.connect(inst)
	}
	cleared := inst.clearing()
	switch {
	case cleared == nil:
	case v == nil:
		inst.after = max(inst.after, cleared.m.Time)
		inst.dropBefore(cleared.m.Time + 1)
	case v.resolved == 0 && inst.onset() <= cleared.m.Time:
		e.clearAt(inst, *cleared)
	}
}

// clearing returns the newest mark that resolves inst, nil when there is none.
func (inst *instance) clearing() *late {
	var newest *late
	for i, w := range inst.state.watches {
		if n := len(inst.marks[i]); w.resolves && n > 0 && (newest == nil || inst.marks[i][n-1].Time > newest.m.Time) {
			newest = &late{w, inst.marks[i][n-1]}
		}
	}
	return newest
}

// clearAt resolves inst at that time. What came after it, and was told before
// it, is another fault. The verdict stays with the part it was first given for.
func (e *Engine) clearAt(inst *instance, cleared late) {
	at := cleared.m.Time
	if inst.verdict.onset > at {
		earlier := inst.takeOut(func(m mark) bool { return m.Time <= at })
		e.touchVerdict(inst)
		e.bygone(inst, earlier, cleared)
		return
	}
	after := inst.takeOut(func(m mark) bool { return m.Time > at })
	e.resolve(inst, at, nil)
	for _, one := range after {
		e.place(one.w, one.m)
	}
}

// takeOut removes the marks of evidence that which picks.
func (inst *instance) takeOut(which func(mark) bool) []late {
	var out []late
	for i, w := range inst.state.watches {
		if w.resolves {
			continue
		}
		for _, m := range inst.marks[i] {
			if which(m) {
				out = append(out, late{w, m})
			}
		}
		inst.marks[i] = slices.DeleteFunc(inst.marks[i], which)
	}
	if len(out) > 0 {
		inst.relearn()
	}
	return out
}

// resolve closes the verdict of inst at that time, and with a root cause the
// symptoms that nothing of their own can resolve. A closing evidence says why,
// when no mark does.
func (e *Engine) resolve(inst *instance, at int64, closing *verdict.Evidence) {
	v := inst.verdict
	v.resolved, v.closing = at, closing
	e.touchVerdict(inst)
	for _, child := range v.children {
		e.resolveWith(child, inst)
	}
}

// resolveWith resolves a symptom because its cause has cleared.
func (e *Engine) resolveWith(child, cause *instance) {
	if child.verdict.resolved != 0 || len(child.state.rule.Resolves) > 0 || cause.verdict.withdrawn {
		return
	}
	at := max(cause.verdict.resolved, child.verdict.onset)
	e.resolve(child, at, &verdict.Evidence{
		Name: "cause_cleared", Time: moment(at), Count: 1, Source: verdict.EventName,
		Shows: "its cause (" + cause.state.rule.Name + ") has cleared",
	})
}

func moment(at int64) time.Time { return time.Unix(0, at).UTC() }

// due is for the tasks.
func (inst *instance) due() *int64 { return &inst.wait }

// fireInstance does what waited for its time: a count, the expiry.
func (e *Engine) fireInstance(inst *instance) {
	if inst.dead {
		return
	}
	if v := inst.verdict; v != nil && v.nextQuiet != 0 && v.nextQuiet <= e.now {
		v.nextQuiet = 0
		e.touchVerdict(inst)
	}
	if e.expireAt(inst) <= e.now {
		e.expire(inst)
	}
	if !inst.dead {
		e.reschedule(inst)
	}
}

func (inst *instance) fire(e *Engine) { e.fireInstance(inst) }

// expireAt is when inst leaves the state if nothing more comes. Without a
// verdict that is when its marks can no longer be part of one.
func (e *Engine) expireAt(inst *instance) int64 {
	if inst.past {
		return e.pastUntil(inst)
	}
	r := inst.state.rule
	quiet := int64(r.Within)
	if v := inst.verdict; v != nil && !v.withdrawn {
		quiet = max(int64(r.Expires), quiet)
	}
	return max(inst.touched, inst.heard, inst.after) + quiet + int64(e.opts.Lateness) + 1
}

func (e *Engine) expire(inst *instance) {
	if inst.past {
		e.drop(inst)
		return
	}
	e.stats.Expired++
	if v := inst.verdict; v != nil && v.resolved == 0 && inst.state.rule.OnExpiry == rule.Resolve {
		at := inst.touched + int64(inst.state.rule.Expires)
		e.resolve(inst, at, &verdict.Evidence{
			Name: "expired", Time: moment(at), Count: 1, Source: verdict.EventName,
			Shows: "nothing more was seen for " + inst.state.rule.Expires.String(),
		})
	}
	if v := inst.verdict; v != nil && !v.withdrawn && e.pastUntil(inst) > e.now {
		inst.past = true
		e.leave(inst)
		return
	}
	e.drop(inst)
}

// pastUntil is how long an expired fault is kept because what it explains shows
// only after a time.
func (e *Engine) pastUntil(inst *instance) int64 {
	until := int64(0)
	for _, l := range inst.state.causes {
		if l.after > 0 {
			until = max(until, inst.verdict.onset+l.within+int64(e.opts.Lateness)+1)
		}
	}
	return until
}

// reschedule has inst looked at when next something is due.
func (e *Engine) reschedule(inst *instance) {
	e.schedule(inst, e.expireAt(inst))
	if v := inst.verdict; v != nil && v.nextQuiet != 0 {
		e.schedule(inst, v.nextQuiet)
	}
}
