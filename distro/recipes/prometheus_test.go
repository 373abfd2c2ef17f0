package recipes

import (
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// startPrometheus runs what Prometheus takes OTLP with, on a database of its own.
func startPrometheus(t *testing.T) (url string, series func(name string) []map[string]string) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	db, err := tsdb.Open(t.TempDir(), logger, prometheus.NewRegistry(), tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	mux := http.NewServeMux()
	mux.Handle("/api/v1/otlp/v1/metrics", remote.NewOTLPWriteHandler(logger, prometheus.NewRegistry(), db, func() config.Config { return config.DefaultConfig }, remote.OTLPOptions{}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, func(name string) (all []map[string]string) {
		q, err := db.Querier(math.MinInt64, math.MaxInt64)
		require.NoError(t, err)
		defer q.Close()
		found := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", name))
		for found.Next() {
			all = append(all, found.At().Labels().Map())
		}
		require.NoError(t, found.Err())
		return all
	}
}

// Metrics of a host that names no service are told apart by the host; those of another
// service keep its name.
func TestMetricsReachPrometheus(t *testing.T) {
	url, series := startPrometheus(t)
	t.Setenv("PROMETHEUS", url)
	otlp := hosttest.FreeAddress(t)
	start(t, "prometheus.yaml", "--set=receivers.otlp.protocols.http.endpoint="+otlp)
	now := time.Now()
	for _, resource := range []string{``, `{"key":"service.name","value":{"stringValue":"trainer"}},{"key":"service.instance.id","value":{"stringValue":"rank-3"}}`} {
		body := `{"resourceMetrics":[{"resource":{"attributes":[` + resource + `]},"scopeMetrics":[{"metrics":[{"name":"site.load","unit":"1","gauge":{"dataPoints":[{"timeUnixNano":"` +
			strconv.FormatInt(now.UnixNano(), 10) + `","asInt":"7","attributes":[{"key":"gpu.id","value":{"stringValue":"a"}}]}]}}]}]}]}`
		require.Eventually(t, func() bool {
			response, err := http.Post("http://"+otlp+"/v1/metrics", "application/json", strings.NewReader(body))
			if err != nil {
				return false
			}
			defer response.Body.Close()
			return response.StatusCode == http.StatusOK
		}, patience, 5*time.Millisecond)
	}
	require.Eventually(t, func() bool { return len(series("site_load_ratio")) == 2 }, patience, 5*time.Millisecond)
	want := map[string]map[string]string{
		host:     {"__name__": "site_load_ratio", "job": "tracecore", "instance": host, "gpu_id": "a"},
		"rank-3": {"__name__": "site_load_ratio", "job": "trainer", "instance": "rank-3", "gpu_id": "a"},
	}
	for _, one := range series("site_load_ratio") {
		require.Equal(t, want[one["instance"]], withoutScope(one))
	}
}

func withoutScope(all map[string]string) map[string]string {
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, "otel_scope_") })
	return all
}
