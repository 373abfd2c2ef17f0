package cut

import (
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Logs returns ld with its resources, and its records of wanted names, cut to the limits, and
// how many it cut: ld itself where all keep them. Texts that stay are shared, not copied.
func (l Limits) Logs(ld plog.Logs, wanted func(event string) bool) (short plog.Logs, cut int) {
	short = ld
	own := func() {
		if cut++; cut == 1 {
			short = plog.NewLogs()
			ld.CopyTo(short)
		}
	}
	for i, rl := range ld.ResourceLogs().All() {
		if resource, cut := l.Resource(rl.Resource()); cut {
			own()
			resource.MoveTo(short.ResourceLogs().At(i).Resource())
		}
		for j, sl := range rl.ScopeLogs().All() {
			for k, lr := range sl.LogRecords().All() {
				if !wanted(lr.EventName()) {
					continue
				}
				if record, cut := l.Record(lr); cut {
					own()
					record.MoveTo(short.ResourceLogs().At(i).ScopeLogs().At(j).LogRecords().At(k))
				}
			}
		}
	}
	return short, cut
}

// Metrics is Logs for the points of gauges and sums.
func (l Limits) Metrics(md pmetric.Metrics, wanted func(metric string) bool) (short pmetric.Metrics, cut int) {
	short = md
	own := func() {
		if cut++; cut == 1 {
			short = pmetric.NewMetrics()
			md.CopyTo(short)
		}
	}
	for i, rm := range md.ResourceMetrics().All() {
		if resource, cut := l.Resource(rm.Resource()); cut {
			own()
			resource.MoveTo(short.ResourceMetrics().At(i).Resource())
		}
		for j, sm := range rm.ScopeMetrics().All() {
			for k, m := range sm.Metrics().All() {
				if !wanted(m.Name()) {
					continue
				}
				for n, p := range numbers(m).All() {
					if point, cut := l.Point(p); cut {
						own()
						point.MoveTo(numbers(short.ResourceMetrics().At(i).ScopeMetrics().At(j).Metrics().At(k)).At(n))
					}
				}
			}
		}
	}
	return short, cut
}

// numbers are the points of a gauge or a sum; other types have none.
func numbers(m pmetric.Metric) pmetric.NumberDataPointSlice {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints()
	default:
		return pmetric.NewNumberDataPointSlice()
	}
}
