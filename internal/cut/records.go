package cut

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Resource returns the resource itself where it keeps the limits, else a copy that does.
func (l Limits) Resource(r pcommon.Resource) (_ pcommon.Resource, cut bool) {
	if l.Within(r.Attributes()) {
		return r, false
	}
	short := pcommon.NewResource()
	l.Copy(r.Attributes(), short.Attributes())
	return short, true
}

// Scope makes to a copy of a scope that keeps the limits.
func (l Limits) Scope(s, to pcommon.InstrumentationScope) {
	to.SetName(Text(s.Name(), l.Text))
	to.SetVersion(Text(s.Version(), l.Text))
	l.Copy(s.Attributes(), to.Attributes())
}

// Point returns the data point itself where it keeps the limits, else a copy that does,
// without exemplars.
func (l Limits) Point(p pmetric.NumberDataPoint) (_ pmetric.NumberDataPoint, cut bool) {
	within := l.Within(p.Attributes())
	if within && p.Exemplars().Len() == 0 {
		return p, false
	}
	short := pmetric.NewNumberDataPoint()
	l.Copy(p.Attributes(), short.Attributes())
	short.SetTimestamp(p.Timestamp())
	short.SetStartTimestamp(p.StartTimestamp())
	short.SetFlags(p.Flags())
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		short.SetIntValue(p.IntValue())
	} else {
		short.SetDoubleValue(p.DoubleValue())
	}
	return short, !within
}

// Record returns the record itself where its attributes and its body keep the limits,
// else a copy that does. Its event name is somebody's business who knows the names.
func (l Limits) Record(r plog.LogRecord) (_ plog.LogRecord, cut bool) {
	left := l.Bytes
	if l.Within(r.Attributes()) && l.valueWithin(r.Body(), &left) {
		return r, false
	}
	short := plog.NewLogRecord()
	l.Copy(r.Attributes(), short.Attributes())
	left = l.Bytes
	l.value(r.Body(), short.Body(), &left)
	short.SetEventName(r.EventName())
	short.SetTimestamp(r.Timestamp())
	short.SetObservedTimestamp(r.ObservedTimestamp())
	short.SetSeverityNumber(r.SeverityNumber())
	short.SetSeverityText(Text(r.SeverityText(), l.Text))
	short.SetTraceID(r.TraceID())
	short.SetSpanID(r.SpanID())
	short.SetFlags(r.Flags())
	return short, true
}
