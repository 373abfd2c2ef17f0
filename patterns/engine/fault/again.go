package fault

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// A fault that clears and is soon seen again at its place flaps: a slow mount on which each write hangs for a
// second. It is one verdict, which is open again, and not many. A verdict that has returned is told as over
// only when it stays so for a while.
//
// Each time is a fault of its own, with its own evidence: who waits now is named, and what holds now decides how
// sure it is. It takes the identity of the one before, which is kept aside for that.

// again is how soon after it cleared a fault returns.
const again = int64(time.Minute)

// steady is how long one that has returned must have cleared until that is told.
const steady = int64(8 * time.Second)

// returns is what a verdict was before it returned.
type returns struct {
	First    int64 `json:"first"`    // when it began for the first time, 0 where it has not returned
	Revision int   `json:"revision"` // given out before it returned
}

// mayReturn reports whether f, which has cleared, is kept aside for what may be its return. Rules that say
// themselves what is another fault (`returns`) have none, nor has what ended otherwise.
func (f *Fault) mayReturn() bool {
	v := f.verdict
	return v != nil && !f.dead && v.resolved != 0 && !v.withdrawn && v.closing == nil && !f.rule.Terminal &&
		f.rule.Returns.After == 0 && f.rule.Returns.Ended == "" && f.asideUntil() > f.set.time.Now()
}

// asideUntil is how long f is kept aside.
func (f *Fault) asideUntil() int64 { return f.set.time.Settled(f.verdict.resolved + again) }

// stepAside keeps f, in the place of which another fault of its key begins.
func (f *Fault) stepAside() {
	if before := f.rule.aside[f.key]; before != nil {
		before.drop()
	}
	f.leave()
	f.aside = true
	f.rule.aside[f.key] = f
	f.set.time.Call(f, f.expireAt())
}

// continues gives f, which has a verdict now, the identity of the fault that it is the return of.
func (f *Fault) continues() {
	before := f.rule.aside[f.key]
	if before == nil || !f.returned(before) {
		return
	}
	v, was := f.verdict, before.verdict
	f.set.out.takeBack(was) // that it was over nobody has read
	v.id, v.revision, v.emitted, v.told = was.id, was.revision, was.emitted, was.told
	v.returns = returns{First: before.firstBegan(), Revision: was.revision}
	before.vanish()
}

// follows notes that f, which was told of first, is the return of a fault that is told only now, and reports
// whether it is.
func (f *Fault) follows(before *Fault) bool {
	if f.dead || f.verdict == nil || !before.mayReturn() || !f.returned(before) {
		return false
	}
	f.verdict.returns.First = min(f.firstBegan(), before.firstBegan())
	f.Changed()
	before.vanish()
	return true
}

// returned reports whether f is before, seen again: trusted as much, of the same start of its job, told in the
// same words, and of the same ranks, where its rule says whose fault it is.
func (f *Fault) returned(before *Fault) bool {
	cleared, onset := before.verdict.resolved, f.verdict.onset
	if f.verdict.best.trust != before.verdict.best.trust || onset <= cleared || onset > cleared+again || f.run != "" && before.run != "" && f.run != before.run {
		return false
	}
	if f.kind() != before.kind() {
		return false
	}
	return !slices.ContainsFunc(f.rule.Watches, func(w *Evidence) bool {
		return slices.ContainsFunc(w.accuses, func(at int) bool {
			now, _ := f.value(f.rule.Names[at])
			then, _ := before.value(f.rule.Names[at])
			return now != then
		})
	})
}

// kind is which of its headlines tells f.
func (f *Fault) kind() string { return f.rule.Headline.Pick(report{Fault: f}.known()).Text }

// firstBegan is when f began for the first time.
func (f *Fault) firstBegan() int64 {
	if first := f.verdict.returns.First; first != 0 {
		return first
	}
	return f.since(f.verdict.best.trust)
}

// vanish takes f from the state and tells nothing of it: another has its identity.
func (f *Fault) vanish() {
	f.verdict.changed, f.verdict.revision = false, 0
	f.drop()
}

// given reports whether f was given out since it began, or returned.
func (c *conclusion) given() bool { return c.revision > c.returns.Revision }

// holdEnd lets the end of what has returned wait until it is steady, and reports whether it waits.
func (f *Fault) holdEnd() bool {
	v := f.verdict
	until := v.resolved + steady
	if v.returns.First == 0 || v.resolved == 0 || v.withdrawn || v.closing != nil || f.dead || until <= f.set.time.Now() {
		return false
	}
	v.nextQuiet = until
	f.set.time.Call(f, until)
	return true
}

// before is the evidence that it has returned.
func (c *conclusion) before() []verdict.Evidence {
	if c.returns.First == 0 {
		return nil
	}
	e := closed("again", c.returns.First, "it comes and goes: it was seen here before, and had cleared")
	e.Trust = c.best.trust
	return []verdict.Evidence{*e}
}
