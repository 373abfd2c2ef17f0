package historyextension

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// report answers with one incident as every view shows it.
func (k *keeper) report(w http.ResponseWriter, r *http.Request, _ url.Values) {
	v, err := k.view(r.Context(), r.PathValue("id"))
	if err != nil {
		k.trouble(w, err)
		return
	}
	answer(w, v)
}

// view makes the view of an incident from what is kept of it.
func (k *keeper) view(ctx context.Context, id string) (incidentview.View, error) {
	whole, err := k.store.Incident(ctx, id, false)
	if err != nil {
		return incidentview.View{}, err
	}
	evidence, err := k.store.Evidence(ctx, whole.Incident.ID)
	if err != nil {
		return incidentview.View{}, err
	}
	records := incidentview.NewRecords(whole.Verdicts)
	if err := records.Restore(evidence); err != nil {
		k.settings.Logger.Warn("the evidence of an incident is not shown", zap.String("incident", whole.Incident.ID), zap.Error(err))
		records = nil
	}
	before, err := k.before(ctx, &whole.Incident)
	if err != nil {
		return incidentview.View{}, err
	}
	v := incidentview.Build(whole.Verdicts, incidentview.Options{
		Now: k.now(), Version: k.settings.BuildInfo.Version, Records: records, Before: before, Feeds: k.fed(ctx, whole.Verdicts, &whole.Incident),
	})
	v.Made.From = []string{"history of " + safetext.Line(k.hostname)}
	if whole.Cut {
		v.Made.Flaws = append(v.Made.Flaws, "the incident has more verdicts than one answer holds")
	}
	return v, nil
}

// mostAlike bounds the earlier incidents that a report lists.
const mostAlike = 8

// before finds the incidents that are like one and were before it.
func (k *keeper) before(ctx context.Context, one *history.Incident) (*incidentview.Before, error) {
	kept, _, err := k.store.Incidents(ctx, history.Filter{Limit: history.MaxLimit})
	if err != nil {
		return nil, err
	}
	alike, others := history.Before(one, kept)
	b := &incidentview.Before{Kept: len(kept), Others: others, Alike: []incidentview.Earlier{}, More: max(len(alike)-mostAlike, 0)}
	for i := range alike[:min(len(alike), mostAlike)] {
		e := &alike[i]
		b.Alike = append(b.Alike, incidentview.Earlier{
			ID: e.ID, Since: e.Onset, Seconds: e.Lasted(k.now()).Seconds(), Open: e.Status == verdict.Open, Headline: e.Headline, Shares: history.Alike(one, e),
		})
	}
	return b, nil
}

// fed says of a piece of evidence whether it could be seen. Faults are rare: that no such
// record came says something only where who would tell of it was at work on the machines that
// are named, from the onset on. Of other machines their agents tell.
func (k *keeper) fed(ctx context.Context, incident []verdict.Verdict, about *history.Incident) func(pattern, evidence string, sources []string) incidentview.Feed {
	ailing, feeds := k.ails()
	last := map[[2]string]time.Time{}
	for _, f := range feeds {
		name := [2]string{f.Pattern, f.Evidence}
		if f.Last != nil && f.Last.After(last[name]) {
			last[name] = *f.Last
		}
	}
	works, elsewhere, hosts := k.works(), k.elsewhere(incident), k.machines(ctx, incident)
	return func(pattern, evidence string, sources []string) incidentview.Feed {
		at, who := last[[2]string{pattern, evidence}], k.whoTells(sources)
		names := strings.Join(who[:min(len(who), mostTellers)], " or ")
		switch {
		case k.started.After(about.Updated):
			return incidentview.Feed{Kind: incidentview.NotKnown, Why: "tracecore has started again since"}
		case !at.IsZero():
			return incidentview.Feed{Kind: incidentview.NotThere, Why: "such records came, the last at " + stamped(at), Heard: at}
		case len(who) == 0:
			return incidentview.Feed{Kind: incidentview.NotKnown}
		}
		if feed, told := incidentview.LookedAt(k.agents, hosts, who, about.Onset, about.Updated, k.now()); told {
			return feed
		}
		if elsewhere != "" {
			return incidentview.Feed{Kind: incidentview.NotKnown, Why: "whether " + names + " looked on " + elsewhere + ", its own agent knows"}
		}
		for _, name := range who {
			if since, ok := works[name]; ok {
				return incidentview.Feed{Kind: incidentview.NotThere, Why: name + " looked on " + safetext.Line(k.hostname) + " since " + stamped(since) + ", and told nothing of it"}
			}
		}
		for _, a := range ailing {
			if name, _, _ := strings.Cut(a.Component, "/"); a.Kind == component.KindReceiver.String() && slices.Contains(who, name) {
				return incidentview.Feed{Kind: incidentview.CannotSee, Why: a.Component + " does not work: " + a.Error}
			}
		}
		return incidentview.Feed{Kind: incidentview.CannotSee, Why: "nothing on " + safetext.Line(k.hostname) + " tells of it: that would be " + names}
	}
}

// mostTellers bounds the emitters that are named.
const mostTellers = 4

// whoTells are the emitters of events and metrics.
func (k *keeper) whoTells(sources []string) []string {
	var who []string
	for _, source := range sources {
		who = append(who, k.emitters()[source]...)
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// elsewhere is a machine that an incident names and that is not this one, "" for none.
func (k *keeper) elsewhere(incident []verdict.Verdict) string {
	for i := range incident {
		if host := incident[i].Culprit["host"]; host != "" && host != k.hostname {
			return safetext.Line(host)
		}
	}
	return ""
}

func stamped(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }

func incidentSchema(w http.ResponseWriter, _ *http.Request, _ url.Values) {
	_, _ = w.Write(incidentview.SchemaJSON)
}
