package fault

import (
	"math"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// conclusion is the verdict of one fault, between its revisions.
type conclusion struct {
	id       string
	best     window
	onset    int64 // of what was seen, when it was first given out: part of the id
	since    int64 // when what was seen began, as far as is known now
	revision int
	emitted  string // hash of the newest revision
	told     string // and of what it says but for counts and times
	leads    bool   // and whether it was the root cause of its incident there, as a fault

	changed    bool  // since it was given out
	quietEvery int64 // counts alone are given out this often, ever more rarely
	nextQuiet  int64 // 0: no count waits
	held       int64 // since when it waits to be told, for what its evidence may have begun before; 0: it does not
	due        bool  // counts have waited for their time

	resolved  int64 // 0: open
	withdrawn bool  // resolved because evidence refuted it
	ended     int64 // when the last ended of what it led to and what has left the state
	closing   *verdict.Evidence
	returns   returns

	node *incident.Node
	bore held // conditional evidence that held when it last met others
}

func (c *conclusion) role() verdict.Role {
	if c.node.IsRoot() {
		return verdict.RootCause
	}
	return verdict.Symptom
}

// Counts of an open verdict are given out after firstQuiet, then at twice the
// interval each time, up to lastQuiet.
const (
	firstQuiet = int64(time.Second)
	lastQuiet  = int64(5 * time.Minute)
)

// brought is what a mark, and those that waited for it, add to a fault.
type brought struct {
	marks  []sighting // where there is a verdict
	loud   bool       // something that no mark had told before
	counts bool       // it adds to what the verdict says
}

// evaluate draws the conclusions of a mark at from.
func (f *Fault) evaluate(from int64, with brought) {
	f.leavePlaces() // what was left before is no evidence
	to := from + int64(f.rule.Within)
	if f.revised {
		from, to = math.MinInt64, math.MaxInt64
	}
	best := f.settled(f.best(from, to))
	switch {
	case f.verdict != nil && f.revised:
		f.reconsider(best)
	case f.verdict != nil && f.settled(f.verdict.best).confidence != f.verdict.best.confidence:
		less := f.settled(f.verdict.best)
		if best.better(less) {
			less = best
		}
		less.stands = max(f.verdict.best.stands, best.stands)
		f.reconsider(less)
	case f.verdict != nil:
		f.verdict.best = f.settled(f.verdict.best) // what holds no longer is no more evidence
		f.update(best, with)
	case best.confidence != "" && f.refuting(best.stands) == nil:
		f.conclude(best)
	}
	f.settle()
	f.outrun()
	f.revised = false
	if !f.dead {
		f.callAgain()
	}
}

// conclude gives f its verdict.
func (f *Fault) conclude(best window) {
	f.dropBefore(best.end - int64(f.rule.Within))
	onset := f.onset(best.trust)
	f.verdict = &conclusion{
		id: identifier(f.rule.Name, f.key, strconv.FormatInt(onset, 10)), best: best, onset: onset, since: f.since(best.trust), quietEvery: firstQuiet,
	}
	f.continues()
	f.verdict.node = incident.NewNode(witness{f})
	s := f.set
	s.waiting.Remove(f.element)
	f.element = nil
	f.shelve()
	f.Changed()
	f.Connect()
	if s.open.Size() > s.opts.OpenVerdicts {
		evict(&s.open, &s.stats.EvictedVerdicts)
	}
}

// update takes new evidence into an existing verdict.
func (f *Fault) update(best window, with brought) {
	v := f.verdict
	f.set.open.Touch(f.element, f.worth())
	stands, trust := max(v.best.stands, best.stands), v.best.trust
	if best.better(v.best) {
		v.best, with.loud = best, true
		v.node.Turned()
	}
	v.best.stands = stands
	stronger, since := v.best.trust > trust, v.since
	if stronger { // what was believed on weaker evidence is no longer, nor what that kept
		f.dropBefore(v.best.end - int64(f.rule.Within))
		v.onset, v.returns.First = f.onset(v.best.trust), 0
	}
	v.since = f.since(v.best.trust)
	bearing := f.bearing()
	if lost := v.bore.without(bearing); stronger || lost != (held{}) { // nor who was named by that
		f.Changed()
		f.set.graph.Reconsider(v.node)
	} else if v.since != since {
		f.Changed()
		f.set.graph.Relook(v.node)
	}
	switch {
	case with.loud:
		f.Changed()
		f.set.graph.Refit(v.node)
	case with.counts: // repeated claims do not stretch the pauses of what is proven
		f.Grew()
		f.set.graph.SeenAgain(v.node)
	}
	if bearing != v.bore { // evidence holds, or does no longer, of which there were marks before
		f.Changed()
		f.set.graph.Refit(v.node)
	}
	for i := range with.marks {
		f.meet(with.marks[i].w, &with.marks[i].m)
	}
	v.node.Grew()
	f.shelve()
}

// Changed queues the verdict for the next Verdicts.
func (f *Fault) Changed() {
	if v := f.verdict; !v.changed {
		v.changed = true
		f.set.out.add(f, 2*f.set.opts.OpenVerdicts+1024)
	}
}

// Grew queues the verdict for later: only a count or its ranks changed.
func (f *Fault) Grew() {
	v := f.verdict
	if v.nextQuiet == 0 && !v.changed {
		v.nextQuiet = f.set.time.Now() + v.quietEvery
		v.quietEvery = min(2*v.quietEvery, lastQuiet)
		f.set.time.Call(f, v.nextQuiet)
	}
}

func moment(at int64) time.Time { return time.Unix(0, at).UTC() }
