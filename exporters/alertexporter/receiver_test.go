package alertexporter

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/exporters/alertexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// patience bounds every wait; only a test that fails comes to its end.
const patience = hosttest.Patience

var onset = time.Date(2026, 11, 23, 7, 2, 29, 0, time.UTC)

// lost is a root cause, certain and critical.
func lost(id string) verdict.Verdict {
	return verdict.Verdict{
		ID: id, IncidentID: "inc-" + id, PatternID: 18, Pattern: "gpu_lost", Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full,
		Trust: verdict.Proven, Severity: verdict.Critical, Revision: 1, Onset: onset, Updated: onset.Add(time.Second),
		Headline: "GPU 0000:65:00.0 on node-17 has fallen off the bus", Remediation: "Drain node-17.",
		Culprit:  map[string]string{"node": "node-17", "host": "h17", "gpu": "0000:65:00.0", "rank": "3", "job": "llm", "pid": "42"},
		Evidence: []verdict.Evidence{{Name: "xid", Time: onset, Count: 1, Source: "gpu.xid", Shows: "the driver wrote Xid 79", Trust: verdict.Proven}},
	}
}

func but(v verdict.Verdict, change func(*verdict.Verdict)) verdict.Verdict {
	culprit := map[string]string{}
	for key, value := range v.Culprit {
		culprit[key] = value
	}
	v.Culprit = culprit
	v.Revision++
	change(&v)
	return v
}

func over(v verdict.Verdict) verdict.Verdict {
	return but(v, func(v *verdict.Verdict) {
		at := onset.Add(time.Minute)
		v.Status, v.Resolved, v.Updated = verdict.Resolved, &at, at
	})
}

func records(verdicts ...verdict.Verdict) plog.Logs {
	ld := plog.NewLogs()
	list := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	list.AppendEmpty().Body().SetStr("an ordinary line")
	for _, v := range verdicts {
		verdict.ToRecord(v, list.AppendEmpty())
	}
	return ld
}

// request is what a receiver got.
type request struct{ path, contentType, body string }

// receiver is who is told.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
	answer   func(w http.ResponseWriter, r *http.Request)
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, request{req.URL.RequestURI(), req.Header.Get("Content-Type"), string(body)})
		if r.answer != nil {
			r.answer(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.requests...)
}

func (r *receiver) answers(answer func(http.ResponseWriter, *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// bench is an exporter without its queue, whose clock the test has.
type bench struct {
	*alerts
	telemetry *componenttest.Telemetry
	clock     *time.Time
}

// begin makes an exporter that tells a receiver. Its rounds are the test's to make.
func begin(t *testing.T, url string, client storage.Client, change func(*Config)) bench {
	t.Helper()
	config := createDefaultConfig().(*Config)
	config.Format, config.Endpoint, config.Resend = formatWebhook, url, time.Hour
	if change != nil {
		change(config)
	}
	require.NoError(t, config.Validate())
	telemetry := componenttest.NewTelemetry()
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = telemetry.NewTelemetrySettings()
	clock := onset.Add(2 * time.Second)
	a, err := newAlerts(config, set, func() time.Time { return clock })
	require.NoError(t, err)
	require.NoError(t, a.prepare(t.Context(), componenttest.NewNopHost(), client))
	require.NoError(t, a.turns.Load(t.Context(), nil))
	t.Cleanup(func() {
		a.book.client = nil
		require.NoError(t, a.shutdown(context.Background()))
		require.NoError(t, telemetry.Shutdown(context.Background()))
	})
	return bench{a, telemetry, &clock}
}

func (b bench) send(t *testing.T, verdicts ...verdict.Verdict) {
	t.Helper()
	require.NoError(t, b.consume(t.Context(), records(verdicts...)))
}

// counts are the points of a counter by an attribute.
func (b bench) counts(t *testing.T, name, by string) map[string]int64 {
	t.Helper()
	m, err := b.telemetry.GetMetric(name)
	require.NoError(t, err)
	all := map[string]int64{}
	for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
		value, _ := point.Attributes.Value(key(by))
		all[value.AsString()] = point.Value
	}
	return all
}

func (b bench) outcomes(t *testing.T) map[string]int64 {
	t.Helper()
	return b.counts(t, "otelcol_exporter_alert_verdicts", "outcome")
}

// memory is a storage that a test looks into.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	fails  error
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) { return m.values[key], m.fails }

func (m *memory) Set(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == nil {
		m.values[key] = value
	}
	return m.fails
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return m.fails
}

func (*memory) Batch(context.Context, ...*storage.Operation) error { return nil }
func (*memory) Close(context.Context) error                        { return nil }

func (m *memory) Walk(ctx context.Context, fn storage.WalkFunc) error {
	for key, value := range m.values {
		ops, err := fn(key, value)
		if err != nil {
			return err
		}
		for _, op := range ops {
			delete(m.values, op.Key)
		}
	}
	return nil
}
