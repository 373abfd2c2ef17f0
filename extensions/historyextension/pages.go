package historyextension

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

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
	page(w, func(b *bytes.Buffer) error { return incidentview.WriteListHTML(b, list) })
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
	page(w, func(b *bytes.Buffer) error { return incidentview.WriteHTML(b, v) })
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
