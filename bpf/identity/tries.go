//go:build linux && (amd64 || arm64)

package identity

import (
	"slices"
	"strings"
	"time"
)

// A shell that starts a rank again until it ends well is known as its wrapper, or as its launch script, once the rank
// takes part in its job, or lives long. One that fails before is known by this: the same program with the same arguments,
// started again by the same process, ends each time by an exception that nobody caught. What prepares or waits for
// a training hardly does so: grep, pip check and a shell's tests end with a status and no exception.

const (
	leastTries = 3               // in a row, and the program is the rank
	mostTries  = 8               // that are remembered, of one process that starts them
	triesApart = 5 * time.Minute // how long after one ended the next one ends, at most
)

// tries are the ends of Python programs that one process has started for a rank, the oldest first.
type tries []*try

type try struct {
	exit      Exit
	of        *record
	arguments string
}

func (o *try) like(r *record) bool { return o.of.program == r.program && o.arguments == r.arguments }

// fails reports whether it is seen to have ended by an exception that nobody caught, or crashed. The interpreter of the first
// may not be watched by then.
func (o *try) fails() bool {
	return o.exit.Failed() && (o.of.raised || o.exit.crashed() && o.exit.Signal != sigKILL && !o.exit.Signalled.byAnother())
}

func (s *Signal) byAnother() bool {
	return s.Number != 0 && s.Sender.Relation != RelationItself && s.Sender.Relation != RelationKernel
}

// Raised implements Failing.
func (t *Tracker) Raised(p Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.table.exact(p.PID, p.StartNS)
	if r == nil {
		return
	}
	r.raised = true
	if r.told {
		t.tryAgain(r)
	}
}

// tried takes note of the end of a program that may be a rank, before it takes part in its job.
func (t *Tracker) tried(r *record, e *Exit) {
	if !r.IsRank() || !Interpreter(r.program) || r.arguments == "" || t.late {
		return
	}
	over := t.triesOver(r)
	if over == nil || t.livesBeside(r) {
		return
	}
	if !e.Failed() {
		*over = slices.DeleteFunc(*over, func(o *try) bool { return o.like(r) })
		return
	}
	over.add(&try{exit: *e, of: r, arguments: r.arguments})
	t.tryAgain(r)
}

// join takes the tries of a wrapper that has ended, such as timeout, to those of the script that runs it again.
func (t *Tracker) join(r *record, g *siblings) {
	if g == nil || len(r.tries) == 0 {
		return
	}
	for _, o := range r.tries {
		o.of.among = g
		g.tries.add(o)
	}
	t.tryAgain(r.tries[len(r.tries)-1].of)
	r.tries = nil
}

func (all *tries) add(o *try) {
	if len(*all) == mostTries {
		*all = slices.Delete(*all, 0, 1)
	}
	*all = append(*all, o)
}

// goOn reports whether the last one failed not long ago.
func (all tries) goOn(now uint64) bool {
	return len(all) > 0 && all[len(all)-1].of.endNS+uint64(triesApart) > now
}

// triesOver are those of the process that starts r: the outermost process of its rank, if nothing in it may train, or
// a launch script. nil where r is no try: a known wrapper has run it.
func (t *Tracker) triesOver(r *record) *tries {
	switch {
	case r.among != nil:
		return &r.among.tries
	case !r.Inherited:
		return nil
	}
	wrappers, known := t.wrappers(r)
	if known || len(wrappers) == 0 || slices.ContainsFunc(wrappers, func(w *record) bool { return Interpreter(w.program) }) {
		return nil
	}
	return &wrappers[len(wrappers)-1].tries
}

// tryAgain tells the ends of the last tries as those of the rank, once they are enough.
func (t *Tracker) tryAgain(r *record) {
	over := t.triesOver(r)
	if over == nil {
		return
	}
	var row []*try
	shown := 0
	for _, o := range slices.Backward(*over) {
		if !o.like(r) {
			continue
		}
		if len(row) > 0 && row[len(row)-1].exit.Time.Sub(o.exit.Time) > triesApart {
			break
		}
		if row = append(row, o); o.fails() {
			shown++
		}
	}
	if shown < leastTries {
		return
	}
	for _, o := range slices.Backward(row) {
		if o.of.died {
			continue
		}
		e := o.exit
		e.Inherited, e.Helper, e.Wrapped, e.RankPID, e.RankStart = false, false, false, e.PID, e.StartTime
		if g := o.of.among; g != nil {
			g.waiting = slices.DeleteFunc(g.waiting, func(w waitingEnd) bool { return w.Born() == e.Born() })
		}
		o.of.died = true
		t.launches.tell(e)
	}
	if r.Inherited {
		t.unwrap(r, &life{r.PID, r.StartTime})
		for w := range t.wrappersOver(t.table.at(r.ParentPID, r.startNS)) {
			w.wraps.failed, w.tries = true, nil
		}
	}
}

// livesBeside reports whether something of the rank of r has lived long, but for what started r: that may be the rank, and r a
// health check.
func (t *Tracker) livesBeside(r *record) (lives bool) {
	t.table.queues[livingRank].Each(func(o *record) {
		lives = lives || o.Rank == r.Rank && o.job() == r.job() && o.startNS+uint64(longLived) <= r.endNS && t.above(r, o.PID, o.StartNS) == 0
	})
	return lives
}

// dies notes that an end is told as that of a rank.
func (t *Tracker) dies(e *Exit) {
	if r := t.table.exact(e.PID, e.StartNS); r != nil && !e.Helper && !e.Inherited {
		r.died = true
	}
}

// joined makes one text of the arguments of a program.
func joined(arguments []string) string {
	const most = 1024
	text := strings.Join(arguments, "\x00")
	return strings.Clone(text[:min(len(text), most)])
}
