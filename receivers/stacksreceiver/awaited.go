package stacksreceiver

import (
	"context"
	"time"

	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/silence"
)

// A rank that tries something again and again sleeps for a moment each time: it never stands, and its stack
// is another at each look. While others of its job wait for it, the frames are told that all looks at it share.
const (
	awaitedAfter = 3 * time.Second  // that others wait
	triesUntil   = 3                // looks in a row, until they are told
	triesAnew    = 20               // after which it is looked whether they share more by now: it is somewhere else
	maxChains    = 32               // stacks that are known to have these frames
	awaitedStill = 30 * time.Second // after the start, until what was told before it is over where nobody is seen to wait

	triesAtOnce = 16 // stacks that are read of a rank,
	triesPause  = 10 * time.Second
	maxTries    = 8 // stacks that are read in one look, of all ranks
)

// tries is where a rank is found while others of its job wait for it.
type tries struct {
	since  time.Time // others wait
	began  time.Time // of these looks
	looks  int       // at which it was in these frames
	left   int       // of them, since the first that found it outside of what was told
	unread bool      // one more did not find out where it was
	frames []pystack.Frame
	wait   waitclass.Wait // at each of them, as far as it is the same
	chains map[uint64]bool
	last   *stacks.Process
}

// again begins a series of looks.
func (t *tries) again(now time.Time) {
	*t = tries{since: t.since, began: now, chains: map[uint64]bool{}}
}

// read takes a stack.
func (t *tries) read(seen *stacks.Process) {
	main := &seen.Threads[0]
	if t.last == nil {
		t.frames, t.wait = main.Python, main.Wait
	}
	t.last = seen
	t.frames = stacks.Shared(t.frames, main.Python)
	if t.wait.Class != main.Wait.Class {
		t.wait.Class = waitclass.OwnCode
	}
	if t.wait.Function != main.Wait.Function {
		t.wait.Function, t.wait.Owner = "", ""
	}
	if len(t.chains) >= maxChains {
		clear(t.chains)
	}
	t.chains[main.Place.Chain] = true
}

// shared is the last stack, as far as all have its frames.
func (t *tries) shared() *stacks.Process {
	seen := *t.last
	main := seen.Threads[0]
	main.Python, main.Native, main.Kernel, main.Wait, main.GIL = t.frames, nil, nil, t.wait, false
	seen.Threads = []stacks.Thread{main}
	return &seen
}

// waiters are the ranks of a job here that wait for others.
type waiters struct {
	any     bool
	rank    int
	since   time.Time // the first of them
	more    bool      // than that one
	inStore bool      // all of them wait for a key of the store
}

// add adds one, since then.
func (w *waiters) add(rank int, since time.Time, inStore bool) {
	if !w.any || since.Before(w.since) {
		w.since = since
	}
	w.more = w.more || w.any && w.rank != rank
	w.inStore = inStore && (!w.any || w.inStore)
	w.any, w.rank = true, rank
}

// waiting finds who waits in a collective, for what the GPU does, or for a key of the store, for so long that another
// rank may be awaited.
func (w *watch) waiting() map[job]waiters {
	all := map[job]waiters{}
	for _, f := range w.follows {
		of := jobOf(&f.Process)
		if of.id == "" || !f.IsRank() || !f.waits() && !f.inStore() || w.now.Sub(f.inCall) < awaitedAfter {
			continue
		}
		known := all[of]
		known.add(f.Rank, f.inCall, !f.waits())
		all[of] = known
	}
	return all
}

// waits reports whether the thread is where ranks wait for others.
func (f *follower) waits() bool {
	return f.atWork() || f.told != nil && steps(f.told.class)
}

// inStore reports whether the thread is where a rank waits for what another one writes into the store.
func (f *follower) inStore() bool {
	return f.classes[f.place.Calls] == waitclass.Store
}

// awaits reports whether a rank is elsewhere than those that wait. For who waits for a key of the store the others wait
// only in collectives.
func (w *waiters) awaits(f *follower) bool {
	return w.any && (w.more || w.rank != f.Rank) && !f.waits() && (!w.inStore || !f.inStore())
}

// elsewhere stands for ranks on other nodes.
const elsewhere = -1

// ranksHere are the ranks of each job here, nil where nobody is silent.
func (w *watch) ranksHere() map[job]map[int]bool {
	if !silence.Any() {
		return nil
	}
	here := map[job]map[int]bool{}
	for _, f := range w.follows {
		of := jobOf(&f.Process)
		if here[of] == nil {
			here[of] = map[int]bool{}
		}
		here[of][f.Rank] = true
	}
	return here
}

// silentWithOthers is since when a rank exchanges nothing with the others of its job, where some of these are on other nodes:
// they may wait for it.
func (f *follower) silentWithOthers(here map[job]map[int]bool) (time.Time, bool) {
	of := jobOf(&f.Process)
	if of.id == "" || len(here[of]) == 0 || len(here[of]) >= f.WorldSize {
		return time.Time{}, false
	}
	return silence.Since(f.PID)
}

// lookAtAwaited looks where ranks are that others of their job wait for.
func (w *watch) lookAtAwaited(ctx context.Context) {
	w.tries = 0
	all, here := w.waiting(), w.ranksHere()
	for _, f := range w.follows {
		by := all[jobOf(&f.Process)]
		if since, silent := f.silentWithOthers(here); silent {
			by.add(elsewhere, since, false)
		}
		if !by.awaits(f) || !f.python || !f.IsRank() {
			w.comes(ctx, f)
			continue
		}
		if f.tries == nil {
			f.tries = &tries{}
			f.tries.again(w.now)
		}
		f.tries.since = by.since
		w.lookAgain(ctx, f)
	}
}

// comes ends what was told of a rank that nobody waits for any more, or that waits with the others. After a start it takes
// some looks until it shows who waits.
func (w *watch) comes(ctx context.Context, f *follower) {
	f.tries = nil
	switch {
	case f.told != nil && f.told.why == awaited:
		f.older = false
		w.moving(ctx, f, f.leaves(w.now))
	case f.told == nil && f.stood.why == awaited && (f.waits() || w.now.Sub(w.began) >= awaitedStill):
		f.older, f.stood = false, stood{}
		w.moving(ctx, f, &told{since: w.now})
	}
}

// lookAgain takes one look at a rank that is awaited, and tells the frames that its looks share once these are known.
func (w *watch) lookAgain(ctx context.Context, f *follower) {
	t, told := f.tries, f.told != nil && f.told.why == awaited
	frames := len(t.frames)
	if comes := w.find(ctx, f); comes || t.last != nil && len(t.frames) == 0 { // or its looks share none
		w.comes(ctx, f)
		return
	}
	left := t.looks >= triesUntil && len(t.frames) < frames // it stood, and may be on its way to the others
	if !told && (left || t.unread) {                        // not in a row
		t.again(w.now)
		return
	}
	t.looks++
	switch {
	case told:
		w.keep(ctx, f)
	case f.told == nil && t.looks >= triesUntil:
		w.tellTries(ctx, f, t.began)
	}
}

// find finds out where a rank is, and reports whether that is where ranks wait for others.
func (w *watch) find(ctx context.Context, f *follower) bool {
	t := f.tries
	if f.place != nowhere && t.chains[f.place.Chain] {
		return false
	}
	if f.place == nowhere || w.tries >= maxTries || !f.triesLeft.take(w.now, 1) {
		t.unread = true
		return false
	}
	w.tries++
	seen := w.stackOf(ctx, f)
	if seen == nil {
		t.unread = true
		return false
	}
	if steps(seen.Threads[0].Wait.Class) {
		return true
	}
	t.read(seen)
	return false
}

// keep holds what was told of a rank to its later looks: it is true of each of them, or is told anew.
func (w *watch) keep(ctx context.Context, f *follower) {
	t := f.tries
	within := t.last == nil || stacks.Within(t.frames, f.told.frames)
	if !within {
		t.left++
	}
	switch {
	case !within && t.left < triesUntil && len(t.frames) < len(f.told.frames): // it may be on its way to the others: its verdict keeps the line
	case !within:
		if t.left, t.frames = 0, stacks.Shared(t.frames, f.told.frames); !w.tellTries(ctx, f, f.told.since) {
			w.comes(ctx, f)
		}
	case t.looks < triesAnew:
	case t.last == nil: // nobody knows
		w.comes(ctx, f)
	default:
		if !t.unread && len(t.frames) > len(f.told.frames) {
			w.tellTries(ctx, f, t.began)
		}
		t.again(w.now)
	}
}

// stackOf reads the stack of a rank that is awaited, nil if that was not possible.
func (w *watch) stackOf(ctx context.Context, f *follower) *stacks.Process {
	seen, err := w.stack(f)
	if err != nil {
		if !gone(err) {
			w.telemetry.ReceiverStacksFailed.Add(ctx, 1)
		}
		return nil
	}
	if main := &seen.Threads[0]; seen.Turned || len(main.Python) == 0 || main.Place == nowhere {
		return nil
	}
	return seen
}

// tellTries tells the frames that the looks at a rank share, if it may be told now.
func (w *watch) tellTries(ctx context.Context, f *follower, since time.Time) bool {
	c := candidate{f, awaited}
	if w.now.Before(f.notUntil) || !w.room(ctx, c, false) || !f.takes.takeKeeping(w.now, 1, takesKept) {
		return false
	}
	w.tell(ctx, c, f.tries.shared(), since)
	return true
}
