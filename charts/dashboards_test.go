package charts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
)

// prom is Prometheus' database and its engine. What is scraped gets the times that the test
// says.
type prom struct {
	*tsdb.DB
	engine *promql.Engine
	parser parser.Parser
}

func newProm(t *testing.T) *prom {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	db, err := tsdb.Open(t.TempDir(), logger, prometheus.NewRegistry(), tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	p := parser.NewParser(parser.Options{})
	return &prom{db, promql.NewEngine(promql.EngineOpts{Logger: logger, MaxSamples: 10_000_000, Timeout: patience, LookbackDelta: 5 * time.Minute, Parser: p}), p}
}

// take appends what an answer to a scrape says, with the labels of its target.
func (p *prom) take(t *testing.T, at time.Time, text string, target map[string]string) {
	t.Helper()
	parse, err := textparse.New([]byte(text), "text/plain; version=0.0.4", labels.NewSymbolTable(), textparse.ParserOptions{})
	require.NoError(t, err)
	app := p.Appender(t.Context())
	add := func(series labels.Labels, value float64) {
		b := labels.NewBuilder(series)
		for name, value := range target {
			b.Set(name, value)
		}
		_, err := app.Append(0, b.Labels(), at.UnixMilli(), value)
		require.NoError(t, err)
	}
	add(labels.FromStrings("__name__", "up"), 1)
	for {
		entry, err := parse.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if entry == textparse.EntrySeries {
			var series labels.Labels
			parse.Labels(&series)
			_, _, value := parse.Series()
			add(series, value)
		}
	}
	require.NoError(t, app.Commit())
}

// series counts those that a selector finds.
func (p *prom) series(t *testing.T, s *parser.VectorSelector, from, to time.Time) (count int) {
	t.Helper()
	q, err := p.Querier(from.UnixMilli(), to.UnixMilli())
	require.NoError(t, err)
	defer q.Close()
	found := q.Select(t.Context(), false, nil, s.LabelMatchers...)
	for found.Next() {
		count++
	}
	require.NoError(t, found.Err())
	return count
}

// query answers as of a time.
func (p *prom) query(t *testing.T, expression string, at time.Time) promql.Vector {
	t.Helper()
	q, err := p.engine.NewInstantQuery(t.Context(), p.DB, nil, expression, at)
	require.NoError(t, err, expression)
	defer q.Close()
	result := q.Exec(t.Context())
	require.NoError(t, result.Err, expression)
	vector, err := result.Vector()
	require.NoError(t, err, expression)
	return append(promql.Vector(nil), vector...)
}

// watching is laid over the default configuration: what the other tiers have, and all that
// can go wrong.
const watching = `
receivers:
  otlp: {senders: agents, protocols: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint: "127.0.0.1:%[1]d"}}}
  otlp/wrong: {senders: agents, protocols: {http: {endpoint: "127.0.0.1:%[2]d"}}}
  k8sevents: {kubeconfig: %[3]s}
processors:
  patterndetector: {rules: [%[4]s]}
  patterndetector/wrong: {rules: [%[4]s]}
exporters:
  terminal: {format: json}
  otlp_http/refuses: {endpoint: %[5]s, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}
  otlp_http/full: {endpoint: "http://127.0.0.1:1", sending_queue: {queue_size: 1, num_consumers: 1}}
  load_balancing:
    routing_key: attributes
    routing_attributes: [gen_ai.training.job_id]
    protocol: {otlp: {tls: {insecure: true}}}
    resolver: {static: {hostnames: ["127.0.0.1:1"]}}
    sending_queue: {enabled: true}
extensions:
  health_check: {endpoint: "127.0.0.1:0"}
  history: {http: {endpoint: "127.0.0.1:0"}}
service:
  pipelines:
    logs/wrong: {receivers: [otlp/wrong], processors: [patterndetector/wrong], exporters: [otlp_http/refuses]}
    logs/full: {receivers: [otlp/wrong], exporters: [otlp_http/full, load_balancing]}
    logs/cluster: {receivers: [k8sevents], exporters: [debug]}
  telemetry:
    logs: {level: fatal}
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: %[6]d}}}}]}
`

const watchRules = `id: 1001
name: site_stall
summary: a rank stands
declares: {events: {site.stall: this test}}
key: [host, job, rank]
culprit: [host, node, gpu, job, rank]
within: 1m
evidence: {stall: {logs: site.stall, shows: it stands}}
full: stall
stands: true
severity: error
headline: rank {rank} stands
remedy: look
---
id: 1002
name: site_note
summary: something is of interest
declares: {events: {site.note: this test}}
key: [host]
within: 1m
evidence: {note: {logs: site.note, shows: a note}}
full: note
severity: info
headline: a note on {host}
remedy: look
`

// watched is an agent of node gpu-17 with a job whose rank 3 stands.
type watched struct {
	metrics, otlp, wrong int
	said                 *bytes.Buffer
}

func startWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{metrics: hosttest.FreePort(t), otlp: hosttest.FreePort(t), wrong: hosttest.FreePort(t), said: &bytes.Buffer{}}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for i, rule := range strings.Split(watchRules, "---\n") {
		file(fmt.Sprintf("rules/%d.yaml", i), rule)
	}
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(refuses.Close)
	cluster := httptest.NewServer(http.HandlerFunc(answerAsAPIServer))
	t.Cleanup(cluster.Close)
	kubeconfig := file("kubeconfig", `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}], clusters: [{name: a, cluster: {server: "`+cluster.URL+`"}}]}`)
	config := file("config.yaml", fmt.Sprintf(watching, w.otlp, w.wrong, kubeconfig, filepath.Join(dir, "rules"), refuses.URL, w.metrics))
	agent := exec.Command(tool(t, "bin/tracecore"), "--config", "tracecore:default", "--config", config)
	agent.Env = append(os.Environ(), "K8S_NODE_NAME=gpu-17", "TRACECORE_STATE_DIR="+filepath.Join(dir, "state"))
	agent.Stderr = w.said
	require.NoError(t, agent.Start())
	t.Cleanup(func() {
		_ = agent.Process.Kill()
		_ = agent.Wait()
		if t.Failed() {
			t.Log(w.said)
		}
	})
	return w
}

// answerAsAPIServer has one node and one event of the kind that k8sevents tells of; watches
// fail.
func answerAsAPIServer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusInternalServerError)
	case strings.HasSuffix(r.URL.Path, "/events"):
		now := time.Now().UTC().Format(time.RFC3339)
		fmt.Fprintf(w, `{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"ml","uid":"1","resourceVersion":"6"},
			"involvedObject":{"kind":"Pod","namespace":"ml","name":"train-3"},"reason":"Evicted","message":"low on memory","type":"Warning","count":1,"firstTimestamp":%[1]q,"lastTimestamp":%[1]q}]}`, now)
	default:
		fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}
}

// post sends a record about rank 3 of the job llm, as an agent's own receivers would.
func post(t *testing.T, port int, event string, more map[string]any) int {
	t.Helper()
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	require.NoError(t, of.Resource().Attributes().FromRaw(map[string]any{"host.name": "gpu-17", "k8s.node.name": "gpu-17", "tracecore.trust": "proven"}))
	record := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	attributes := map[string]any{
		"gen_ai.training.job_id": "llm", "gen_ai.training.rank": 3, "gen_ai.training.world_size": 4, "gen_ai.training.rank_pid": 40,
		"gen_ai.training.rank_start_unix_nano": time.Now().Add(-time.Hour).Truncate(time.Hour).UnixNano(), "process.pid": 40, "gpu.id": "0000:65:00.0",
	}
	for name, value := range more {
		attributes[name] = value
	}
	require.NoError(t, record.Attributes().FromRaw(attributes))
	body, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	response, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/v1/logs", port), "application/json", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

// takes waits until a record is taken.
func (w *watched) takes(t *testing.T, event string, more map[string]any) {
	t.Helper()
	require.Eventually(t, func() bool { return post(t, w.otlp, event, more) == http.StatusOK }, patience, 10*time.Millisecond, event)
}

// has waits until a scrape has all these series.
func (w *watched) has(t *testing.T, series ...string) (text string) {
	t.Helper()
	missing := ""
	require.Eventually(t, func() bool {
		text = scrape(w.metrics)
		for _, one := range series {
			if missing = one; !regexp.MustCompile(`(?m)^` + one).MatchString(text) {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond, "%s", &missing)
	return text
}

// shelf is a history that has a run to tell of.
type shelf struct {
	component.StartFunc
	component.ShutdownFunc
	runs chan []history.Run
}

func (*shelf) Keep(context.Context, []verdict.Verdict) error          { return nil }
func (*shelf) Ranks(context.Context, []history.Sighting) error        { return nil }
func (*shelf) Told(context.Context, []history.Run, bool) error        { return nil }
func (*shelf) Mutes(context.Context) (map[string]history.Mute, error) { return nil, nil }
func (*shelf) Listen(string, func() []history.Feed) func()            { return func() {} }
func (s *shelf) Ended(context.Context) ([]history.Run, error) {
	select {
	case runs := <-s.runs:
		return runs, nil
	default:
		return nil, nil
	}
}

type hosting map[component.ID]component.Component

func (h hosting) GetExtensions() map[component.ID]component.Component { return h }

// gatewayOf runs the processor alone, with the metrics that the distribution serves by the same names, and tells it of
// runs that ended: a history waits half a minute before it does. It returns two scrapes.
func gatewayOf(t *testing.T) (first, second string) {
	t.Helper()
	f, host, port := otelconftelemetry.NewFactory(), "127.0.0.1", hosttest.FreePort(t)
	own := f.CreateDefaultConfig().(*otelconftelemetry.Config)
	own.Metrics.Readers[0].Pull.Exporter.Prometheus.Host, own.Metrics.Readers[0].Pull.Exporter.Prometheus.Port = &host, &port
	resource := pcommon.NewResource()
	meters, err := f.CreateMeterProvider(t.Context(), telemetry.MeterSettings{Settings: telemetry.Settings{Resource: &resource}, Logger: zap.NewNop()}, own)
	require.NoError(t, err)
	t.Cleanup(func() { _ = meters.Shutdown(context.Background()) })

	factory := patterndetectorprocessor.NewFactory()
	set := processortest.NewNopSettings(factory.Type())
	set.MeterProvider = meters
	config, id := factory.CreateDefaultConfig().(*patterndetectorprocessor.Config), component.MustNewID("history")
	config.History = &id
	p, err := factory.CreateLogs(t.Context(), set, config, consumertest.NewNop())
	require.NoError(t, err)
	s := &shelf{runs: make(chan []history.Run, 1)}
	require.NoError(t, p.Start(t.Context(), hosting{id: s}))
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })

	end := time.Now()
	ended := func(count string) string {
		run := history.Run{
			ID: "r" + count, Job: "old", Trust: verdict.Proven, Began: end.Add(-time.Hour), Updated: end, Ended: &end, Outcome: history.RunFailed, Ranks: "0-3", RanksCount: 4, EndedRanks: "0-3", EndedCount: 4,
		}
		run.Summary = history.Summarize(&run, []history.Stood{{From: end.Add(-time.Minute), To: end, Pattern: "fuse_stall"}}, 1, nil)
		s.runs <- []history.Run{run}
		var text string
		require.Eventually(t, func() bool {
			text = scrape(port)
			return regexp.MustCompile(`(?m)^otelcol_processor_patterndetector_runs_lost\{.*\} ` + count + `$`).MatchString(text)
		}, patience, 20*time.Millisecond)
		return text
	}
	return ended("240"), ended("480")
}

var fromLabels = regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`)

// TestEveryPanelHasData asks a Prometheus that scraped a running agent what each panel asks.
// Each selector of each query must find series, or the query would say 0 for ever.
func TestEveryPanelHasData(t *testing.T) {
	w := startWatched(t)
	rank := map[string]any{"gen_ai.training.local_rank": 3}
	w.takes(t, "process.start", rank)
	w.takes(t, "site.stall", nil)
	w.takes(t, "site.note", nil)
	wrong := func() {
		for i := range 20 {
			// It may listen later than the other receiver does.
			require.Eventually(t, func() bool { return post(t, w.wrong, "site.note", map[string]any{"gen_ai.training.rank": i}) != 0 }, patience, 10*time.Millisecond)
		}
	}
	wrong()
	series := []string{
		`otelcol_processor_patterndetector_incident_began\{.*pattern="site_stall"`, `otelcol_processor_patterndetector_incident_began\{.*pattern="site_note"`,
		`otelcol_processor_patterndetector_ranks\{.*training_job="llm"`, "otelcol_exporter_enqueue_failed_log_records", "otelcol_exporter_send_failed_log_records",
		"otelcol_processor_patterndetector_outbox_dropped", "otelcol_receiver_k8sevents_events", "otelcol_receiver_k8sevents_watch_failures", "otelcol_loadbalancer_num_backends",
		"otelcol_receiver_pyexception_probe_up", "otelcol_receiver_stacks_probe_up", "otelcol_extension_identity_probe_up",
	}
	first := w.has(t, series...)
	w.takes(t, "site.stall", map[string]any{"gen_ai.training.rank": 2})
	wrong()
	second := w.has(t, `otelcol_processor_patterndetector_incident_began\{.*training_rank="2"`)
	gateway := [2]string{}
	gateway[0], gateway[1] = gatewayOf(t)

	p, now := newProm(t), time.Now()
	for i, at := range []time.Time{now.Add(-4 * time.Minute), now.Add(-time.Second)} {
		p.take(t, at, []string{first, second}[i], map[string]string{"tracecore": "agent", "node": "gpu-17", "pod": "tracecore-agent-x", "namespace": "gpu", "job": "gpu/monitoring", "instance": "10.0.0.1:8888"})
		p.take(t, at, gateway[i], map[string]string{"tracecore": "gateway", "node": "cpu-1", "pod": "tracecore-gateway-0", "namespace": "gpu", "job": "gpu/monitoring", "instance": "10.0.0.2:8888"})
	}
	for file, panels := range boards(t) {
		for _, panel := range panels {
			for _, target := range panel.Targets {
				expression, err := p.parser.ParseExpr(target.Expr)
				require.NoError(t, err, target.Expr)
				parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
					if s, ok := node.(*parser.VectorSelector); ok {
						require.NotZero(t, p.series(t, s, now.Add(-time.Hour), now), "%s: %s: no series of %s", file, panel.Title, s)
					}
					return nil
				})
				answer := p.query(t, target.Expr, now)
				require.NotEmpty(t, answer, "%s: %s: %s", file, panel.Title, target.Expr)
				for _, sample := range answer {
					require.False(t, math.IsNaN(sample.F), "%s: %s: %s", file, panel.Title, target.Expr)
				}
			}
		}
	}
	requireChoices(t, p, now)
	require.EqualValues(t, 2, p.query(t, panelCalled(t, "fleet.json", "Incidents that wake somebody"), now)[0].F, "site_note is mild")
	require.InDelta(t, 270, 3600*p.query(t, panelCalled(t, "fleet.json", "Rank hours lost, by cause"), now)[0].F, 100, "240 s of ranks, extrapolated")
}

// requireChoices: what a user can choose is what the panels were asked about.
func requireChoices(t *testing.T, p *prom, now time.Time) {
	t.Helper()
	rendered := objects(t, render(t, "--set", "monitoring.dashboard.enabled=true"))["ConfigMap/dashboard"]
	chosen := map[string]string{"job": "llm", "node": "gpu-17"}
	for file, text := range at(t, rendered, "data").(map[string]any) {
		var board struct {
			Templating struct {
				List []struct{ Name, Type, Definition string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(text.(string)), &board), file)
		for _, variable := range board.Templating.List {
			if variable.Type != "query" {
				continue
			}
			asked := fromLabels.FindStringSubmatch(variable.Definition)
			require.NotNil(t, asked, variable.Definition)
			var values []string
			for _, sample := range p.query(t, asked[1], now) {
				values = append(values, sample.Metric.Get(asked[2]))
			}
			require.Contains(t, values, chosen[variable.Name], file)
		}
	}
}

// panelCalled is the query of a panel.
func panelCalled(t *testing.T, file, title string) string {
	t.Helper()
	for _, panel := range boards(t)[file] {
		if panel.Title == title {
			return panel.Targets[0].Expr
		}
	}
	require.FailNow(t, "no such panel", title)
	return ""
}
