package historyextension

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// listed answers with a page of incidents. It takes what /v1/incidents takes.
func (k *keeper) listed(w http.ResponseWriter, r *http.Request, filter history.Filter) {
	found, more, err := k.store.Incidents(r.Context(), filter)
	if err != nil {
		k.trouble(w, err)
		return
	}
	now := k.now()
	list := incidentview.List{Host: k.hostname, At: now, More: more}
	for i := range found {
		one := &found[i]
		list.Rows = append(list.Rows, incidentview.Row{
			Link: "/incidents/" + url.PathEscape(one.ID), Headline: one.Headline, State: one.State(now), Over: one.Status == verdict.Resolved,
			Where: some(one.Nodes), Job: some(one.Jobs), Since: one.Onset, Lasted: one.Lasted(now),
		})
	}
	if list.Jobs, err = k.jobRows(r, filter); err != nil {
		k.trouble(w, err)
		return
	}
	list.Agents, list.AgentsWords = k.agentRows()
	page(w, func(b *bytes.Buffer) error { return incidentview.WriteListHTML(b, list) })
}

// agentRows are the agents that need a look most, where there are others than our own.
func (k *keeper) agentRows() (rows []incidentview.AgentRow, words string) {
	var s history.Status
	s.Host = k.head().Host
	s.WorstAgents, s.Agents = k.agents.Agents(k.now())
	if !s.Others() {
		return nil, ""
	}
	for i := range s.WorstAgents[:min(len(s.WorstAgents), history.MaxStatusAgents)] {
		a := &s.WorstAgents[i]
		rows = append(rows, incidentview.AgentRow{
			Host: a.Host, State: a.Words(), Lost: a.Lost(), Failing: strings.Join(a.Failing(), ", "), Since: a.Since,
			Well: a.Words() == heartbeat.Watching && len(a.Failing()) == 0,
		})
	}
	return rows, s.AgentsInWords()
}

// mostJobRows bounds the starts of jobs below the incidents.
const mostJobRows = 20

func (k *keeper) jobRows(r *http.Request, filter history.Filter) (rows []incidentview.JobRow, err error) {
	filter.Limit = mostJobRows
	runs, _, err := k.store.Runs(r.Context(), filter)
	for i := range runs {
		run := &runs[i]
		row := incidentview.JobRow{
			Job: run.Job, Outcome: strings.ReplaceAll(run.Outcome, "_", " "), Ranks: verdict.Number(run.RanksCount), Hosts: some(run.Hosts), Step: run.Steps.PerStep(),
			Since: run.Began, Lasted: max(run.Until().Sub(run.Began), 0),
		}
		if run.WorldSize > 0 {
			row.Ranks += " of " + verdict.Number(run.WorldSize)
		}
		if run.Outcome == history.RunGoesOn {
			row.Lasted = max(k.now().Sub(run.Began), 0)
		}
		if run.Summary != nil {
			row.Stood = verdict.Lasting(time.Duration(run.Summary.Standing * float64(time.Second)))
		}
		if f := run.First; f != nil {
			row.Failed = "rank " + strconv.Itoa(f.Rank) + " on " + f.Host + ": " + f.How
		}
		rows = append(rows, row)
	}
	return rows, err
}

// some are the first names of a list.
func some(names []string) string {
	const most = 3
	text := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += ", …"
	}
	return text
}

// shown answers with the page of an incident.
func (k *keeper) shown(w http.ResponseWriter, r *http.Request, _ url.Values) {
	v, err := k.view(r.Context(), r.PathValue("id"))
	if err != nil {
		k.trouble(w, err)
		return
	}
	page(w, func(b *bytes.Buffer) error { return incidentview.WriteServedHTML(b, v, "/") })
}

// page answers with HTML that loads nothing and runs nothing.
func page(w http.ResponseWriter, write func(*bytes.Buffer) error) {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", incidentview.Policy())
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	_, _ = w.Write(b.Bytes())
}
