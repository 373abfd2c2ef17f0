package replay

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// batch is what came together: one message of an exporter, or the records that
// one line of a kernel log led to. One of logs and metrics is empty.
type batch struct {
	logs    plog.Logs
	metrics pmetric.Metrics
	records int
	span
}

// span is the event time of a batch in Unix nanoseconds, 0 where nothing in it
// has a time, and when it arrived.
type span struct{ first, last, observed int64 }

func (s *span) cover(at int64) {
	if at <= 0 {
		return
	}
	if s.first == 0 || at < s.first {
		s.first = at
	}
	s.last = max(s.last, at)
}

func ofLogs(logs plog.Logs) batch {
	b := batch{logs: logs, metrics: pmetric.NewMetrics(), records: logs.LogRecordCount()}
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				b.cover(timeOf(record))
				b.observed = max(b.observed, int64(record.ObservedTimestamp()))
			}
		}
	}
	return b
}

// timeOf is when a record happened, or else when somebody saw it.
func timeOf(record plog.LogRecord) int64 {
	if at := int64(record.Timestamp()); at > 0 {
		return at
	}
	return int64(record.ObservedTimestamp())
}

func ofMetrics(metrics pmetric.Metrics) batch {
	b := batch{logs: plog.NewLogs(), metrics: metrics, records: metrics.DataPointCount()}
	for _, resource := range metrics.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				for _, point := range points(metric).All() {
					b.cover(int64(point.Timestamp()))
				}
			}
		}
	}
	return b
}

// points are those that patterns look at: of sums and gauges.
func points(metric pmetric.Metric) pmetric.NumberDataPointSlice {
	switch metric.Type() {
	case pmetric.MetricTypeSum:
		return metric.Sum().DataPoints()
	case pmetric.MetricTypeGauge:
		return metric.Gauge().DataPoints()
	default:
		return pmetric.NewNumberDataPointSlice()
	}
}

// split returns a batch as it is when it covers no more than the time that
// records may be late. What covers more, such as a whole day in one document,
// becomes single records in order of time: nothing in it is late.
func (b batch) split(lateness time.Duration) []batch {
	if b.last-b.first <= int64(lateness) {
		return []batch{b}
	}
	singles := append(eachLog(b.logs), eachPoint(b.metrics)...)
	slices.SortStableFunc(singles, func(x, y batch) int { return int(min(max(x.first-y.first, -1), 1)) })
	return singles
}

func eachLog(logs plog.Logs) []batch {
	var out []batch
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				one := plog.NewLogs()
				to := one.ResourceLogs().AppendEmpty()
				resource.Resource().CopyTo(to.Resource())
				within := to.ScopeLogs().AppendEmpty()
				scope.Scope().CopyTo(within.Scope())
				record.CopyTo(within.LogRecords().AppendEmpty())
				out = append(out, ofLogs(one))
			}
		}
	}
	return out
}

// eachPoint keeps together what a metric tells of one moment: a job's traffic is the sum of
// its points.
func eachPoint(metrics pmetric.Metrics) []batch {
	var out []batch
	for _, resource := range metrics.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				moments := map[pcommon.Timestamp]pmetric.NumberDataPointSlice{}
				var messages []pmetric.Metrics
				for _, point := range points(metric).All() {
					of, known := moments[point.Timestamp()]
					if !known {
						var one pmetric.Metrics
						one, of = emptyAs(resource.Resource(), scope.Scope(), metric)
						messages, moments[point.Timestamp()] = append(messages, one), of
					}
					point.CopyTo(of.AppendEmpty())
				}
				for _, one := range messages {
					out = append(out, ofMetrics(one))
				}
			}
		}
	}
	return out
}

// emptyAs is a message with a metric of the same name and kind, and the place of its points.
func emptyAs(resource pcommon.Resource, scope pcommon.InstrumentationScope, metric pmetric.Metric) (pmetric.Metrics, pmetric.NumberDataPointSlice) {
	one := pmetric.NewMetrics()
	to := one.ResourceMetrics().AppendEmpty()
	resource.CopyTo(to.Resource())
	within := to.ScopeMetrics().AppendEmpty()
	scope.CopyTo(within.Scope())
	m := within.Metrics().AppendEmpty()
	m.SetName(metric.Name())
	m.SetUnit(metric.Unit())
	if metric.Type() == pmetric.MetricTypeSum {
		sum := m.SetEmptySum()
		sum.SetIsMonotonic(metric.Sum().IsMonotonic())
		sum.SetAggregationTemporality(metric.Sum().AggregationTemporality())
		return one, sum.DataPoints()
	}
	return one, m.SetEmptyGauge().DataPoints()
}
