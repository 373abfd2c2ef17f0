package patterndetectorprocessor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	beganMetric = "otelcol_processor_patterndetector_incident_began"
	ranksMetric = "otelcol_processor_patterndetector_ranks"
)

// pointsOf are the series that a gauge has now; none where it has no data.
func pointsOf(t *testing.T, telemetry *componenttest.Telemetry, name string) []metricdata.DataPoint[int64] {
	t.Helper()
	metric, err := telemetry.GetMetric(name)
	if err != nil {
		return nil
	}
	return metric.Data.(metricdata.Gauge[int64]).DataPoints
}

func TestEachOpenRootCauseIsASeries(t *testing.T) {
	r := newRig(t).start(t)
	require.Empty(t, pointsOf(t, r.telemetry, beganMetric))
	r.fault(t, "gpu-1")
	v := r.next.verdicts[len(r.next.verdicts)-1]
	points := pointsOf(t, r.telemetry, beganMetric)
	require.Len(t, points, 1)
	require.Equal(t, v.Onset.Unix(), points[0].Value)
	require.Equal(t, attribute.NewSet(
		attribute.String("culprit_gpu", ""), attribute.String("culprit_node", "node-17"), attribute.String("incident", v.IncidentID), attribute.Bool("pages", v.Pages(verdict.Warning)),
		attribute.String("pattern", v.Pattern), attribute.String("severity", string(v.Severity)), attribute.Bool("stands", false),
		attribute.String("training_job", ""), attribute.String("training_rank", ""),
	), points[0].Attributes)
}

func TestWhatIsMutedIsNoSeries(t *testing.T) {
	r := newRig(t, muteFor("gpu-1", 10*time.Minute)).start(t)
	r.fault(t, "gpu-1")
	require.Empty(t, pointsOf(t, r.telemetry, beganMetric))
	r.fault(t, "gpu-2")
	require.Len(t, pointsOf(t, r.telemetry, beganMetric), 1)
}

func TestSeriesOfIncidentsAreBounded(t *testing.T) {
	r := newRig(t).start(t)
	for i := range mostIncidents + 5 {
		require.NoError(t, r.logs.ConsumeLogs(t.Context(), records(r.clock.now(), "test.first", fmt.Sprint(i))))
		require.NoError(t, r.logs.ConsumeLogs(t.Context(), records(r.clock.now(), "test.second", fmt.Sprint(i))))
	}
	require.Len(t, pointsOf(t, r.telemetry, beganMetric), mostIncidents)
}

func TestRanksOfAJobAreCountedByHowTheyFare(t *testing.T) {
	s := &shelf{}
	r := newRig(t, withStorage(t.TempDir()), withHistory(s)).start(t)
	r.ranks(t)
	require.Eventually(t, func() bool {
		for _, point := range pointsOf(t, r.telemetry, ranksMetric) {
			job, _ := point.Attributes.Value("training_job")
			state, _ := point.Attributes.Value("rank_state")
			if job.AsString() == "llm" && state.AsString() == "ended" {
				return point.Value == 1
			}
		}
		return false
	}, hosttest.Patience, time.Millisecond)
}

// The exemplar of a verdict is the trace of its incident, which the connector
// incidenttraces makes.
func TestVerdictsAreCountedWithTheTraceOfTheirIncident(t *testing.T) {
	r := newRig(t).start(t)
	r.fault(t, "gpu-1")
	metric, err := r.telemetry.GetMetric("otelcol_processor_patterndetector_verdicts")
	require.NoError(t, err)
	traceID, spanID := verdict.IncidentSpan(r.next.verdicts[0].IncidentID).IDs()
	found := 0
	for _, point := range metric.Data.(metricdata.Sum[int64]).DataPoints {
		for _, exemplar := range point.Exemplars {
			found++
			require.Equal(t, traceID[:], exemplar.TraceID)
			require.Equal(t, spanID[:], exemplar.SpanID)
		}
	}
	require.NotZero(t, found)
}
