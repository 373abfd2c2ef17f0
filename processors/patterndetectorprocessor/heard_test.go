package patterndetectorprocessor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// TestMetricsSayWhenEvidenceWasLastFed, and have no series for what nothing fed.
func TestMetricsSayWhenEvidenceWasLastFed(t *testing.T) {
	r := newRig(t).start(t)
	const name = "otelcol_processor_patterndetector_evidence_last_seen"
	_, err := r.telemetry.GetMetric(name)
	require.Error(t, err, "nothing came")
	r.send(t, "test.first", "gpu-1")
	metric, err := r.telemetry.GetMetric(name)
	require.NoError(t, err)
	points := metric.Data.(metricdata.Gauge[int64]).DataPoints
	require.NotEmpty(t, points)
	for _, point := range points {
		require.Equal(t, r.clock.now().Unix(), point.Value)
		pattern, _ := point.Attributes.Value("pattern")
		evidence, _ := point.Attributes.Value("evidence")
		require.NotEmpty(t, pattern.AsString())
		require.NotContains(t, evidence.AsString(), "second")
	}
}
