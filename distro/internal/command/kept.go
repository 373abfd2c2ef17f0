package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// isPath reports whether a name is a file or a folder, or is written as one: all else is
// asked of the history.
func isPath(name string) bool {
	_, err := os.Lstat(name)
	return err == nil || strings.ContainsRune(name, filepath.Separator)
}

// kept makes the view of an incident that a history has: by its id, or by its job.
func (f *reportFlags) kept(cmd *cobra.Command, name string) (v incidentview.View, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), answerPatience)
	defer cancel()
	v, err = f.history.view(ctx, name)
	others := 0
	switch {
	case err == nil:
		err = f.matches(v.ID)
	case errors.Is(err, errNotThere):
		var list history.Incidents
		if list, err = f.history.incidentsOf(ctx, name); err == nil {
			var id string
			if id, err = f.pick(cmd, name, &list); err == nil {
				others = len(list.Incidents) - 1
				v, err = f.history.view(ctx, id)
			}
		}
	}
	if err != nil {
		return v, fmt.Errorf("%s is no file here, so the history is asked: %w", safetext.Line(name), err)
	}
	v.Made.Others = others
	v.Made.Again = strings.Join([]string{"tracecore report --address", rule.ShellWord(f.history.address), v.ID, "-o", rule.ShellWord(filepath.Base(f.out))}, " ")
	return v, nil
}

// view asks for one incident.
func (a *asking) view(ctx context.Context, id string) (incidentview.View, error) {
	text, err := a.getAs(ctx, incidentview.Schema, "/v1/incidents/"+url.PathEscape(id)+"/report", nil)
	if err != nil {
		return incidentview.View{}, err
	}
	return incidentview.FromJSON(text)
}

// incidentsOf asks for the incidents of a job, the newest first.
func (a *asking) incidentsOf(ctx context.Context, job string) (history.Incidents, error) {
	return a.list(ctx, "job", job)
}

// list asks for the incidents of which one thing is so, the newest first.
func (a *asking) list(ctx context.Context, what, is string) (list history.Incidents, err error) {
	text, err := a.get(ctx, "/v1/incidents", url.Values{what: {is}, "limit": {strconv.Itoa(history.MaxLimit)}})
	if err != nil {
		return list, err
	}
	if err := decode(text, &list); err != nil {
		return list, err
	}
	return list, nil
}

// pick takes the incident that was asked for, or the most severe.
func (f *reportFlags) pick(cmd *cobra.Command, job string, list *history.Incidents) (id string, err error) {
	if len(list.Incidents) == 0 {
		return "", fmt.Errorf("%s keeps no incident and no job of that name: tracecore incidents lists them", safetext.Line(list.Host))
	}
	heads := make([][]verdict.Verdict, len(list.Incidents))
	slices.SortStableFunc(list.Incidents, func(a, b history.Incident) int { return b.Severity.Compare(a.Severity) })
	for i := range list.Incidents {
		one := &list.Incidents[i]
		heads[i] = []verdict.Verdict{{IncidentID: safetext.Line(one.ID), Severity: verdict.Severity(safetext.Line(string(one.Severity))), Headline: safetext.Line(one.Headline)}}
	}
	fit, _, err := f.among(cmd.ErrOrStderr(), heads)
	if err != nil {
		return "", fmt.Errorf("job %s: %w", safetext.Line(job), err)
	}
	return fit[0].IncidentID, nil
}

// runSide is a run of a job with its incidents.
func (a *asking) runSide(ctx context.Context, id string) (side incidentview.Side, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	text, err := a.get(ctx, "/v1/runs/"+url.PathEscape(id), nil)
	if err != nil {
		return side, fmt.Errorf("%s is no file here, so the history is asked for a run: %w", safetext.Line(id), err)
	}
	var one history.OneRun
	if err := decode(text, &one); err != nil {
		return side, err
	}
	run := &one.Run
	side.Name, side.First, side.Last = safetext.Line(run.Job+" "+run.ID), run.Began, run.Until()
	if run.Outcome == history.RunGoesOn {
		side.Last = one.At
	}
	if s := run.Steps; s != nil && s.Each > 0 {
		side.Steps, side.StepTime = s.Count, time.Duration(s.Each*float64(time.Second))
	}
	for i := range one.Incidents {
		v, err := a.view(ctx, one.Incidents[i].ID)
		if errors.Is(err, errNotThere) {
			continue // it has given way since
		}
		if err != nil {
			return side, err
		}
		side.Incidents = append(side.Incidents, v.Within(side.First, side.Last))
	}
	if one.More {
		side.Notes = append(side.Notes, fmt.Sprintf("%s: incidents beyond the newest %d", side.Name, history.MaxOfARun))
	}
	if run.RanksCount < run.WorldSize {
		side.Notes = append(side.Notes, fmt.Sprintf("%s: ranks other than the %s of %s that %s saw", side.Name, verdict.Number(run.RanksCount), verdict.Number(run.WorldSize), safetext.Line(one.Host)))
	}
	return side, nil
}
