package engine

import (
	"math"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottldatapoint"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
)

// Metrics is Logs for number data points.
func (e *Engine) Metrics(md pmetric.Metrics) pmetric.Metrics {
	wanted := pmetric.NewMetrics()
	for i := range md.ResourceMetrics().Len() {
		rm := md.ResourceMetrics().At(i)
		from, to := e.metricsResourceOf(rm), pmetric.NewResourceMetrics()
		boot := e.bootOf(from.Resource().Attributes())
		for j := range rm.ScopeMetrics().Len() {
			e.scopeMetrics(from, rm.ScopeMetrics().At(j), &boot, to)
		}
		if to.ScopeMetrics().Len() > 0 {
			from.Resource().CopyTo(to.Resource())
			to.MoveTo(wanted.ResourceMetrics().AppendEmpty())
		}
	}
	e.decideDue()
	return wanted
}

// metricsResourceOf is resourceOf for metrics.
func (e *Engine) metricsResourceOf(rm pmetric.ResourceMetrics) pmetric.ResourceMetrics {
	resource, cut := recordLimits.Resource(rm.Resource())
	if !cut {
		return rm
	}
	e.own.Cut++
	short := pmetric.NewResourceMetrics()
	resource.MoveTo(short.Resource())
	return short
}

func (e *Engine) scopeMetrics(rm pmetric.ResourceMetrics, sm pmetric.ScopeMetrics, boot *boot, to pmetric.ResourceMetrics) {
	scope := pmetric.NewScopeMetrics()
	for k := range sm.Metrics().Len() {
		if matched := e.metric(rm, sm, boot, sm.Metrics().At(k)); matched.Name() != "" {
			matched.MoveTo(scope.Metrics().AppendEmpty())
		}
	}
	if scope.Metrics().Len() > 0 {
		recordLimits.Scope(sm.Scope(), scope.Scope())
		scope.MoveTo(to.ScopeMetrics().AppendEmpty())
	}
}

// metric shows the points of one metric and returns those that were wanted as
// a metric of the same kind, without a name when there are none.
func (e *Engine) metric(rm pmetric.ResourceMetrics, sm pmetric.ScopeMetrics, boot *boot, m pmetric.Metric) pmetric.Metric {
	matched := pmetric.NewMetric()
	points, kind := numberPoints(m)
	by := e.metrics[m.Name()]
	if by.none() && boot.host == "" {
		e.own.Unmatched += uint64(points.Len())
		return matched
	}
	for i := range points.Len() {
		dp, cut := recordLimits.Point(points.At(i))
		if cut {
			e.own.Cut++
		}
		told := e.tell(boot, m.Name(), int64(dp.Timestamp()), rm.Resource().Attributes(), dp.Attributes())
		if (by.none() || !e.point(by, rm, sm, m, dp, kind)) && !told {
			e.own.Unmatched++
			continue
		}
		e.own.Matched++
		if matched.Name() == "" {
			emptyLike(m, matched)
		}
		to, _ := numberPoints(matched)
		dp.CopyTo(to.AppendEmpty())
	}
	return matched
}

// emptyLike makes to a metric like m, without points.
func emptyLike(m, to pmetric.Metric) {
	to.SetName(m.Name())
	to.SetUnit(clean(m.Unit()))
	if m.Type() != pmetric.MetricTypeSum {
		to.SetEmptyGauge()
		return
	}
	to.SetEmptySum().SetAggregationTemporality(m.Sum().AggregationTemporality())
	to.Sum().SetIsMonotonic(m.Sum().IsMonotonic())
}

// numberPoints returns the points of a sum or gauge; other types have none.
func numberPoints(m pmetric.Metric) (pmetric.NumberDataPointSlice, timeline.Kind) {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		switch {
		case m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta:
			return m.Sum().DataPoints(), timeline.Delta
		case m.Sum().IsMonotonic():
			return m.Sum().DataPoints(), timeline.Cumulative
		default:
			return m.Sum().DataPoints(), timeline.Gauge
		}
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints(), timeline.Gauge
	default:
		return pmetric.NewNumberDataPointSlice(), timeline.Gauge
	}
}

func (e *Engine) point(by interest, rm pmetric.ResourceMetrics, sm pmetric.ScopeMetrics, m pmetric.Metric, dp pmetric.NumberDataPoint, kind timeline.Kind) bool {
	number := dp.DoubleValue()
	if dp.ValueType() == pmetric.NumberDataPointValueTypeInt {
		number = float64(dp.IntValue())
	}
	if math.IsNaN(number) || math.IsInf(number, 0) || dp.Flags().NoRecordedValue() {
		return false
	}
	r := record{
		resource: rm.Resource().Attributes(), attributes: dp.Attributes(),
		point:  ottldatapoint.NewTransformContextPtr(rm, sm, m, dp),
		source: clean(m.Name()), Span: timeline.Span{Time: int64(dp.Timestamp()), Last: int64(dp.Timestamp())}, count: 1,
		number: number, start: int64(dp.StartTimestamp()), kind: kind,
	}
	defer r.point.Close()
	e.identify(&r)
	return e.show(by, &r)
}
