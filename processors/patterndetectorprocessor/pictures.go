package patterndetectorprocessor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Bounds of what one scrape is told. Each series is gone once its incident or its job is.
const (
	mostIncidents = 512
	mostJobs      = 256
	longestLabel  = 256
)

// incidents observes the root causes that are open, for dashboards and alerts that name a
// place.
func (d *detector) incidents(_ context.Context, o metric.Int64Observer) error {
	for _, v := range d.openCauses() {
		_, node := d.place(v)
		o.Observe(v.Onset.Unix(), metric.WithAttributes(
			label("culprit_gpu", v.Culprit["gpu"]), label("culprit_node", cmp.Or(node, v.Culprit["host"], d.hostname)),
			label("incident", v.IncidentID), attribute.Bool("pages", v.Pages(verdict.Warning)), label("pattern", v.Pattern),
			label("severity", string(v.Severity)), attribute.Bool("stands", v.Stands), label("training_job", v.Culprit["job"]), label("training_rank", v.Culprit["rank"]),
		))
	}
	return nil
}

// openCauses are the root causes that are told of, the worst and newest first.
func (d *detector) openCauses() []verdict.Verdict {
	d.mu.Lock()
	now := d.clock.now()
	open := slices.DeleteFunc(d.engine.Open(), func(v verdict.Verdict) bool {
		_, muted := d.muted.items[v.ID]
		return v.Role != verdict.RootCause || v.Drill || muted || d.muted.incident(&v, now)
	})
	d.mu.Unlock()
	slices.SortFunc(open, func(a, b verdict.Verdict) int {
		return cmp.Or(b.Severity.Compare(a.Severity), b.Onset.Compare(a.Onset), cmp.Compare(a.ID, b.ID))
	})
	return open[:min(len(open), mostIncidents)]
}

// rankStates observes how the ranks of jobs fare. Jobs of one name in two domains count
// together.
func (d *detector) rankStates(_ context.Context, o metric.Int64Observer) error {
	d.mu.Lock()
	book, now := d.keeping.ranks, d.clock.now()
	d.mu.Unlock()
	if book == nil {
		return nil
	}
	for job, counts := range countRanks(book, now) {
		for _, state := range history.RankStates {
			o.Observe(int64(counts[state]), metric.WithAttributes(attribute.String("rank_state", state), label("training_job", job)))
		}
	}
	return nil
}

// countRanks are the ranks of each job by state, of the newest jobs.
func countRanks(book *ranks.Book, now time.Time) map[string]map[string]int {
	jobs, _ := book.States(now)
	all := map[string]map[string]int{}
	for i := range jobs {
		job := &jobs[i]
		if job.Drill || all[job.Job] == nil && len(all) == mostJobs {
			continue
		}
		if all[job.Job] == nil {
			all[job.Job] = map[string]int{}
		}
		for state, count := range job.Counts {
			all[job.Job][state] += count
		}
	}
	return all
}

func label(name, value string) attribute.KeyValue {
	return attribute.String(name, safetext.Clip(value, longestLabel))
}

// inIncident is a context whose measurements carry the trace of an incident as exemplar:
// the connector incidenttraces makes that trace.
func inIncident(ctx context.Context, id string) context.Context {
	return inTrace(ctx, verdict.IncidentSpan(id))
}

// inRun is the same for the trace of a run.
func inRun(ctx context.Context, id string) context.Context {
	return inTrace(ctx, verdict.RunSpan(id))
}

func inTrace(ctx context.Context, span verdict.Span) context.Context {
	traceID, spanID := span.IDs()
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(traceID), SpanID: trace.SpanID(spanID), TraceFlags: trace.FlagsSampled,
	}))
}
