package incidenttracesconnector

import (
	"cmp"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Bounds beside Config.Incidents.
const (
	mostVerdicts = 256      // of one incident; its further symptoms have no span
	mostBytes    = 32 << 20 // of all, as JSON, and as much again of what waits for the next consumer
	perSize      = 4 << 10  // bytes that count as one when room is shared
)

// book has the incidents that are not over: incident id → its verdicts, verdict id → its
// incident, which may change. Beyond its size the trust, node and pattern that hold most
// give way.
type book struct {
	most      int
	incidents map[string]*incident
	of        map[string]*incident
	order     fairlru.List[*incident]
}

// incident is what was told of one.
type incident struct {
	id       string
	verdicts map[string]told
	bytes    int
	heard    time.Time // when something new was told
	run      *runTold  // it is the trace of a run, and has no verdicts
	element  *fairlru.Element[*incident]
}

// told is a verdict and the machine that its record is about.
type told struct {
	verdict.Verdict
	host, node string
	bytes      int
}

func newBook(most int) *book {
	return &book{most: most, incidents: map[string]*incident{}, of: map[string]*incident{}, order: timeline.NewOrder[*incident]()}
}

// put takes a revision and returns the incidents that have to leave for want of room.
func (b *book) put(v told, now time.Time) (leave []*incident) {
	if was := b.of[v.ID]; was != nil {
		switch known := was.verdicts[v.ID]; {
		case known.Revision > v.Revision:
			return nil
		case known.Revision == v.Revision && was.id == v.IncidentID:
			was.heard = now // it is told again: it is still open
			return nil
		}
		b.take(was, v.ID)
	}
	one := b.incidents[v.IncidentID]
	if one == nil {
		one = &incident{id: v.IncidentID, verdicts: map[string]told{}}
		one.element = b.order.Add(one, fairlru.Some, timeline.Path(v.Trust, []string{cmp.Or(v.node, v.host), v.Pattern, v.Culprit["job_domain"], v.Culprit["job"]})...)
		b.incidents[one.id] = one
	}
	if len(one.verdicts) == mostVerdicts && v.Role != verdict.RootCause {
		return nil
	}
	v.Verdict, v.bytes = slim(v.Verdict)
	one.verdicts[v.ID], b.of[v.ID] = v, one
	one.heard = now
	b.order.Touch(one.element, fairlru.Some)
	b.grew(one, v.bytes)
	for b.order.Len() > b.most || b.order.Size() > mostBytes/perSize && b.order.Len() > 1 {
		victim, _ := b.order.Victim()
		leave = append(leave, victim.Value)
		b.drop(victim.Value)
	}
	return leave
}

// slim leaves out what no span has.
func slim(v verdict.Verdict) (verdict.Verdict, int) {
	v.BlastRadius, v.Steps, v.Missing, v.NotObserved = nil, nil, nil, nil
	return v, len(verdict.ToJSON(v))
}

func (b *book) grew(one *incident, by int) {
	one.bytes += by
	b.order.Resize(one.element, 1+one.bytes/perSize)
}

// take takes a verdict out of its incident.
func (b *book) take(one *incident, id string) {
	bytes := one.verdicts[id].bytes
	delete(one.verdicts, id)
	delete(b.of, id)
	if len(one.verdicts) == 0 {
		b.drop(one) // all of it belongs to another now
		return
	}
	b.grew(one, -bytes)
}

func (b *book) drop(one *incident) {
	b.order.Remove(one.element)
	delete(b.incidents, one.id)
	for id := range one.verdicts {
		delete(b.of, id)
	}
}

// due returns the incidents that are over, or of which nothing more is waited for.
func (b *book) due(now time.Time, settle, idle time.Duration) []*incident {
	var due []*incident
	b.order.Each(func(one *incident) {
		quiet := now.Sub(one.heard)
		switch {
		case one.over(), one.rootOver() && quiet >= settle, quiet >= idle:
			due = append(due, one)
		}
	})
	return due
}

// over reports whether all that was told of one has ended.
func (one *incident) over() bool {
	for id := range one.verdicts {
		if one.verdicts[id].Status != verdict.Resolved {
			return false
		}
	}
	return true
}

// rootOver reports whether the root cause has ended, or is not among what was told.
func (one *incident) rootOver() bool {
	root, ok := one.root()
	return !ok || root.Status == verdict.Resolved
}

func (one *incident) root() (told, bool) {
	for _, v := range one.verdicts {
		if v.Role == verdict.RootCause {
			return v, true
		}
	}
	return told{}, false
}
