package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Wait is for the time line.
func (f *Fault) Wait() *int64 { return &f.wait }

// Fire does what waited for its time: counts are given out, a quiet fault leaves.
func (f *Fault) Fire() {
	if f.dead {
		return
	}
	if v := f.verdict; v != nil && v.nextQuiet != 0 && v.nextQuiet <= f.set.time.Now() {
		v.nextQuiet, v.due = 0, true
		f.Changed()
	}
	if f.expireAt() <= f.set.time.Now() {
		f.expire()
	}
	if !f.dead {
		f.callAgain()
	}
}

// callAgain waits for what is due next.
func (f *Fault) callAgain() {
	f.leavePlaces()
	f.set.time.Call(f, f.expireAt())
	if v := f.verdict; v != nil && v.nextQuiet != 0 {
		f.set.time.Call(f, v.nextQuiet)
	}
}

// expireAt is when f leaves the state if nothing more comes. Without a verdict
// that is when its marks can no longer be part of one. What is over and led to what goes on stays as long.
func (f *Fault) expireAt() (at int64) {
	if f.past {
		return f.pastUntil()
	}
	if f.aside {
		return f.asideUntil()
	}
	if f.verdict != nil && f.goesOn() != "" {
		f.verdict.node.Explained(func(effect incident.Verdict) {
			if effect.Resolved() == 0 {
				at = max(at, effect.(witness).expireAt())
			}
		})
	}
	quiet := f.rule.Within
	if v := f.verdict; v != nil && !v.withdrawn {
		quiet = max(f.rule.Expires, quiet)
	}
	return max(at, f.set.time.Settled(max(f.touched, f.overdue, slices.Max(f.after[:]))+int64(quiet)))
}

// silence is the closing evidence of what nobody saw end.
const silence = "expired"

func (f *Fault) expire() {
	if f.past || f.aside {
		f.drop()
		return
	}
	f.set.stats.Expired++
	v := f.verdict
	if v != nil && v.resolved == 0 && f.rule.OnExpiry == rule.Resolve {
		at := f.touched + int64(f.rule.Expires)
		f.resolve(at, closed(silence, at, "nothing more was seen for "+f.rule.Expires.String()))
	}
	f.giveWay()
}

// pastUntil is how long an expired fault is kept because its effects may show
// later.
func (f *Fault) pastUntil() int64 {
	until := int64(0)
	for _, x := range f.rule.causes {
		if keep := x.link.KeepUntil(f.verdict.onset); keep != 0 {
			until = max(until, f.set.time.Settled(keep))
		}
	}
	return until
}

// giveWay makes room for another fault of the key, and keeps what may have effects that are told
// later.
func (f *Fault) giveWay() {
	if f.mayReturn() {
		f.stepAside()
		return
	}
	if v := f.verdict; f.dead || v == nil || v.withdrawn || f.pastUntil() <= f.set.time.Now() {
		f.drop()
		return
	}
	f.outlast(f.set.time.Now())
	f.past = true
	f.verdict.node.Turned()
	f.leave()
	f.set.time.Call(f, f.expireAt())
}
