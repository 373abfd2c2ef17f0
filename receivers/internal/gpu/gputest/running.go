package gputest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
)

// Deadline is for what must happen; a machine under load is slow.
const Deadline = 60 * time.Second

// Running is a receiver on a library, with what it emits.
type Running struct {
	testing.TB
	Monitor *gpu.Monitor
	Logs    *consumertest.LogsSink
	Metrics *consumertest.MetricsSink
}

// Run runs a receiver until the test ends.
func Run(t testing.TB, factory receiver.Factory, config component.Config) *Running {
	t.Helper()
	r := &Running{TB: t, Logs: new(consumertest.LogsSink), Metrics: new(consumertest.MetricsSink)}
	settings := receivertest.NewNopSettings(factory.Type())
	logs, err := factory.CreateLogs(t.Context(), settings, config, r.Logs)
	require.NoError(t, err)
	metrics, err := factory.CreateMetrics(t.Context(), settings, config, r.Metrics)
	require.NoError(t, err)
	r.Monitor = logs.(*gpu.Instance).Monitor
	require.NoError(t, logs.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, metrics.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		require.NoError(t, logs.Shutdown(context.Background()))
		require.NoError(t, metrics.Shutdown(context.Background()))
	})
	return r
}

// Until waits for a state.
func (r *Running) Until(state string) {
	r.Helper()
	require.Eventually(r, func() bool { return r.Monitor.Condition().Name == state }, Deadline, time.Millisecond,
		"wanted %s", state)
}

// Record waits for an event.
func (r *Running) Record(event string) plog.LogRecord {
	r.Helper()
	var found plog.LogRecord
	require.Eventually(r, func() bool {
		for _, logs := range r.Logs.AllLogs() {
			for _, one := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
				if one.EventName() == event {
					found = one
					return true
				}
			}
		}
		return false
	}, Deadline, time.Millisecond, "wanted %s", event)
	return found
}

// Point waits for a data point of a metric with these attributes and a value
// that will do.
func (r *Running) Point(name string, attributes map[string]any, will func(float64) bool) {
	r.Helper()
	var seen []float64
	require.Eventually(r, func() bool {
		for _, metrics := range r.Metrics.AllMetrics() {
			for _, value := range Values(metrics, name, attributes) {
				if seen = append(seen, value); will(value) {
					return true
				}
			}
		}
		r.Metrics.Reset()
		return false
	}, Deadline, time.Millisecond, "%s %v, seen %v", name, attributes, seen)
}

// Is wants one value.
func Is(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

// Values are those of the data points of a metric with these attributes.
func Values(metrics pmetric.Metrics, name string, attributes map[string]any) []float64 {
	var found []float64
	for _, m := range metrics.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		points := pmetric.NewNumberDataPointSlice()
		switch {
		case m.Name() != name:
			continue
		case m.Type() == pmetric.MetricTypeSum:
			points = m.Sum().DataPoints()
		case m.Type() == pmetric.MetricTypeGauge:
			points = m.Gauge().DataPoints()
		}
		for _, point := range points.All() {
			has := point.Attributes().AsRaw()
			matches := true
			for key, value := range attributes {
				matches = matches && has[key] == value
			}
			if !matches {
				continue
			}
			if point.ValueType() == pmetric.NumberDataPointValueTypeInt {
				found = append(found, float64(point.IntValue()))
			} else {
				found = append(found, point.DoubleValue())
			}
		}
	}
	return found
}
