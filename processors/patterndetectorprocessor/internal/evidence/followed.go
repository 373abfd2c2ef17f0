package evidence

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	mostFollowed = 512
	// every is how often new records are looked for that belong to an incident without news.
	every = 10 * time.Second
	// after is for how long that goes on once an incident is over.
	after = time.Minute
)

// Followed are the incidents whose evidence is kept. It is not safe for concurrent use.
type Followed struct {
	of    map[string]*Incident
	order fairlru.List[string]
}

// Incident is one that is followed.
type Incident struct {
	ID    string
	Until uint64 // the newest batch whose records it has
	Hosts []string
	Job   string
	due   time.Time
	ends  time.Time // zero while it is open
	place *fairlru.Element[string]
}

// NewFollowed follows nobody.
func NewFollowed() *Followed {
	return &Followed{of: map[string]*Incident{}, order: timeline.NewOrder[string]()}
}

// Note has the incident of a verdict looked at. What the verdict names and rests on may be
// new, so all records that are held may belong to it.
func (f *Followed) Note(v *verdict.Verdict, now time.Time) {
	i := f.of[v.IncidentID]
	if i == nil {
		for len(f.of) >= mostFollowed {
			victim, _ := f.order.Victim()
			f.Forget(victim.Value)
		}
		i = &Incident{ID: v.IncidentID}
		f.of[i.ID], i.place = i, f.order.Add(i.ID, fairlru.Some, timeline.Path(v.Trust, []string{v.Culprit["host"], v.Pattern, v.Culprit["job"]})...)
	}
	i.Until, i.due = 0, now
	switch {
	case v.Status == verdict.Open:
		i.ends = time.Time{}
	case v.Role == verdict.RootCause:
		i.ends = now.Add(after)
	}
}

// Due returns the incident that has waited longest, nil where none is due.
func (f *Followed) Due(now time.Time) *Incident {
	var first *Incident
	for _, i := range f.of {
		if !i.due.After(now) && (first == nil || i.due.Before(first.due) || i.due.Equal(first.due) && i.ID < first.ID) {
			first = i
		}
	}
	return first
}

// Wants reports whether records of a machine or a job may belong to the incident.
func (i *Incident) Wants(host, job string) bool {
	return i.Until == 0 || host != "" && slices.Contains(i.Hosts, host) || job != "" && job == i.Job
}

// Looked notes that an incident has the records up to a batch.
func (f *Followed) Looked(i *Incident, until uint64, now time.Time) {
	if !i.ends.IsZero() && now.After(i.ends) {
		f.Forget(i.ID)
		return
	}
	i.Until, i.due = until, now.Add(every)
}

// Later has an incident looked at again: it could not be kept.
func (f *Followed) Later(i *Incident, now time.Time) { i.due = now.Add(every) }

// Forget follows an incident no more.
func (f *Followed) Forget(id string) {
	if i := f.of[id]; i != nil {
		f.order.Remove(i.place)
		delete(f.of, id)
	}
}
