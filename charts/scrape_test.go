package charts_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// patience bounds every wait; only a test that fails comes to its end.
const patience = hosttest.Patience

// scraped is the configuration of a tier without what needs a kernel or a
// cluster, with what the test can reach.
const scraped = `
extensions:
  file_storage: {directory: %s}
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}}}
  kafka: {brokers: ["127.0.0.1:1"]}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 400}
  rankjoin: {storage: file_storage}
  patterndetector: {storage: file_storage}
exporters:
  terminal: {color: never}
  otlp_grpc: {endpoint: "127.0.0.1:1", tls: {insecure: true}, sending_queue: {storage: file_storage}}
  load_balancing:
    routing_key: attributes
    routing_attributes: [gen_ai.training.job_id]
    protocol: {otlp: {tls: {insecure: true}}}
    resolver: {static: {hostnames: ["127.0.0.1:1"]}}
service:
  extensions: [file_storage]
  pipelines:
    logs: {receivers: [otlp, kafka], processors: [memory_limiter, rankjoin, patterndetector], exporters: [terminal, otlp_grpc, load_balancing]}
  telemetry:
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: %d}}}}]}
`

// metricsOfACollector starts one, waits until all its parts have told theirs, and
// returns what a scrape gets.
func metricsOfACollector(t *testing.T) string {
	t.Helper()
	port := hosttest.FreePort(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, scraped, t.TempDir(), port), 0o600))
	collector := exec.Command(tool(t, "bin/tracecore"), "--config", path)
	var said strings.Builder
	collector.Stderr = &said
	require.NoError(t, collector.Start())
	defer func() {
		_ = collector.Process.Kill()
		_ = collector.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	}()
	var text string
	require.Eventually(t, func() bool {
		text = scrape(port)
		return strings.Contains(text, "\notelcol_processor_patterndetector_outbox_size") && strings.Contains(text, "\notelcol_loadbalancer_num_backends") &&
			strings.Contains(text, "\notelcol_exporter_queue_capacity") && strings.Contains(text, "\notelcol_kafka_broker_connects{")
	}, patience, 20*time.Millisecond)
	return text
}

// scrape returns the collector's metrics; nothing before it listens.
func scrape(port int) string {
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

var sample = regexp.MustCompile(`(?m)^(otelcol_[a-z0-9_]+?)(?:_bucket|_sum|_count)?[{ ]`)

// TestMetricsHaveTheNamesOfARunningCollector scrapes one, so that the names made
// from metadata.yaml are those that Prometheus sees: prefix, suffix and all.
func TestMetricsHaveTheNamesOfARunningCollector(t *testing.T) {
	known := existing(t)
	found := sample.FindAllStringSubmatch(metricsOfACollector(t), -1)
	require.NotEmpty(t, found)
	for _, metric := range found {
		require.Contains(t, known, metric[1])
	}
}
