package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns"
)

const someMetrics = `# TYPE otelcol_receiver_kernelevents_probe_up gauge
otelcol_receiver_kernelevents_probe_up{otel_scope_name="x",rung="tracepoint"} 1
# TYPE otelcol_extension_identity_probe_up gauge
otelcol_extension_identity_probe_up{rung=""} 0
# TYPE otelcol_receiver_kernelevents_probe_dropped_total counter
otelcol_receiver_kernelevents_probe_dropped_total{otel_scope_name="x"} 17
# TYPE otelcol_processor_patterndetector_evicted_total counter
otelcol_processor_patterndetector_evicted_total{state="recent"} 3
otelcol_processor_patterndetector_evicted_total{state="\\x1b[2J"} 1
otelcol_processor_patterndetector_evicted_total{state="runs"} 0
# TYPE otelcol_processor_patterndetector_records_total counter
otelcol_processor_patterndetector_records_total{result="matched"} 5
# TYPE otelcol_exporter_queue_size gauge
otelcol_exporter_queue_size{data_type="logs",exporter="otlp_http/backend:4318"} 1234
otelcol_exporter_queue_size{data_type="traces",exporter="otlp_http/\\x1b[2J"} 0
# TYPE otelcol_exporter_queue_capacity gauge
otelcol_exporter_queue_capacity{data_type="logs",exporter="otlp_http/backend:4318"} 6.7108864e+07
# TYPE otelcol_exporter_send_failed_log_records_total counter
otelcol_exporter_send_failed_log_records_total{exporter="otlp_http/backend:4318"} 3
otelcol_exporter_send_failed_log_records_total{exporter="another"} 9
`

func toldStatus() history.Status {
	last := toldAt.Add(-time.Minute)
	feed := func(pattern, evidence string, last *time.Time, reads ...string) history.Feed {
		return history.Feed{Processor: "patterndetector", Pattern: pattern, Evidence: evidence, Reads: reads, Last: last}
	}
	return history.Status{
		Head: history.Head{Schema: history.Schema, Host: "node-17", At: toldAt}, Version: "1.2.3", Started: toldAt.Add(-time.Hour),
		Incidents: 3, Bytes: 4096, MaxBytes: 1 << 20,
		Ailing: []history.Ailing{{Component: "gpu", Kind: "Receiver", Status: "StatusRecoverableError", Error: hostileText, Since: last}},
		Feeds: []history.Feed{
			feed("gpu_lost", "xid", &last, "gpu.xid"), feed("gpu_lost", "lost", nil, "gpu.lost"), feed("gpu_lost", "again", nil, "gpu.xid"),
			feed("straggler", "steps", nil, "a.metric.with_a_long_name", "another.metric.with_a_long_name", "dcgm.metric"),
		},
	}
}

func TestStatusIsShownAndHasAnExitCode(t *testing.T) {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, someMetrics) }))
	defer metrics.Close()
	unranked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, someMetrics+"# TYPE otelcol_receiver_ncclsock_unranked gauge\notelcol_receiver_ncclsock_unranked 8\n")
	}))
	defer unranked.Close()
	unseen := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, someMetrics+"# TYPE otelcol_receiver_ncclcall_processes_unseen gauge\notelcol_receiver_ncclcall_processes_unseen 8\n")
	}))
	defer unseen.Close()
	noMetrics := "127.0.0.1:1"
	for _, c := range []struct {
		name    string
		change  func(*history.Status)
		metrics string
		code    int
	}{
		{"well", func(*history.Status) {}, metrics.URL, statusWell},
		{"open", func(s *history.Status) { s.Open = 1 }, metrics.URL, statusWell},
		{"cause", func(s *history.Status) { s.Open, s.RootCauses = 2, 1 }, metrics.URL, statusCause},
		{"cause-and-problem", func(s *history.Status) { s.Open, s.RootCauses, s.Problem = 2, 1, "disk full" }, metrics.URL, statusCause},
		{"problem", func(s *history.Status) { s.Problem = hostileText }, metrics.URL, statusBlind},
		{"nothing-came", func(s *history.Status) { s.Feeds = s.Feeds[1:] }, metrics.URL, statusWell},
		{"nobody-asks", func(s *history.Status) { s.Feeds = nil }, metrics.URL, statusBlind},
		{"agents", func(s *history.Status) {
			lost := int64(12)
			s.Agents = heartbeat.Counts{Watching: 1022, Silent: 1, Gone: 1}
			s.WorstAgents = []heartbeat.Agent{
				{Host: "node-7", State: heartbeat.Watching, Since: toldAt.Add(-time.Hour), Dropped: &lost, Claims: &heartbeat.Claim{}},
				{Host: hostileText, State: heartbeat.Silent, Since: toldAt.Add(-10 * time.Minute), Dropped: &lost},
				{Host: "node-9", State: heartbeat.Watching, Since: toldAt.Add(-time.Hour), Late: -3600, Receivers: []heartbeat.Component{{Name: "gpu", State: heartbeat.Fails}, {Name: "ncclsock/own", State: heartbeat.Fails}}},
				{Host: "node-8", State: heartbeat.Gone, Since: toldAt.Add(-time.Minute), Dropped: new(int64)},
			}
		}, metrics.URL, statusWell},
		{"agents-silent", func(s *history.Status) {
			s.Agents = heartbeat.Counts{Silent: 1}
			s.WorstAgents = []heartbeat.Agent{{Host: "node-1", State: heartbeat.Silent, Since: toldAt.Add(-time.Hour)}}
		}, metrics.URL, statusBlind},
		{"own-agent-alone", func(s *history.Status) {
			s.Agents, s.Feeds = heartbeat.Counts{Watching: 1}, s.Feeds[1:2]
			s.WorstAgents = []heartbeat.Agent{{Host: s.Host, State: heartbeat.Watching}}
		}, metrics.URL, statusWell},
		{"patterns", func(s *history.Status) {
			s.Feeds, s.Works = append(s.Feeds[:0:0], history.Feed{Processor: "patterndetector", Pattern: "site_alarm", Evidence: "alarm", Reads: []string{"site.alarm"}}), []string{"k8sevents"}
			rules, err := patterns.Library()
			require.NoError(t, err)
			for i := range rules {
				if !slices.Contains([]string{"gpu_lost", "host_oom_kill", "rank_exit", "pod_evicted", "silent_data_corruption", "straggler"}, rules[i].Name) {
					continue
				}
				for _, e := range rules[i].All() {
					f := history.Feed{Processor: "patterndetector", Pattern: rules[i].Name, Evidence: e.Name, Reads: slices.Concat(rules[i].Events(e), e.Metrics)}
					if f.Pattern == "straggler" { // another one, of the site
						f.Reads = append(f.Reads, "site.more")
					}
					s.Feeds = append(s.Feeds, f)
				}
			}
		}, metrics.URL, statusWell},
		{"unranked", func(*history.Status) {}, unranked.URL, statusWell},
		{"unseen", func(*history.Status) {}, unseen.URL, statusWell},
		{"no-metrics", func(*history.Status) {}, noMetrics, statusWell},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := toldStatus()
			c.change(&told)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/v1/status":
					_ = json.NewEncoder(w).Encode(told)
				case "/v1/incidents":
					list := toldIncidents()
					list.Incidents = list.Incidents[:told.Open]
					slices.Reverse(list.Incidents)
					_ = json.NewEncoder(w).Encode(list)
				default:
					http.NotFound(w, r)
				}
			}))
			defer server.Close()
			got := commandtest.Finish(t, commandtest.New(t, "status", "--address", server.URL, "--metrics", c.metrics))
			require.Equal(t, c.code, got.Code, got.Stderr)
			require.Empty(t, got.Stderr)
			requireGolden(t, "status-"+c.name+".txt", got.Stdout)
			if c.name == "well" {
				got = commandtest.Finish(t, commandtest.New(t, "status", "--address", server.URL, "--metrics", c.metrics, "-o", "yaml"))
				requireGolden(t, "status.yaml", got.Stdout)
			}
		})
	}
	for name, args := range map[string][]string{
		"not reachable": {"status", "--address", hosttest.FreeAddress(t)},
		"wrong usage":   {"status", "-o", "xml"},
		"no such flag":  {"status", "--all"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, statusBlind, commandtest.Finish(t, commandtest.New(t, args...)).Code)
		})
	}
}

// What --to holds back is counted in bytes; what another exporter counts is not known.
func TestQueuesHaveUnits(t *testing.T) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(`
# TYPE otelcol_exporter_queue_size gauge
otelcol_exporter_queue_size{data_type="logs",exporter="otlp_http/backend:4318"} 50012
otelcol_exporter_queue_size{data_type="traces",exporter="kafka"} 7
# TYPE otelcol_exporter_queue_capacity gauge
otelcol_exporter_queue_capacity{data_type="logs",exporter="otlp_http/backend:4318"} 6.7108864e+07
otelcol_exporter_queue_capacity{data_type="traces",exporter="kafka"} 1000
`))
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, writeStatus(&b, &statusReport{Queues: queuesOf(families)}))
	text := strings.Join(strings.Fields(b.String()), " ")
	require.Contains(t, text, "otlp_http/backend:4318 logs 48.8 KiB 64 MiB 0 records")
	require.Contains(t, text, "kafka traces 7 1000 0 spans")
}

// TestStatusOfARunningAgent: what its patterns say, and 2 once the agent is gone.
func TestStatusOfARunningAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "h")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	n := newNode(t, filepath.Join(dir, "state"))
	n.start(t)
	status := func() commandtest.Outcome {
		return commandtest.Finish(t, commandtest.New(t, "status", "--address", n.history, "--metrics", "127.0.0.1:1"))
	}
	become := func(code int, says string) {
		t.Helper()
		var got commandtest.Outcome
		require.Eventually(t, func() bool {
			got = status()
			return got.Code == code && strings.Contains(got.Stdout, says)
		}, hosttest.Patience, 10*time.Millisecond, "%d %s%s", got.Code, got.Stdout, got.Stderr)
	}
	become(statusWell, "nothing is wrong that tracecore can see")
	n.alarm(t, "node-1")
	become(statusWell, "1 incident open, none with a certain cause") // a sender of OTLP proves nothing
	sendFrom(t, n.otlp, "node-1", "site.calm")
	become(statusWell, "nothing is wrong that tracecore can see")
	n.Kill()
	require.Equal(t, statusBlind, status().Code)
}
