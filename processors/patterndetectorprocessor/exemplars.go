package patterndetectorprocessor

import (
	"cmp"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/steps"
)

// Metrics of the receivers ncclsock and fusefault whose exemplars name a rank.
const (
	stallMetric = "nccl.socket.stall.time"
	stuckMetric = "fuse.in_flight.oldest_age"
)

const (
	attributeRank = "gen_ai.training.rank"
	attributeJob  = "gen_ai.training.job_id"
)

// exemplarsInSteps returns metrics whose exemplars of stalls have the ids of the step in which
// their rank was. It is what came where there is no such step: what came may be read by others,
// and is not changed.
func (d *detector) exemplarsInSteps(md pmetric.Metrics) pmetric.Metrics {
	if d.steps == nil || d.steps.Stats().Ranks == 0 {
		return md
	}
	copied := false
	for r, resource := range md.ResourceMetrics().All() {
		of := resource.Resource().Attributes()
		if !hasStalls(resource) || rule.TrustOf(of, pcommon.NewMap()) < verdict.Claimed {
			continue
		}
		if !copied {
			own := pmetric.NewMetrics()
			md.CopyTo(own)
			md, copied = own, true
		}
		for _, scope := range md.ResourceMetrics().At(r).ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				if points, are := stallPoints(metric); are {
					d.pointsInSteps(rule.Text(of, "host.name"), points)
				}
			}
		}
	}
	return md
}

// hasStalls reports whether some point has an exemplar to place.
func hasStalls(resource pmetric.ResourceMetrics) bool {
	for _, scope := range resource.ScopeMetrics().All() {
		for _, metric := range scope.Metrics().All() {
			points, are := stallPoints(metric)
			if !are {
				continue
			}
			for _, point := range points.All() {
				if point.Exemplars().Len() > 0 {
					return true
				}
			}
		}
	}
	return false
}

// stallPoints are those of a metric of stalls, false of any other.
func stallPoints(metric pmetric.Metric) (points pmetric.NumberDataPointSlice, are bool) {
	switch {
	case metric.Name() == stallMetric && metric.Type() == pmetric.MetricTypeSum:
		return metric.Sum().DataPoints(), true
	case metric.Name() == stuckMetric && metric.Type() == pmetric.MetricTypeGauge:
		return metric.Gauge().DataPoints(), true
	}
	return points, false
}

func (d *detector) pointsInSteps(host string, points pmetric.NumberDataPointSlice) {
	for _, point := range points.All() {
		for _, e := range point.Exemplars().All() {
			number, ok := rule.Integer(e.FilteredAttributes(), attributeRank)
			if !ok || number < 0 || number > verdict.MaxRank || host == "" {
				continue
			}
			// Its trace is that of TRACEPARENT in the rank's environment, as its node read it.
			job := cmp.Or(rule.Text(e.FilteredAttributes(), attributeJob), rule.Text(point.Attributes(), attributeJob))
			who := steps.Rank{Host: host, Job: job, Number: int(number)}
			if span, known := d.steps.Within(who, e.Timestamp().AsTime().UnixNano(), e.TraceID()); known {
				traceID, spanID := span.IDs()
				e.SetTraceID(traceID)
				e.SetSpanID(spanID)
				if span.Claimed {
					e.FilteredAttributes().PutBool(verdict.AttrTraceClaimed, true)
				}
			}
		}
	}
}
