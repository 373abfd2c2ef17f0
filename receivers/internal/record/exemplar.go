package record

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// Attributes by which exemplars say whose measurement they are.
const (
	exemplarRank = "gen_ai.training.rank"
	exemplarJob  = "gen_ai.training.job_id"
	exemplarPID  = "process.pid"
)

// Exemplar adds to a point a measurement of one process of a rank: which it is, and the trace
// and span of TRACEPARENT in its environment. The pattern detector puts it into the rank's step.
func Exemplar(to pmetric.NumberDataPoint, p *identity.Process, value float64, at pcommon.Timestamp) {
	e := to.Exemplars().AppendEmpty()
	e.SetTimestamp(at)
	e.SetDoubleValue(value)
	e.FilteredAttributes().PutInt(exemplarRank, int64(p.Rank))
	e.FilteredAttributes().PutInt(exemplarPID, int64(p.PID))
	if _, told := to.Attributes().Get(exemplarJob); !told && p.JobID != "" {
		On(e.FilteredAttributes()).Str(exemplarJob, p.JobID)
	}
	if p.Trace.Known() {
		e.SetTraceID(p.Trace.TraceID)
		e.SetSpanID(p.Trace.SpanID)
	}
}
