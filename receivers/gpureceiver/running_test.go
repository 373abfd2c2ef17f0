package gpureceiver

import (
	"context"
	"strings"
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

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
)

const deadline = hosttest.Patience

// running is a receiver on a library, with what it emits.
type running struct {
	testing.TB
	monitor *monitor
	logs    *consumertest.LogsSink
	metrics *consumertest.MetricsSink
}

// run runs a receiver until the test ends.
func run(t testing.TB, factory receiver.Factory, config component.Config) *running {
	t.Helper()
	r := &running{TB: t, logs: new(consumertest.LogsSink), metrics: new(consumertest.MetricsSink)}
	settings := receivertest.NewNopSettings(factory.Type())
	logs, err := factory.CreateLogs(t.Context(), settings, config, r.logs)
	require.NoError(t, err)
	metrics, err := factory.CreateMetrics(t.Context(), settings, config, r.metrics)
	require.NoError(t, err)
	r.monitor = logs.(*instance).monitor
	require.NoError(t, logs.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, metrics.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		require.NoError(t, logs.Shutdown(context.Background()))
		require.NoError(t, metrics.Shutdown(context.Background()))
	})
	return r
}

// until waits for a state.
func (r *running) until(state string) {
	r.Helper()
	require.Eventually(r, func() bool { return r.monitor.condition.Load().name == state }, deadline, time.Millisecond,
		"wanted %s", state)
}

// hangs waits until that call hangs. On a busy machine another one may have taken too long before.
func (r *running) hangs(call string) {
	r.Helper()
	require.Eventually(r, func() bool {
		is := r.monitor.condition.Load()
		return is.name == hung && strings.Contains(is.detail, call)
	}, deadline, time.Millisecond, "wanted %s of %s", hung, call)
}

// record waits for an event.
func (r *running) record(event string) plog.LogRecord {
	r.Helper()
	var found plog.LogRecord
	require.Eventually(r, func() bool {
		for _, logs := range r.logs.AllLogs() {
			for _, one := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
				if one.EventName() == event {
					found = one
					return true
				}
			}
		}
		return false
	}, deadline, time.Millisecond, "wanted %s", event)
	return found
}

// point waits for a data point of a metric with these attributes and a value
// that will do.
func (r *running) point(name string, attributes map[string]any, will func(float64) bool) {
	r.Helper()
	var seen []float64
	require.Eventually(r, func() bool {
		for _, metrics := range r.metrics.AllMetrics() {
			for _, value := range valuesOf(metrics, name, attributes) {
				if seen = append(seen, value); will(value) {
					return true
				}
			}
		}
		r.metrics.Reset()
		return false
	}, deadline, time.Millisecond, "%s %v, seen %v", name, attributes, seen)
}

// is wants one value.
func is(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

// valuesOf are those of the data points of a metric with these attributes.
func valuesOf(metrics pmetric.Metrics, name string, attributes map[string]any) []float64 {
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

// The GPUs of the stand-ins.
const (
	first  = "0000:1a:00.0"
	second = "0000:2a:00.0"
)

// runOn runs the receiver as it is shipped on stand-ins, but in a hurry.
func runOn(t *testing.T, host *gputest.Host, change ...func(*Config)) *running {
	config := createDefaultConfig().(*Config)
	config.Helper, config.NVML.Library = host.Helper, host.NVML.File
	config.DCGM.LibraryFolder, config.DCGM.Endpoint = host.DCGM.Folder(), gputest.Endpoint
	config.CollectionInterval, config.RetryInterval, config.CallTimeout = minInterval, minInterval, 20*time.Second
	for _, c := range change {
		c(config)
	}
	return run(t, NewFactory(), config)
}
