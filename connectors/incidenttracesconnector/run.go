package incidenttracesconnector

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// runSpan is the name of the span of a run.
const runSpan = "training.run"

// run takes a record of a run that ended, and reports whether it was one. Its trace is one
// span, which leaves at once.
func (t *tracer) run(ctx context.Context, record plog.LogRecord, host, node string) bool {
	ended, err := history.FromRecord(record)
	switch {
	case errors.Is(err, history.ErrNotSummary):
		return false
	case err != nil:
		t.invalid(ctx, err)
		return false
	case !t.room():
		t.telemetry.ConnectorIncidenttracesLost.Add(ctx, 1)
		return false
	}
	attributes := pcommon.NewMap()
	record.Attributes().CopyTo(attributes)
	attributes.Remove(history.AttrSummaryJSON)
	t.waiting = append(t.waiting, &incident{id: ended.ID, run: &runTold{ended, host, node, attributes}})
	return true
}

// runTold is a run that ended and the machine that told of it.
type runTold struct {
	history.Run
	host, node string
	attributes pcommon.Map
}

// trace makes the trace of a run.
func (r *runTold) trace(version string) ptrace.Traces {
	w := writer{version: version, spans: map[[2]string]ptrace.SpanSlice{}, traces: ptrace.NewTraces()}
	w.trace, w.root = verdict.RunSpan(r.ID).IDs()
	span := w.span(&told{host: r.host, node: r.node}, runSpan, r.Began, r.Until())
	span.SetSpanID(w.root)
	r.attributes.CopyTo(span.Attributes())
	if r.Outcome == history.RunFailed {
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(history.Words(&r.Run))
	}
	return w.traces
}
