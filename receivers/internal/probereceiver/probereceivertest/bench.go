package probereceivertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Extensions of the host of a bench: the identity extension, and what Keeps gives it.
var (
	IdentityID = component.MustNewID("identity")
	StorageID  = component.MustNewID("file_storage")
)

// Bench surrounds a receiver.
type Bench struct {
	*Sink
	Clock
	Host      *Host
	Resolver  *Resolver
	Settings  receiver.Settings
	telemetry *componenttest.Telemetry
	name      string

	mu     sync.Mutex // guards what follows
	opened int
	refuse error
}

// NewBench makes the bench of a receiver of that type.
func NewBench(t testing.TB, of component.Type) *Bench {
	b := &Bench{
		Sink: NewSink(), Host: NewHost(), Resolver: &Resolver{}, Settings: receivertest.NewNopSettings(of),
		telemetry: componenttest.NewTelemetry(), name: of.String(),
	}
	b.Host.Extensions[IdentityID] = b.Resolver
	b.Settings.TelemetrySettings = b.telemetry.NewTelemetrySettings()
	t.Cleanup(func() { require.NoError(t, b.telemetry.Shutdown(context.Background())) })
	return b
}

// Keeps gives the host a storage, and returns its id.
func (b *Bench) Keeps() *component.ID {
	b.Host.Extensions[StorageID] = NewStorage()
	return &StorageID
}

// Open is what the receiver's open function asks first: whether it opens.
func (b *Bench) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	return b.refuse
}

// Refuse lets the probe not open from now on; nil lets it.
func (b *Bench) Refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

// Opened counts the calls of Open.
func (b *Bench) Opened() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// StartAll starts receivers and stops them at the end of the test.
func (b *Bench) StartAll(t testing.TB, receivers ...component.Component) {
	for _, r := range receivers {
		require.NoError(t, r.Start(context.Background(), b.Host))
		t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	}
}

// Own is the value of one of the receiver's own metrics: "probe_up" is
// otelcol_receiver_oomkill_probe_up. It is the sum over the points that have these
// labels, 0 before the first.
func (b *Bench) Own(t testing.TB, name string, labels ...attribute.KeyValue) int64 {
	return b.Metric(t, b.name+"_"+name, labels...)
}

// Metric is the value of any receiver's metric, such as "accepted_log_records".
func (b *Bench) Metric(t testing.TB, name string, labels ...attribute.KeyValue) int64 {
	m, err := b.telemetry.GetMetric("otelcol_receiver_" + name)
	if err != nil {
		return 0
	}
	total := int64(0)
	for _, point := range points(t, m) {
		matches := true
		for _, label := range labels {
			value, _ := point.Attributes.Value(label.Key)
			matches = matches && value == label.Value
		}
		if matches {
			total += point.Value
		}
	}
	return total
}

func points(t testing.TB, m metricdata.Metrics) []metricdata.DataPoint[int64] {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		return data.DataPoints
	case metricdata.Gauge[int64]:
		return data.DataPoints
	}
	require.Failf(t, "no integer metric", "%s: %T", m.Name, m.Data)
	return nil
}

// Eventually waits until one of the receiver's own metrics has that value.
func (b *Bench) Eventually(t testing.TB, name string, want int64) {
	t.Helper()
	require.Eventually(t, func() bool { return b.Own(t, name) == want }, soon, time.Millisecond, name)
}

// Accepted waits until the collector has counted so many records as delivered: the
// consumer has a record before its receiver hears that it took it.
func (b *Bench) Accepted(t testing.TB, records int64) {
	t.Helper()
	require.Eventually(t, func() bool { return b.Metric(t, "accepted_log_records") == records }, soon, time.Millisecond)
}
