//go:build linux && (amd64 || arm64)

package identity

import (
	"slices"
	"strings"
	"time"
)

// A wrapper may go on after its rank: a shell that starts it again until it ends well, a supervisor. Which
// process is the rank shows when one takes part in the collectives of the job, and nothing above it trains. From
// then on the end of that process is the rank's, and that of the wrapper is a helper's. What the wrapper runs beside
// it stays a process of the rank, and the same program, executed anew after it has ended, is the next life of the rank.

// wraps is what a wrapper runs for its rank.
type wraps struct {
	program string // as record.program
	script  string // as record.script
	failed  bool   // the last one has ended so
}

// runs reports whether a program that was executed with these arguments is what is wrapped, started again.
func (w *wraps) runs(program string, arguments []string) bool {
	return program == w.program && len(arguments) > 0 && (w.script == "" || slices.Contains(arguments[1:], w.script))
}

// maxScript is the longest name of a script that is kept.
const maxScript = 256

// scriptOf is the first argument that is no option.
func scriptOf(arguments []string) string {
	for _, a := range arguments[min(1, len(arguments)):] {
		if !strings.HasPrefix(a, "-") && len(a) <= maxScript {
			return a
		}
	}
	return ""
}

// life is one start of a rank, as Process says it.
type life struct {
	pid   uint32
	start time.Time
}

// unwrap makes r the process whose end is its rank's, where all that is above it of the rank only wraps it. It is
// the same start of the rank, or under a wrapper whose rank has ended, another one. as says which it is, nil where
// that is not known.
func (t *Tracker) unwrap(r *record, as *life) {
	wrappers, known := t.wrappers(r)
	if len(wrappers) == 0 || known && t.led(wrappers[len(wrappers)-1], r.startNS) {
		return
	}
	outermost := r
	for _, w := range wrappers {
		w.wraps, w.Inherited, w.Wrapped = &wraps{program: outermost.program, script: outermost.script}, true, false
		if !known || w != wrappers[len(wrappers)-1] {
			outermost = w
		}
	}
	if as == nil && known {
		as = &life{outermost.PID, outermost.StartTime}
	}
	r.Inherited = false
	if as != nil {
		t.lives(r, *as)
	}
	r.Wrapped = r.RankPID != r.PID
	t.memory.keep(r)
}

// wrappers are the processes above r that wrap it, the nearest first: up to the outermost of its rank, or to one
// that is known as a wrapper. There are none where one of them may train, or is another owner's.
func (t *Tracker) wrappers(r *record) (all []*record, known bool) {
	for below := r; len(all) < maxAncestors; {
		above := t.table.at(below.ParentPID, below.startNS)
		if above == nil || !above.alive() || !above.IsRank() || above.Rank != r.Rank || above.RankPID != r.RankPID || above.Domain != r.Domain || above.work >= training || above.byCalls {
			break
		}
		all, below = append(all, above), above
		if known = above.wraps != nil; known || !above.Inherited {
			return all, known
		}
	}
	return nil, false
}

// lives enters r, what is below it and what wraps it into a start of their rank.
func (t *Tracker) lives(r *record, in life) {
	enter := func(o *record) { o.RankPID, o.RankStart = in.pid, in.start }
	enter(r)
	for _, below := range t.below(r) {
		if below.Inherited && below.Rank == r.Rank {
			enter(below)
		}
	}
	for w := range t.wrappersOver(t.table.at(r.ParentPID, r.startNS)) {
		enter(w)
	}
}

// wrappersOver are the wrappers from w upwards.
func (t *Tracker) wrappersOver(w *record) func(func(*record) bool) {
	return func(yield func(*record) bool) {
		for n := 0; n < maxAncestors && w != nil && w.wraps != nil && w.IsRank(); n++ {
			if !yield(w) {
				return
			}
			w = t.table.at(w.ParentPID, w.startNS)
		}
	}
}

// led reports whether a process lives whose end is that of a wrapper's rank, and nobody had asked it to end by then.
func (t *Tracker) led(w *record, at uint64) (led bool) {
	t.table.queues[livingRank].Each(func(o *record) {
		led = led || o.Rank == w.Rank && o.RankPID == w.RankPID && !o.Inherited && !t.launches.asked(o, at)
	})
	return led
}

// argumentsUnder are those of what a wrapper has started, where parent is known as one, and of a Python program
// of a rank. nil for others.
func (t *Tracker) argumentsUnder(parent *record, f *facts) []string {
	t.mu.RLock()
	wrapper := parent != nil && parent.wraps != nil
	t.mu.RUnlock()
	if !wrapper && (f.launch.rank == Unknown || !Interpreter(f.comm)) {
		return nil
	}
	arguments, _ := t.proc.Arguments(f.pid) // of one that has ended, none
	return arguments
}

// runUnder decides what a program is that a wrapper runs. The one that it wraps may execute another one.
func (t *Tracker) runUnder(parent, r *record, arguments []string) {
	before := t.table.exact(r.PID, r.startNS)
	switch {
	case !r.IsRank():
	case before != nil && before.wraps != nil && before.program != r.program: // it executes the rank in its own place
		r.Inherited, r.RankPID = false, r.PID
	case parent == nil || parent.wraps == nil || !r.Inherited || r.Rank != parent.Rank || r.WorldSize != parent.WorldSize:
	case before != nil && before.IsRank() && !before.Inherited:
		r.Inherited, r.Wrapped, r.RankPID, r.RankStart = false, before.Wrapped, before.RankPID, before.RankStart
	case (before == nil || before.program != r.program) && parent.wraps.runs(r.program, arguments) && !t.led(parent, r.startNS):
		r.Inherited = false
		t.lives(r, life{r.PID, r.StartTime})
		for w := range t.wrappersOver(parent) {
			w.wraps.failed = false
		}
	}
}

// endedUnder takes note of how the rank of a wrapper has ended.
func (t *Tracker) endedUnder(parent, r *record, e *Exit) {
	if !r.IsRank() || r.Inherited {
		return
	}
	for w := range t.wrappersOver(parent) {
		if w.RankPID == r.RankPID {
			w.wraps.failed = e.Failed()
		}
	}
}

// wrapperEnded makes the end of a wrapper that of its rank, where it fails after that has ended well.
func (t *Tracker) wrapperEnded(r *record, e *event) {
	if r.wraps != nil && !r.wraps.failed && (e.code() != 0 || e.signal() != 0) && !t.hasProcess(r) {
		r.Inherited, r.Wrapped = false, true
	}
}

// Led implements Members. The agent before this one had seen which process a wrapper wraps.
func (t *Tracker) Led(p Process) {
	t.askRunning(p.Born(), false)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !p.Leads() {
		return
	}
	in := life{p.RankPID, p.RankStart}
	if r := t.table.exact(p.PID, p.StartNS); r == nil || !r.alive() {
		t.wrapped(&p, in)
	} else if r.Rank == p.Rank && r.WorldSize == p.WorldSize {
		t.leads(r, in)
	}
}

// wrapped finds the wrapper of a process that has ended since: what it starts next is the rank.
func (t *Tracker) wrapped(p *Process, in life) {
	above := t.table.at(p.ParentPID, p.StartNS)
	if above == nil {
		return
	}
	r := &record{Process: *p, startNS: p.StartNS, endNS: p.StartNS, program: p.Comm}
	r.Inherited, r.RankPID = true, above.RankPID
	t.unwrap(r, &in)
	for w := range t.wrappersOver(above) {
		w.wraps.failed = true
	}
}

// leads makes r the process whose end was its rank's in that life, as was known. Its wrapper may have ended since.
func (t *Tracker) leads(r *record, in life) {
	switch {
	case r.Inherited:
		t.unwrap(r, &in)
	case r.IsRank() && in.pid != r.PID:
		t.lives(r, in)
		r.Wrapped = true
		t.memory.keep(r)
	}
}
