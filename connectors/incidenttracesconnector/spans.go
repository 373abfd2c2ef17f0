package incidenttracesconnector

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/connectors/incidenttracesconnector/internal/metadata"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// service is what the spans are of, for who tells traces apart by services.
const service = "tracecore"

// Attributes of spans that no record of a verdict has.
const (
	attrEvidenceName   = "pattern.evidence.name"
	attrEvidenceShows  = "pattern.evidence.shows"
	attrEvidenceSource = "pattern.evidence.source"
	attrEvidenceCount  = "pattern.evidence.count"
	attrEvidenceTrust  = "pattern.evidence.trust"
	attrRank           = "gen_ai.training.rank"
)

// writer writes the spans of one incident.
type writer struct {
	id      string
	trace   pcommon.TraceID
	root    pcommon.SpanID
	version string
	spans   map[[2]string]ptrace.SpanSlice // by host and node
	traces  ptrace.Traces
}

// trace makes the trace of an incident, or of a run. Equal verdicts give equal spans, with the same ids.
// Without its root cause, which left before, the others are told below it.
func (one *incident) trace(version string) ptrace.Traces {
	if one.run != nil {
		return one.run.trace(version)
	}
	w := writer{id: one.id, version: version, spans: map[[2]string]ptrace.SpanSlice{}, traces: ptrace.NewTraces()}
	w.trace, w.root = verdict.IncidentSpan(one.id).IDs()
	end := one.end()
	verdicts := slices.SortedFunc(maps.Values(one.verdicts), func(a, b told) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), a.Onset.Compare(b.Onset), cmp.Compare(a.ID, b.ID))
	})
	for i := range verdicts {
		w.verdict(&verdicts[i], end)
	}
	return w.traces
}

// end is when the last of what was told of the incident ended, or was seen.
func (one *incident) end() time.Time {
	var end time.Time
	for id := range one.verdicts {
		v := one.verdicts[id]
		end = latest(end, until(&v))
	}
	return end
}

// until is when a verdict ended, or was last seen.
func until(v *told) time.Time {
	if v.Resolved != nil {
		return latest(*v.Resolved, v.Onset)
	}
	return latest(v.Updated, v.Onset)
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// verdict writes the span of a verdict, and those of its evidence below it.
func (w *writer) verdict(v *told, end time.Time) {
	name := v.Pattern
	if v.Drill {
		name = "DRILL " + name
	}
	span := w.span(v, name, v.Onset, until(v))
	id := verdict.ChildSpan(v.ID)
	if v.Role == verdict.RootCause {
		id = w.root
		span.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	} else {
		span.SetParentSpanID(w.root)
	}
	span.SetSpanID(id)
	putVerdict(v, span)
	for i := range v.Evidence {
		w.evidence(v, i, id)
	}
}

func putVerdict(v *told, span ptrace.Span) {
	if v.Severity == verdict.Error || v.Severity == verdict.Critical {
		span.Status().SetCode(ptrace.StatusCodeError)
		span.Status().SetMessage(v.Spoken())
	}
	lr := plog.NewLogRecord()
	verdict.ToRecord(v.Verdict, lr)
	lr.Attributes().Remove(verdict.AttrJSON)
	lr.Attributes().MoveTo(span.Attributes())
	link(span, v.Span)
	for _, s := range v.RankSpans {
		link(span, s.Span()).PutInt(attrRank, int64(s.Rank))
	}
}

// link links a span to one of the job, and returns the attributes of the link.
func link(span ptrace.Span, to verdict.Span) pcommon.Map {
	if !to.Known() {
		return pcommon.NewMap()
	}
	traceID, spanID := to.IDs()
	l := span.Links().AppendEmpty()
	l.SetTraceID(traceID)
	l.SetSpanID(spanID)
	return l.Attributes()
}

// evidence writes one piece of evidence. One name may come twice: what closed a verdict is
// evidence, too.
func (w *writer) evidence(v *told, at int, parent pcommon.SpanID) {
	e := &v.Evidence[at]
	twice := 0
	for i := range at {
		if v.Evidence[i].Name == e.Name {
			twice++
		}
	}
	begin := e.Time
	if !e.Began.IsZero() && e.Began.Before(begin) {
		begin = e.Began
	}
	span := w.span(v, e.Name, begin, latest(e.Time, e.Last))
	span.SetSpanID(verdict.ChildSpan(v.ID, e.Name, strconv.Itoa(twice)))
	span.SetParentSpanID(parent)
	a := span.Attributes()
	a.PutStr(verdict.AttrIncidentID, w.id)
	a.PutStr(verdict.AttrVerdictID, v.ID)
	a.PutStr(attrEvidenceName, e.Name)
	a.PutStr(attrEvidenceShows, e.Shows)
	a.PutStr(attrEvidenceSource, e.Source)
	a.PutInt(attrEvidenceCount, int64(min(e.Count, 1<<62)))
	a.PutStr(attrEvidenceTrust, e.Trust.String())
	if v.Drill {
		a.PutBool(verdict.AttrDrill, true)
	}
	for _, s := range e.Spans {
		link(span, s)
	}
}

// span begins a span, under the resource of the machine that the verdict is about.
func (w *writer) span(v *told, name string, begin, end time.Time) ptrace.Span {
	span := w.of(v.host, v.node).AppendEmpty()
	span.SetTraceID(w.trace)
	span.SetName(name)
	span.SetKind(ptrace.SpanKindInternal)
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(begin))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(latest(begin, end)))
	return span
}

func (w *writer) of(host, node string) ptrace.SpanSlice {
	spans, ok := w.spans[[2]string{host, node}]
	if ok {
		return spans
	}
	rs := w.traces.ResourceSpans().AppendEmpty()
	a := rs.Resource().Attributes()
	a.PutStr("service.name", service)
	if host != "" {
		a.PutStr("host.name", host)
	}
	if node != "" {
		a.PutStr("k8s.node.name", node)
	}
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(metadata.ScopeName)
	ss.Scope().SetVersion(w.version)
	w.spans[[2]string{host, node}] = ss.Spans()
	return ss.Spans()
}
