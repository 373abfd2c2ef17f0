package ingress

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/peer"
)

// stage marks what one receiver hands on.
type stage struct {
	source  Source
	senders Senders
	here    machine
	makers  map[string]maker
	told    told
	domains atomic.Pointer[peer.Domains] // nil before its start, and where no extension knows them
}

// batch is one call of the receiver.
type batch struct {
	*stage
	rights
	ctx     context.Context
	speaker speaker
}

func (s *stage) batch(ctx context.Context) batch {
	info := client.FromContext(ctx)
	b := batch{stage: s, rights: s.rightsOf(info), ctx: ctx}
	if b.trust == "foreign" {
		b.speaker = s.speakerOf(info)
	}
	return b
}

func (b batch) logs(ld plog.Logs) {
	ld.ResourceLogs().RemoveIf(func(rl plog.ResourceLogs) bool {
		if !b.resource(rl.Resource().Attributes()) {
			return b.refuse(countLogs(rl))
		}
		for _, sl := range rl.ScopeLogs().All() {
			b.names(sl.Scope().Attributes())
			sl.LogRecords().RemoveIf(func(lr plog.LogRecord) bool {
				b.event(lr)
				b.behind.log(lr)
				return b.drops(lr.Attributes())
			})
		}
		return false
	})
}

func (b batch) metrics(md pmetric.Metrics) {
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		if !b.resource(rm.Resource().Attributes()) {
			return b.refuse(countPoints(rm))
		}
		for _, sm := range rm.ScopeMetrics().All() {
			b.names(sm.Scope().Attributes())
			for _, m := range sm.Metrics().All() {
				b.points(m)
			}
		}
		return false
	})
}

func (b batch) traces(td ptrace.Traces) {
	td.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
		if !b.resource(rs.Resource().Attributes()) {
			return b.refuse(countSpans(rs))
		}
		for _, ss := range rs.ScopeSpans().All() {
			b.names(ss.Scope().Attributes())
			ss.Spans().RemoveIf(b.dropsSpan)
		}
		return false
	})
}

// dropsSpan goes through a span, its events and its links.
func (b batch) dropsSpan(span ptrace.Span) bool {
	span.Events().RemoveIf(func(e ptrace.SpanEvent) bool { return b.drops(e.Attributes()) })
	span.Links().RemoveIf(func(l ptrace.SpanLink) bool { return b.drops(l.Attributes()) })
	b.behind.span(span)
	return b.drops(span.Attributes())
}

// points goes through the data points of a metric. What a resource of a metric says of
// trust holds for its points.
func (b batch) points(m pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		m.Gauge().DataPoints().RemoveIf(func(p pmetric.NumberDataPoint) bool { return b.dropsPoint(p) })
	case pmetric.MetricTypeSum:
		m.Sum().DataPoints().RemoveIf(func(p pmetric.NumberDataPoint) bool { return b.dropsPoint(p) })
	case pmetric.MetricTypeHistogram:
		m.Histogram().DataPoints().RemoveIf(func(p pmetric.HistogramDataPoint) bool { return b.dropsPoint(p) })
	case pmetric.MetricTypeExponentialHistogram:
		m.ExponentialHistogram().DataPoints().RemoveIf(func(p pmetric.ExponentialHistogramDataPoint) bool { return b.dropsPoint(p) })
	case pmetric.MetricTypeSummary:
		m.Summary().DataPoints().RemoveIf(func(p pmetric.SummaryDataPoint) bool { return b.dropsPoint(p) })
	}
}

func (b batch) dropsPoint(p point) bool {
	b.behind.point(p)
	return b.drops(p.Attributes())
}

func (b batch) drops(attributes pcommon.Map) bool {
	if !b.attributes(attributes) {
		return b.refuse(1)
	}
	b.places(attributes)
	return false
}

// event renames an event that this sender may not send.
func (b batch) event(lr plog.LogRecord) {
	if b.makers[lr.EventName()] > b.events {
		b.told.renamed(b.ctx, "event", lr.EventName())
		lr.SetEventName(prefix + lr.EventName())
	}
}

// resource makes a resource that of the sender; false where it may not speak of it.
func (b batch) resource(m pcommon.Map) bool {
	named := false
	for key := range m.All() {
		named = named || namesMachine(key)
	}
	if !b.attributes(m) {
		return false
	}
	b.places(m)
	if b.hosts == thisHost || b.hosts == provenHost || b.hosts == namedHost && named {
		b.machine.put(m)
	}
	if b.trust != "" {
		m.PutStr(trustKey, b.trust)
	}
	if b.hosts == provenHost {
		b.behind.resource(m)
	}
	return true
}

// attributes takes away what the sender may not say; false where it speaks of a machine
// that it may not speak of.
func (b batch) attributes(m pcommon.Map) bool {
	b.names(m)
	switch b.hosts {
	case anyHost:
		return true
	case provenHost:
		return b.machine.isAllOf(m)
	}
	m.RemoveIf(func(key string, _ pcommon.Value) bool { return namesMachine(key) })
	return true
}

// names renames the attributes that speak for tracecore. One name may come more than once.
func (b batch) names(m pcommon.Map) {
	if b.trust == "" {
		return
	}
	var reserved []string
	for key := range m.All() {
		if reservedAttribute(key) {
			reserved = append(reserved, key)
		}
	}
	for _, key := range reserved {
		b.rename(m, key)
	}
}

// rename gives an attribute a name that says nothing to tracecore.
func (b batch) rename(m pcommon.Map, key string) {
	b.told.renamed(b.ctx, "attribute", key)
	if value, ok := m.Get(key); ok {
		kept := pcommon.NewValueEmpty()
		value.CopyTo(kept)
		m.Remove(key)
		kept.CopyTo(m.PutEmpty(prefix + key))
	}
}

// places puts what attributes name into what is the sender's own: its jobs, its pod, its container.
func (b batch) places(m pcommon.Map) {
	b.speaker.place(m)
	for _, key := range b.speaker.strangers(m) {
		b.rename(m, key)
	}
}

// refuse counts what is left out, and says that it is.
func (b batch) refuse(records int) bool {
	b.told.refused(b.ctx, records, b.machine.host)
	return true
}

func countLogs(rl plog.ResourceLogs) int {
	n := 0
	for _, sl := range rl.ScopeLogs().All() {
		n += sl.LogRecords().Len()
	}
	return n
}

func countSpans(rs ptrace.ResourceSpans) int {
	n := 0
	for _, ss := range rs.ScopeSpans().All() {
		n += ss.Spans().Len()
	}
	return n
}

func countPoints(rm pmetric.ResourceMetrics) int {
	md := pmetric.NewMetrics()
	rm.MoveTo(md.ResourceMetrics().AppendEmpty())
	return md.DataPointCount()
}
