package evidence

import (
	"cmp"
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
//
// Owners take turns: a machine, and in it the domain of a job. One whose incidents come
// without end, or take long to look at, delays another's by a look or two.
type Followed struct {
	of     map[string]*Incident
	order  fairlru.List[string]
	served map[owner]time.Time // when one of its incidents was last looked at
}

// owner is whose incident it is; domain is "" for all of a machine.
type owner struct{ host, domain string }

// Incident is one that is followed.
type Incident struct {
	ID    string
	Until uint64 // the newest batch whose records it has
	Hosts []string
	Job   string
	owner owner
	due   time.Time // since when it waits, or when it will
	ends  time.Time // zero while it is open
	place *fairlru.Element[string]
}

// NewFollowed follows nobody.
func NewFollowed() *Followed {
	return &Followed{of: map[string]*Incident{}, order: timeline.NewOrder[string](), served: map[owner]time.Time{}}
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
		i = &Incident{ID: v.IncidentID, owner: owner{v.Culprit["host"], v.Culprit["job_domain"]}, due: now}
		f.of[i.ID], i.place = i, f.order.Add(i.ID, fairlru.Some, timeline.Path(v.Trust, []string{v.Culprit["host"], v.Pattern, v.Culprit["job_domain"], v.Culprit["job"]})...)
	}
	i.Until = 0
	if i.due.After(now) { // one that waits does not lose its place by more news
		i.due = now
	}
	switch status, _ := v.Incident(); {
	case status == verdict.Open:
		i.ends = time.Time{}
	case v.Role == verdict.RootCause:
		i.ends = now.Add(after)
	}
}

// Due returns the incident whose turn it is, nil where none is due: the one that has waited
// longest since its owner was looked at.
func (f *Followed) Due(now time.Time) *Incident {
	var first *Incident
	for _, i := range f.of {
		if !i.due.After(now) && (first == nil || f.before(i, first)) {
			first = i
		}
	}
	return first
}

func (f *Followed) before(a, b *Incident) bool {
	return cmp.Or(
		f.waits(a, owner{a.owner.host, ""}).Compare(f.waits(b, owner{b.owner.host, ""})),
		f.waits(a, a.owner).Compare(f.waits(b, b.owner)),
		a.due.Compare(b.due), cmp.Compare(a.ID, b.ID),
	) < 0
}

// waits is since when an incident waits, and no incident of its owner was looked at.
func (f *Followed) waits(i *Incident, of owner) time.Time {
	if served := f.served[of]; served.After(i.due) {
		return served
	}
	return i.due
}

// serve notes that the owner of an incident has had a turn.
func (f *Followed) serve(i *Incident, now time.Time) {
	if len(f.served) > 4*mostFollowed {
		clear(f.served)
	}
	f.served[owner{i.owner.host, ""}], f.served[i.owner] = now, now
}

// Wants reports whether records of a machine or a job may belong to the incident.
func (i *Incident) Wants(host, job string) bool {
	return i.Until == 0 || host != "" && slices.Contains(i.Hosts, host) || job != "" && job == i.Job
}

// Looked notes that an incident has the records up to a batch.
func (f *Followed) Looked(i *Incident, until uint64, now time.Time) {
	f.serve(i, now)
	if !i.ends.IsZero() && now.After(i.ends) {
		f.Forget(i.ID)
		return
	}
	i.Until, i.due = until, now.Add(every)
}

// Later has an incident looked at again: it could not be kept.
func (f *Followed) Later(i *Incident, now time.Time) {
	f.serve(i, now)
	i.due = now.Add(every)
}

// Forget follows an incident no more.
func (f *Followed) Forget(id string) {
	if i := f.of[id]; i != nil {
		f.order.Remove(i.place)
		delete(f.of, id)
	}
}
