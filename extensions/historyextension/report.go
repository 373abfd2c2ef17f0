package historyextension

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/safetext"
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
	v := incidentview.Build(whole.Verdicts, incidentview.Options{
		Now: k.now(), Version: k.settings.BuildInfo.Version, Records: records, Feeds: k.fed(whole.Incident.Updated),
	})
	v.Made.From = []string{"history of " + safetext.Line(k.hostname)}
	if whole.Cut {
		v.Made.Flaws = append(v.Made.Flaws, "the incident has more verdicts than one answer holds")
	}
	return v, nil
}

// fed says of a piece of evidence whether it could be seen. That no such record has come
// says nothing: faults are rare, and who would tell of one may be at work.
func (k *keeper) fed(updated time.Time) func(pattern, evidence string, _ []string) incidentview.Feed {
	_, feeds := k.ails()
	last := map[[2]string]time.Time{}
	for _, f := range feeds {
		name := [2]string{f.Pattern, f.Evidence}
		if f.Last != nil && f.Last.After(last[name]) {
			last[name] = *f.Last
		}
	}
	return func(pattern, evidence string, _ []string) incidentview.Feed {
		at := last[[2]string{pattern, evidence}]
		switch {
		case k.started.After(updated):
			return incidentview.Feed{Kind: incidentview.NotKnown, Why: "tracecore has started again since"}
		case at.IsZero():
			return incidentview.Feed{Kind: incidentview.NotKnown, Why: "no such record came since the start at " + stamped(k.started)}
		}
		return incidentview.Feed{Kind: incidentview.NotThere, Why: "such records came, the last at " + stamped(at), Heard: at}
	}
}

func stamped(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }

func incidentSchema(w http.ResponseWriter, _ *http.Request, _ url.Values) {
	_, _ = w.Write(incidentview.SchemaJSON)
}
