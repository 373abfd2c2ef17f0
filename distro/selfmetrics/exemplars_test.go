package selfmetrics

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// Prometheus reads the trace of what was counted, and the names of metrics stay as they are:
// OpenMetrics would have them end with _total.
func TestAScrapeByProtobufCarriesExemplars(t *testing.T) {
	port := hosttest.FreePort(t)
	made, err := provider(t, NewFactory(), port, nil)
	require.NoError(t, err)
	counter, err := made.Meter("test").Float64Counter("otelcol_test_standing")
	require.NoError(t, err)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}, TraceFlags: trace.FlagsSampled})
	counter.Add(trace.ContextWithSpanContext(context.Background(), span), 2.5)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address(port)+"/metrics", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	parse, err := textparse.New(body, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	require.NoError(t, err)
	for {
		entry, err := parse.Next()
		require.NoError(t, err, "no such series")
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		var found exemplar.Exemplar
		if parse.Labels(&series); series.Get("__name__") == "otelcol_test_standing" {
			require.True(t, parse.Exemplar(&found))
			traceID, spanID := span.TraceID(), span.SpanID()
			require.Equal(t, hex.EncodeToString(traceID[:]), found.Labels.Get("trace_id"))
			require.Equal(t, hex.EncodeToString(spanID[:]), found.Labels.Get("span_id"))
			return
		}
	}
}
