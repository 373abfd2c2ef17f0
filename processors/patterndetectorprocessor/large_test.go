package patterndetectorprocessor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// TestNobodyWaitsWhileALargeRecordIsCut: with the engine taken, a large record is cut all the
// same. It does not have the engine while it is, and no small one waits for that.
func TestNobodyWaitsWhileALargeRecordIsCut(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, send := range map[string]func(r *rig) error{
		"record": func(r *rig) error {
			return r.logs.ConsumeLogs(context.Background(), records(began, "test.first", large))
		},
		"point": func(r *rig) error { return r.metrics.ConsumeMetrics(context.Background(), levels(began, large)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).start(t)
			r.detector.mu.Lock()
			sent := make(chan error, 1)
			go func() { sent <- send(r) }()
			cut := func() bool { return r.detector.cut.Load() == 1 }
			for deadline := time.Now().Add(hosttest.Patience); !cut() && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			early := cut()
			r.detector.mu.Unlock()
			require.NoError(t, <-sent)
			require.True(t, early, "it is cut by who has the engine")
			require.Equal(t, 1, irregular(t, r, "cut"), "and counted once")
		})
	}
}

// irregular is how many irregular records are counted for a problem.
func irregular(t *testing.T, r *rig, problem string) int {
	t.Helper()
	metric, err := r.telemetry.GetMetric("otelcol_processor_patterndetector_records_irregular")
	require.NoError(t, err)
	for _, point := range metric.Data.(metricdata.Sum[int64]).DataPoints {
		if v, ok := point.Attributes.Value("problem"); ok && v.AsString() == problem {
			return int(point.Value)
		}
	}
	return 0
}
