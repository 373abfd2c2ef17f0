package top

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Recording is what was read of one.
type Recording struct {
	Name     string
	At       time.Time // its end
	Verdicts []verdict.Verdict
	// View makes the view of an incident. It is asked once for each that is shown.
	View   func(incident []verdict.Verdict) (incidentview.View, error)
	Ranks  *ranks.Book
	Agents *heartbeat.Book // that it tells of
	Feeds  []history.Feed
	Unfed  []string
	// Problem says which parts of it could not be read, or why it means less than it could.
	Problem string
}

// recorded is a source that shows the end of a recording.
type recorded struct {
	Recording
	picture   Picture
	incidents map[string][]verdict.Verdict
	views     map[string]incidentview.View
}

// NewRecorded makes a source of a recording.
func NewRecorded(r Recording) Source {
	s := &recorded{Recording: r, incidents: map[string][]verdict.Verdict{}, views: map[string]incidentview.View{}}
	s.picture = Picture{Host: r.Name, Recorded: true, At: r.At, Unfed: r.Unfed, Problem: r.Problem}
	for _, incident := range verdict.Incidents(r.Verdicts) {
		s.picture.Incidents = append(s.picture.Incidents, Summary(incident))
		s.picture.Named = append(s.picture.Named, NamedBy(incident)...)
		s.incidents[incident[0].IncidentID] = incident
	}
	s.picture.Status = s.status()
	slices.SortStableFunc(s.picture.Incidents, func(a, b history.Incident) int { return b.Onset.Compare(a.Onset) })
	return s
}

// status says who watched; a recording that tells of no agent has none.
func (s *recorded) status() *history.Status {
	agents, counts := s.Agents.Agents(s.At)
	if len(agents) == 0 {
		return nil
	}
	told := history.Status{
		Incidents: len(s.picture.Incidents), Open: len(s.picture.Open()), Feeds: s.Feeds, Agents: counts, WorstAgents: agents[:min(len(agents), history.MaxStatusAgents)],
	}
	for _, i := range s.picture.Open() {
		told.RootCauses += truth(i.Role == verdict.RootCause && i.Confidence == verdict.Full && !i.Drill)
	}
	return &told
}

// Look implements Source.
func (s *recorded) Look(_ context.Context, want Want) (Picture, error) {
	p := s.picture
	p.Jobs, _ = s.Ranks.States(s.At)
	wanted := []string{want.Incident}
	if open := p.Open(); len(open) > 0 {
		wanted = append(wanted, open[0].ID)
	}
	for _, id := range wanted {
		if err := s.view(id); err != nil {
			return p, err
		}
	}
	p.Views = maps.Clone(s.views)
	if want.Rank >= 0 {
		if d, ok := s.Ranks.State(want.Job, want.Domain, want.Rank, s.At); ok {
			p.Rank = &d
		}
	}
	return p, nil
}

func (s *recorded) view(id string) error {
	incident, known := s.incidents[id]
	if _, made := s.views[id]; made || !known {
		return nil
	}
	v, err := s.View(incident)
	s.views[id] = v
	return err
}

// Summary is an incident as a list shows it.
func Summary(incident []verdict.Verdict) history.Incident {
	head := incident[0]
	status, ended := head.Incident()
	i := history.Incident{
		ID: head.IncidentID, Role: head.Role, Status: status, Severity: head.Severity, Confidence: head.Confidence, Trust: head.Trust, Pattern: head.Pattern,
		Headline: head.Headline, Culprit: head.Culprit, Drill: head.Drill, Onset: head.Onset, Resolved: ended, Updated: head.Updated, Verdicts: len(incident),
	}
	jobs, nodes := map[string]bool{}, map[string]bool{}
	for _, v := range incident {
		if v.Updated.After(i.Updated) {
			i.Updated = v.Updated
		}
		jobs[v.Culprit["job"]], nodes[v.Culprit["host"]], nodes[v.Culprit["node"]] = true, true, true
	}
	i.Jobs, i.Nodes = names(jobs), names(nodes)
	return i
}

func names(set map[string]bool) []string {
	delete(set, "")
	list := slices.Sorted(maps.Keys(set))
	return list[:min(len(list), history.MaxNames)]
}
