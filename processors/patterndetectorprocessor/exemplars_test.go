package patterndetectorprocessor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
)

// stalled is the time of stalls as the receiver ncclsock tells it, with the rank whose stall
// lasts longest and the trace in its environment.
func stalled(host, trust string, rank int64, own byte, at time.Duration) pmetric.Metrics {
	md := pmetric.NewMetrics()
	of := md.ResourceMetrics().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", host)
	if trust != "" {
		of.Resource().Attributes().PutStr("tracecore.trust", trust)
	}
	metric := of.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName(stallMetric)
	point := metric.SetEmptySum().DataPoints().AppendEmpty()
	point.Attributes().PutStr("gen_ai.training.job_id", "j")
	e := point.Exemplars().AppendEmpty()
	e.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(at)))
	e.SetDoubleValue(2)
	e.FilteredAttributes().PutInt("gen_ai.training.rank", rank)
	if own > 0 {
		e.SetTraceID(pcommon.TraceID{15: own})
		e.SetSpanID(pcommon.SpanID{0: 9})
	}
	return md
}

// exemplar is that of the metrics that came out.
func exemplar(md pmetric.Metrics) pmetric.Exemplar {
	metric := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	if metric.Type() == pmetric.MetricTypeGauge {
		return metric.Gauge().DataPoints().At(0).Exemplars().At(0)
	}
	return metric.Sum().DataPoints().At(0).Exemplars().At(0)
}

// TestExemplarsOfStallsAreInTheStepOfTheirRank: metrics pass, and an exemplar has the step that
// its rank was in, as its node read it or as a stranger tells it. Where there is none, it is as
// it came.
func TestExemplarsOfStallsAreInTheStepOfTheirRank(t *testing.T) {
	r, traces, _ := newStepRig(t)
	sink := &consumertest.MetricsSink{}
	metrics, err := r.factory.CreateMetrics(t.Context(), processortest.NewNopSettings(metadata.Type), r.detector.config, sink)
	require.NoError(t, err)
	require.NoError(t, metrics.Start(t.Context(), r.host))
	t.Cleanup(func() { require.NoError(t, metrics.Shutdown(context.Background())) })
	require.NoError(t, traces.ConsumeTraces(t.Context(), stepSpan("node-17", 3, 7, 0, time.Minute)))

	for name, tt := range map[string]struct {
		md      pmetric.Metrics
		span    byte // 0: as it came
		claimed bool
	}{
		"a stranger tells the step":       {stalled("node-17", "", 3, 0, time.Second), 7, true},
		"its environment names the trace": {stalled("node-17", "proven", 3, 7, time.Second), 7, false},
		"of a mount":                      {onAMount(stalled("node-17", "proven", 3, 7, time.Second)), 7, false},
		"its environment names another":   {stalled("node-17", "proven", 3, 8, time.Second), 0, false},
		"the step is over":                {stalled("node-17", "proven", 3, 7, time.Hour), 0, false},
		"another rank":                    {stalled("node-17", "proven", 4, 7, time.Second), 0, false},
		"another machine":                 {stalled("node-18", "proven", 3, 7, time.Second), 0, false},
		"metrics of a stranger":           {stalled("node-17", "foreign", 3, 7, time.Second), 0, false},
		"a rank that nobody can have":     {stalled("node-17", "proven", -1, 7, time.Second), 0, false},
		"a machine that has no name":      {stalled("", "proven", 3, 7, time.Second), 0, false},
		"no metric of stalls":             {named(stalled("node-17", "proven", 3, 7, time.Second), "other"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			came := pmetric.NewMetrics()
			tt.md.CopyTo(came)
			sink.Reset()
			require.NoError(t, metrics.ConsumeMetrics(t.Context(), tt.md))
			require.Equal(t, came, tt.md, "others may have it, too")
			left := exemplar(sink.AllMetrics()[0])
			if tt.span == 0 {
				require.Equal(t, came, sink.AllMetrics()[0])
				return
			}
			require.Equal(t, pcommon.TraceID{15: tt.span}, left.TraceID())
			require.Equal(t, pcommon.SpanID{7: tt.span}, left.SpanID())
			claimed, _ := left.FilteredAttributes().Get(verdict.AttrTraceClaimed)
			require.Equal(t, tt.claimed, claimed.Bool())
		})
	}
}

// onAMount is the age of what is stuck as the receiver fusefault tells it.
func onAMount(md pmetric.Metrics) pmetric.Metrics {
	metric := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	point := pmetric.NewNumberDataPoint()
	metric.Sum().DataPoints().At(0).MoveTo(point)
	point.Attributes().Clear()
	point.Exemplars().At(0).FilteredAttributes().PutStr("gen_ai.training.job_id", "j")
	metric.SetName(stuckMetric)
	point.MoveTo(metric.SetEmptyGauge().DataPoints().AppendEmpty())
	return md
}

func named(md pmetric.Metrics, name string) pmetric.Metrics {
	md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).SetName(name)
	return md
}

// TestWithoutStepsMetricsPassAsTheyCame: nothing is looked at, and nothing is copied.
func TestWithoutStepsMetricsPassAsTheyCame(t *testing.T) {
	r := newRig(t).start(t)
	md := stalled("node-17", "proven", 3, 7, 0)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = r.detector.exemplarsInSteps(md) }))
	require.Equal(t, md, r.detector.exemplarsInSteps(md))
}
