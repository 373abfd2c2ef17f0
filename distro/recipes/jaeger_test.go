//go:build jaeger

package recipes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// jaegerConfig is one process that keeps traces in memory.
const jaegerConfig = `
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines: {traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry: {metrics: {level: none}, logs: {level: warn}}
extensions:
  jaeger_query: {storage: {traces: memory}, http: {endpoint: "%s"}, grpc: {endpoint: "%s"}, enable_tracing: false}
  jaeger_storage: {backends: {memory: {memory: {max_traces: 1000}}}}
receivers: {otlp: {protocols: {http: {endpoint: "%s"}}}}
exporters: {jaeger_storage_exporter: {trace_storage: memory}}
`

// jaeger is a real one, which make jaeger builds, on this machine alone.
type jaeger struct{ otlp, query string }

func startJaeger(t *testing.T) jaeger {
	t.Helper()
	binary, err := filepath.Abs("../../.cache/bin/jaeger")
	require.NoError(t, err)
	require.FileExists(t, binary, "make jaeger builds it")
	j := jaeger{otlp: hosttest.FreeAddress(t), query: hosttest.FreeAddress(t)}
	dir := t.TempDir()
	config := filepath.Join(dir, "jaeger.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, jaegerConfig, j.query, hosttest.FreeAddress(t), j.otlp), 0o600))
	said, err := os.Create(filepath.Join(dir, "said"))
	require.NoError(t, err)
	cmd := exec.Command(binary, "--config="+config)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Env = append(os.Environ(), "OTEL_TRACES_SAMPLER=always_off") // its own
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("%s", text)
		}
		_ = said.Close()
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + j.query + "/api/v3/services")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, 100*time.Millisecond, "Jaeger does not answer")
	return j
}

// ask returns what a question of Jaeger's API finds, by the names of the spans.
func (j jaeger) ask(t require.TestingT, path string) map[string]ptrace.Span {
	response, err := http.Get("http://" + j.query + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	var answer struct{ Result json.RawMessage }
	require.NoError(t, json.Unmarshal(body, &answer))
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(answer.Result)
	require.NoError(t, err)
	spans := map[string]ptrace.Span{}
	for _, resource := range traces.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				spans[span.Name()] = span
			}
		}
	}
	return spans
}

// post sends what an agent would, until it is taken.
func post(t *testing.T, address, signal string, body []byte) {
	t.Helper()
	require.Eventually(t, func() bool {
		response, err := http.Post("http://"+address+"/v1/"+signal, "application/json", bytes.NewReader(body))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, 5*time.Millisecond)
}

// rankRule is a rule of a site about a rank.
const rankRule = `id: 1002
name: site_rank
summary: the site has an alarm about a rank
declares: {events: {site.alarm: this test, site.calm: this test}}
key: [host]
within: 1m
evidence: {alarm: {logs: site.alarm, shows: an alarm}}
full: alarm
culprit: [host, rank, job]
resolves: {calm: {logs: site.calm, shows: it is calm}}
severity: error
headline: "alarm about rank {rank} on {host}"
remedy: look
`

// TestTracesReachJaeger: what --to-all sends can be asked of Jaeger: the steps of a rank, the
// trace of an incident, whose root leads to the step that it fell into, and the trace of a run.
func TestTracesReachJaeger(t *testing.T) {
	j, rule, otlp := startJaeger(t), filepath.Join(t.TempDir(), "rule.yaml"), hosttest.FreeAddress(t)
	require.NoError(t, os.WriteFile(rule, []byte(rankRule), 0o600))
	a := start(t, "tracecore:default", "--to-all=http://"+j.otlp, "--set=processors.patterndetector.rules=["+rule+"]", "--set=receivers.otlp.senders=agents", "--set=receivers.otlp.protocols.http.endpoint="+otlp)
	began := time.Now()
	of := map[string]any{"host.name": host, "tracecore.trust": "proven", "service.name": "train"}

	steps := ptrace.NewTraces()
	resource := steps.ResourceSpans().AppendEmpty()
	require.NoError(t, resource.Resource().Attributes().FromRaw(of))
	step := resource.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	step.SetName("training.step")
	step.SetTraceID(pcommon.TraceID{0: 7, 15: 1})
	step.SetSpanID(pcommon.SpanID{0: 7, 7: 1})
	step.SetStartTimestamp(pcommon.NewTimestampFromTime(began.Add(-time.Minute)))
	step.SetEndTimestamp(pcommon.NewTimestampFromTime(began.Add(time.Minute)))
	require.NoError(t, step.Attributes().FromRaw(map[string]any{"gen_ai.training.rank": 3, "gen_ai.training.job_id": "llm"}))
	body, err := (&ptrace.JSONMarshaler{}).MarshalTraces(steps)
	require.NoError(t, err)
	post(t, otlp, "traces", body)

	tell := func(fill func(plog.LogRecord)) {
		logs := plog.NewLogs()
		resource := logs.ResourceLogs().AppendEmpty()
		require.NoError(t, resource.Resource().Attributes().FromRaw(of))
		record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		fill(record)
		body, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
		require.NoError(t, err)
		post(t, otlp, "logs", body)
	}
	about := func(event string) func(plog.LogRecord) {
		return func(record plog.LogRecord) {
			record.SetEventName(event)
			require.NoError(t, record.Attributes().FromRaw(map[string]any{"gen_ai.training.rank": 3, "gen_ai.training.job_id": "llm"}))
		}
	}
	tell(about("site.alarm"))
	v := a.await(t, "the alarm", func(v verdict.Verdict) bool { return v.Pattern == "site_rank" })
	require.Equal(t, step.TraceID().String(), v.Span.TraceID)
	tell(about("site.calm"))
	run := &history.Run{
		ID: "2026-11-20T14:02:11.000Z-0badcafe", Job: "llm", Trust: verdict.Proven, Began: began.Add(-time.Hour), Updated: began, Ended: &began, Outcome: history.RunFailed,
		Ranks: "0-7", RanksCount: 8, EndedRanks: "0-7", EndedCount: 8, Hosts: []string{host}, Summary: &history.Summary{Standing: 60, Causes: []history.Cause{}},
	}
	tell(func(record plog.LogRecord) { history.ToRecord(run, record) })

	search := func(service, name string) string {
		return "/api/v3/traces?" + url.Values{
			"query.service_name": {service}, "query.operation_name": {name}, "query.num_traces": {"20"},
			"query.start_time_min": {began.Add(-2 * time.Hour).UTC().Format(time.RFC3339Nano)}, "query.start_time_max": {began.Add(time.Hour).UTC().Format(time.RFC3339Nano)},
		}.Encode()
	}
	for _, one := range []struct {
		service, name string
		id            string
	}{
		{"train", "training.step", step.TraceID().String()},
		{"tracecore", "site_rank", verdict.IncidentSpan(v.IncidentID).TraceID},
		{"tracecore", "training.run", verdict.RunSpan(run.ID).TraceID},
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.Contains(c, j.ask(c, search(one.service, one.name)), one.name)
		}, patience, 100*time.Millisecond, "%s\n%s", one.name, a.Stderr)
		require.Contains(t, j.ask(t, "/api/v3/traces/"+one.id), one.name)
	}

	incident := j.ask(t, "/api/v3/traces/"+verdict.IncidentSpan(v.IncidentID).TraceID)
	root, evidence := incident["site_rank"], incident["alarm"]
	require.Len(t, incident, 3, "%v", incident)
	require.True(t, root.ParentSpanID().IsEmpty())
	require.Equal(t, root.SpanID(), evidence.ParentSpanID())
	require.Equal(t, ptrace.StatusCodeError, root.Status().Code())
	require.Equal(t, 1, root.Links().Len())
	require.Equal(t, step.TraceID(), root.Links().At(0).TraceID())
	require.Equal(t, step.SpanID(), root.Links().At(0).SpanID())
	id, _ := root.Attributes().Get("pattern.verdict_id")
	require.Equal(t, v.ID, id.Str())
}
