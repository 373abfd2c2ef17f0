package verdict

import (
	"crypto/sha256"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// IncidentSpan is the root span of an incident: an incident is also a trace. Its ids are
// made of the incident's id, so they are the same each time they are made.
func IncidentSpan(incidentID string) Span { return spanFrom("tracecore incident", incidentID) }

// RunSpan is the root span of a run, one start of a job: a run is also a trace.
func RunSpan(runID string) Span { return spanFrom("tracecore run", runID) }

// ChildSpan is the id of a span below the root of an incident: of a symptom, by its verdict
// id, or of a piece of evidence, by that and its name.
func ChildSpan(names ...string) pcommon.SpanID {
	sum := digest("tracecore span", names...)
	return pcommon.SpanID(sum[:8])
}

func spanFrom(kind, id string) Span {
	sum := digest(kind, id)
	return SpanOf(pcommon.TraceID(sum[:16]), pcommon.SpanID(sum[16:24]))
}

// digest is never 0 at any place where an id is taken from it, which means "none".
func digest(kind string, names ...string) [sha256.Size]byte {
	h := sha256.New()
	_, _ = h.Write([]byte(kind))
	for _, name := range names {
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(name))
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	sum[0] |= 1
	sum[16] |= 1
	return sum
}
