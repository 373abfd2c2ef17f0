package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// looksUntilGivenUp is after how many snapshots a rank is judged without a look into its
// process tree: one that cannot be read must not be above all suspicion.
const looksUntilGivenUp = 4

// work is what the process tree of a rank has done since it fell silent.
type work struct {
	at       time.Duration        // of the snapshot that says so
	last     time.Duration        // when it last made progress
	how      socketstall.Activity // in what way, Idle if in none
	rested   time.Duration        // the longest time without progress
	spent    map[socketstall.Activity]time.Duration
	inside   *Inside // as last looked into
	compared int     // snapshots that could tell
	silent   int     // snapshots since it fell silent
	request  request // for whose answer it waited in the snapshot before
}

// request is one to a process that is no rank.
type request struct {
	s  *socket       // nil for none
	at time.Duration // when it was sent
}

// stood is for how long a request stands until its answer says that the rank goes on. A thread may report to another
// process, and be answered at once, again and again while the rank hangs.
const stood = time.Second

// toil takes what the process tree has done since the snapshot before.
func (r *rank) toil(c *clock) {
	if r.movedNow {
		r.work = work{at: c.now, last: c.now, how: socketstall.Idle}
		return
	}
	w := &r.work
	w.at = c.now
	w.silent++
	if in := r.now.Inside; in != nil {
		w.inside = in
		if in.Compared {
			w.compared++
		}
		if in.Unsure { // one interval without an answer is no rest
			w.last = max(w.last, c.last)
		}
	}
	if r.answered(c) {
		w.last = max(w.last, c.last)
	}
	interval := c.now - c.last
	if how, share := r.now.Does(r.before, interval, r.elsewhere); how != socketstall.Idle {
		if w.spent == nil {
			w.spent = map[socketstall.Activity]time.Duration{}
		}
		w.spent[how] += interval
		if w.compared <= 1 { // before the first comparison nobody could tell that it rested
			w.rested = 0
		}
		w.how, w.last = how, max(w.last, c.last+time.Duration(min(1, share)*float64(interval)))
	}
	w.rested = max(w.rested, c.now-w.last)
}

// answered reports whether a process that is no rank has answered since the snapshot before, and the rank waited for that. It
// goes on then, and need not have moved data of its job yet: how long it waited is no rest of its own.
func (r *rank) answered(c *clock) bool {
	before := r.work.request
	now := request{s: r.request}
	if now.s != nil {
		now.at = c.now - now.s.now.LastSentAge
	}
	r.work.request = request{}
	if r.awaits(c.now).IsValid() {
		r.work.request = now
	}
	return before.s != nil && c.last-before.at >= stood && (now.s != before.s || now.at-before.at > r.tick)
}

// atRest is since when nothing of the rank has made progress.
func (r *rank) atRest(now time.Duration) time.Duration { return now - r.work.last }

// works reports whether the rank makes progress, as of this snapshot or one shortly before.
func (r *rank) works(o *Options) bool {
	return len(r.work.spent) > 0 && r.work.at-r.work.last < o.asleep() && !r.now.State.Halted()
}

// judged reports whether it is known what the rank does.
func (r *rank) judged() bool { return r.work.compared > 0 || r.work.silent >= looksUntilGivenUp }

// activity is what the rank does: what it did last, unless it has rested since.
func (r *rank) activity(now time.Duration, o *Options) socketstall.Activity {
	switch {
	case r.now.State.Halted() || !r.judged():
		return ""
	case r.atRest(now) >= o.asleep():
		return socketstall.Idle
	}
	return r.work.how
}

// holder is what keeps a child from going on that holds the rank up, "" for none. One that sleeps
// may do so now and then.
func (r *rank) holder() socketstall.State {
	in := r.work.inside
	if in == nil || in.Holder == nil || in.Holder.State == socketstall.Sleeping {
		return ""
	}
	return in.Holder.State
}

// mostly is what the rank did for longest while it was silent.
func (w *work) mostly() (how socketstall.Activity, d time.Duration) {
	for one, spent := range w.spent {
		if spent > d || spent == d && one < how {
			how, d = one, spent
		}
	}
	return how, d
}
