package top

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/toptest"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var began = toptest.Began

// play gives a tape to the patterns and to a book of ranks, as tracecore does.
func play(t testing.TB, r *toptest.Tape) Recording {
	t.Helper()
	rules, err := patterns.Library()
	require.NoError(t, err)
	e, err := engine.New(rules, engine.Options{Lateness: 15 * time.Second})
	require.NoError(t, err)
	newest := map[string]verdict.Verdict{}
	var order []string
	take := func() {
		for _, v := range e.Verdicts() {
			if _, known := newest[v.ID]; !known {
				order = append(order, v.ID)
			}
			newest[v.ID] = v
		}
	}
	book := ranks.NewBook(ranks.DefaultMost)
	var last time.Time
	for _, logs := range r.Batches {
		last = logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Timestamp().AsTime()
		e.Advance(last)
		book.Logs(e.Logs(logs), e.RunOf)
		take()
	}
	for i := range 5 {
		e.Advance(last.Add(time.Duration(i) * time.Second))
		take()
	}
	out := Recording{Name: "dgx-a", At: last.Add(2 * time.Second), Ranks: book, Agents: heartbeat.NewBook(time.Time{}), Unfed: []string{"gpu", "rdma"}}
	for _, id := range order { // the words of evidence are the rules', and change with them
		v := newest[id]
		v.Evidence = slices.DeleteFunc(slices.Clone(v.Evidence), func(e verdict.Evidence) bool {
			return e.Source == toptest.StackEvent || e.Source != v.Evidence[0].Source
		})
		v.NotObserved, v.Missing = []string{"an Xid"}, []verdict.Missing{{Name: "xid", Text: "an Xid", Sources: []string{"gpu.xid"}}}
		out.Verdicts = append(out.Verdicts, v)
	}
	out.View = func(incident []verdict.Verdict) (incidentview.View, error) {
		records := incidentview.NewRecords(incident)
		for _, logs := range r.Batches {
			records.Logs(logs)
		}
		return incidentview.Build(incident, incidentview.Options{Now: out.At, Version: "test", Records: records}), nil
	}
	return out
}
