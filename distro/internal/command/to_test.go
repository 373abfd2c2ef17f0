package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const poll = 5 * time.Millisecond

// receivingConfig is a tracecore that is the backend of another: it believes its senders,
// prints their verdicts and writes down each delivery.
const receivingConfig = `
extensions: {health_check: }
receivers: {otlp: {senders: agents, protocols: {%s: {endpoint: "%s"}}}}
exporters: {terminal: {format: json}, file: {path: "%s"}, file/metrics: {path: "%[3]s.metrics"}, file/spans: {path: "%[3]s.spans"}}
service:
  extensions: [health_check]
  telemetry: {metrics: {level: none}}
  pipelines:
    logs: {receivers: [otlp], exporters: [terminal, file]}
    metrics: {receivers: [otlp], exporters: [file/metrics]}
    traces: {receivers: [otlp], exporters: [file/spans]}
`

// receiver is such a backend.
type receiver struct {
	*commandtest.Running
	deliveries string // a file
}

func startReceiver(t *testing.T, protocol, address string, more ...string) receiver {
	t.Helper()
	dir := t.TempDir()
	config, deliveries := filepath.Join(dir, "backend.yaml"), filepath.Join(dir, "deliveries")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, receivingConfig, protocol, address, deliveries), 0o600))
	args := append([]string{"--config=" + config, "--set=extensions.health_check.endpoint=" + hosttest.FreeAddress(t)}, more...)
	return receiver{commandtest.Start(t, commandtest.New(t, args...)), deliveries}
}

// delivered are the records that came, by event, in their order.
func (r receiver) delivered(t *testing.T) (events []string, verdicts []verdict.Verdict) {
	t.Helper()
	text, err := os.ReadFile(r.deliveries)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of it is on its way
		}
		ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(line))
		require.NoError(t, err)
		for _, rl := range ld.ResourceLogs().All() {
			for _, sl := range rl.ScopeLogs().All() {
				for _, lr := range sl.LogRecords().All() {
					events = append(events, lr.EventName())
					if v, err := verdict.FromRecord(lr); err == nil {
						verdicts = append(verdicts, v)
					}
				}
			}
		}
	}
	return events, verdicts
}

// told are the ids of the verdicts that came. Nothing else may come, and a revision that
// comes twice says the same.
func (r receiver) told(t *testing.T) map[string]bool {
	t.Helper()
	events, verdicts := r.delivered(t)
	for _, event := range events {
		require.Equal(t, verdict.EventName, event)
	}
	ids, first := map[string]bool{}, map[string]string{}
	for _, v := range verdicts {
		ids[v.ID] = true
		key, text := fmt.Sprintf("%s %d", v.ID, v.Revision), string(verdict.ToJSON(v))
		if first[key] == "" {
			first[key] = text
		}
		require.Equal(t, first[key], text)
	}
	return ids
}

// sender is a tracecore that runs its default with a rule of the test and what a backend
// needs, over and over on one state.
type sender struct {
	state, otlp, rule string
	flags             []string
	env               []string
}

func newSender(t *testing.T, flags ...string) sender {
	t.Helper()
	s := sender{state: t.TempDir(), otlp: hosttest.FreeAddress(t), rule: filepath.Join(t.TempDir(), "rule.yaml"), flags: flags}
	require.NoError(t, os.WriteFile(s.rule, []byte(strings.Replace(siteRule, "VERSION", "first", 1)), 0o600))
	return s
}

func (s sender) start(t *testing.T) *commandtest.Running {
	t.Helper()
	args := append(commandtest.Ports(t), "--config=tracecore:default", "--set=exporters.terminal.format=json",
		`--config=yaml:{receivers: {otlp: {senders: agents}}, service: {extensions: [health_check, file_storage, history], pipelines: {logs: {receivers: [otlp]}, metrics: {receivers: [otlp]}, traces: {receivers: [otlp]}}}}`,
		"--set=processors.patterndetector.rules=["+s.rule+"]", "--set=receivers.otlp.protocols.http.endpoint="+s.otlp)
	cmd := commandtest.New(t, append(args, s.flags...)...)
	cmd.Env = append(append(cmd.Env, "TRACECORE_STATE_DIR="+s.state), s.env...)
	return commandtest.Start(t, cmd)
}

// The backend is away, verdicts are made, the agent is killed with them and starts again.
// Once the backend is there it has each of them: at least once, and what comes twice has
// the same id and revision.
func TestVerdictsReachABackendThatWasAway(t *testing.T) {
	for protocol, scheme := range map[string]string{"http": "http", "grpc": "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			address := hosttest.FreeAddress(t)
			s := newSender(t, "--to="+scheme+"://"+address)
			agent, made := s.start(t), map[string]bool{}
			for i := range 5 {
				host := fmt.Sprintf("node-%d", i)
				sendFrom(t, s.otlp, host, "site.alarm")
				made[verdictLike(t, agent, `"status":"open".*of the alarm on `+host)] = true
			}
			agent.Kill()
			agent = s.start(t)
			sendFrom(t, s.otlp, "node-5", "site.alarm")
			made[verdictLike(t, agent, `"status":"open".*of the alarm on node-5`)] = true

			backend := startReceiver(t, protocol, address)
			for host := range 6 {
				verdictLike(t, backend.Running, fmt.Sprintf(`"status":"open".*of the alarm on node-%d`, host))
			}
			// What is said from now on comes after all that waited: nothing else is on its way.
			sendFrom(t, s.otlp, "node-6", "site.alarm")
			made[verdictLike(t, backend.Running, `"status":"open".*of the alarm on node-6`)] = true
			require.Eventually(t, func() bool { return maps.Equal(made, backend.told(t)) }, hosttest.Patience, poll, "%v", made)
			require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
		})
	}
}

// An exporter of alerts whose channel is gone, and whose queue is full, keeps no verdict from
// another exporter, which gets each once.
func TestAChannelThatIsGoneSilencesNoOther(t *testing.T) {
	var mu sync.Mutex
	told := map[string]int{}
	channel := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var notice struct{ Verdict verdict.Verdict }
		if json.NewDecoder(r.Body).Decode(&notice) == nil {
			mu.Lock()
			told[notice.Verdict.Culprit["host"]]++
			mu.Unlock()
		}
	}))
	t.Cleanup(channel.Close)
	s := newSender(t, fmt.Sprintf(`--config=yaml:{
connectors: {forward/gone: },
exporters: {alert/gone: {format: webhook, endpoint: "http://%s", sending_queue: {queue_size: 1}}, alert/here: {format: webhook, endpoint: "%s"}},
service: {pipelines: {logs: {exporters: [terminal, forward/gone, alert/here]}, logs/gone: {receivers: [forward/gone], exporters: [alert/gone]}}}}`,
		hosttest.FreeAddress(t), channel.URL))
	certain := strings.Replace(siteRule, "full: alarm\n", "full: alarm\ntrust: {full: claimed}\n", 1)
	require.NoError(t, os.WriteFile(s.rule, []byte(certain), 0o600))
	agent, want := s.start(t), map[string]int{}
	for i := range 10 {
		host := fmt.Sprintf("node-%d", i)
		want[host] = 1
		sendFrom(t, s.otlp, host, "site.alarm")
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return told[host] > 0
		}, hosttest.Patience, poll, "%s\n%s", agent.Stderr, agent.Stdout)
	}
	require.Contains(t, agent.Stderr.String(), "the queue of an exporter is full")
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
	require.Equal(t, want, told)
}

// A backend whose certificate an authority of the site has signed gets verdicts from an agent
// that was told of it. One that knows no such authority, or the wrong one, says what to do, sends
// nothing, and loses nothing until that is mended.
func TestABackendWithACertificateOfTheSite(t *testing.T) {
	for protocol, scheme := range map[string]string{"http": "https", "grpc": "grpcs"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			right, wrong := newAuthority(t), newAuthority(t)
			right.make(t, "backend")
			address := hosttest.FreeAddress(t)
			backend := startReceiver(t, protocol, address, fmt.Sprintf("--config=yaml:{receivers: {otlp: {protocols: {%s: {tls: {cert_file: %[2]s/backend.crt, key_file: %[2]s/backend.key}}}}}}", protocol, right.dir))
			s := newSender(t, "--to="+scheme+"://"+address)
			made := map[string]bool{}
			for host, of := range map[string]struct{ authority, says string }{
				"node-a": {"", "name its authority by OTEL_EXPORTER_OTLP_CERTIFICATE"},
				"node-b": {wrong.dir + "/ca.crt", "the authority in " + wrong.dir + "/ca.crt (OTEL_EXPORTER_OTLP_CERTIFICATE) has not signed it"},
			} {
				s.env = []string{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + of.authority}
				agent := s.start(t)
				require.Eventually(t, func() bool {
					return strings.Contains(agent.Stderr.String(), scheme+"://"+address+" does not answer yet: ") && strings.Contains(agent.Stderr.String(), of.says)
				}, hosttest.Patience, poll, "%s", agent.Stderr)
				sendFrom(t, s.otlp, host, "site.alarm")
				made[verdictLike(t, agent, `"status":"open".*of the alarm on `+host)] = true
				require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
			}
			require.Empty(t, backend.told(t), "to nobody who cannot prove who it is")

			s.env = []string{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + right.dir + "/ca.crt"}
			agent := s.start(t)
			sendFrom(t, s.otlp, "node-c", "site.alarm")
			made[verdictLike(t, agent, `"status":"open".*of the alarm on node-c`)] = true
			require.Eventually(t, func() bool { return maps.Equal(made, backend.told(t)) }, hosttest.Patience, poll, "%v", made)
			require.NotContains(t, agent.Stderr.String(), "does not answer yet")
		})
	}
}

// Records, metrics and spans of --to-all wait on disk, too, while the backend is away and the
// agent is killed and stopped. Each comes at least once.
func TestAllWaitsForABackendThatWasAway(t *testing.T) {
	address := hosttest.FreeAddress(t)
	s := newSender(t, "--to-all=http://"+address)
	var want []string
	tell := func(n int) {
		sendFrom(t, s.otlp, fmt.Sprintf("node-%d.", n), "site.note")
		for signal, body := range map[string]string{
			"metrics": `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"site.load.%d.","gauge":{"dataPoints":[{"asInt":"7"}]}}]}]}]}`,
			"traces":  `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","name":"step.%d."}]}]}]}`,
		} {
			response, err := http.Post("http://"+s.otlp+"/v1/"+signal, "application/json", strings.NewReader(fmt.Sprintf(body, n)))
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusOK, response.StatusCode)
		}
		want = append(want, fmt.Sprintf("node-%d.", n), fmt.Sprintf("site.load.%d.", n), fmt.Sprintf("step.%d.", n))
	}
	agent := s.start(t)
	for n := range 20 {
		tell(n)
	}
	agent.Kill()
	agent = s.start(t)
	for n := range 20 {
		tell(20 + n)
	}
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
	agent = s.start(t)
	tell(40)

	backend := startReceiver(t, "http", address)
	missing := func() (names []string) {
		var text []byte
		for _, file := range []string{"", ".metrics", ".spans"} {
			one, _ := os.ReadFile(backend.deliveries + file)
			text = append(text, one...)
		}
		for _, name := range want {
			if !strings.Contains(string(text), `"`+name+`"`) {
				names = append(names, name)
			}
		}
		return names
	}
	if !assert.Eventually(t, func() bool { return len(missing()) == 0 }, hosttest.Patience, 10*poll) {
		t.Fatalf("these did not come: %v\n%s", missing(), agent.Stderr)
	}
}

// --to sends how a run went, and nothing else of it.
func TestSummariesReachABackend(t *testing.T) {
	address := hosttest.FreeAddress(t)
	backend := startReceiver(t, "http", address)
	s := newSender(t, "--to=http://"+address)
	agent := s.start(t)
	for _, body := range []string{
		`"eventName":"site.alarm"`,
		`"eventName":"job.summary","attributes":[{"key":"gen_ai.training.job_id","value":{"stringValue":"llm"}}]`,
	} {
		response, err := http.Post("http://"+s.otlp+"/v1/logs", "application/json", strings.NewReader(`{"resourceLogs":[{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"node-a"}}]},"scopeLogs":[{"logRecords":[{`+body+`}]}]}]}`))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	require.Eventually(t, func() bool {
		events, _ := backend.delivered(t)
		return slices.Contains(events, "job.summary") && slices.Contains(events, verdict.EventName)
	}, hosttest.Patience, poll, "%s", agent.Stderr)
	events, _ := backend.delivered(t)
	require.NotContains(t, events, "site.alarm")
}

// --to-all sends what the verdict is made of, too, and metrics and spans.
func TestAllReachesABackend(t *testing.T) {
	address := hosttest.FreeAddress(t)
	backend := startReceiver(t, "http", address)
	s := newSender(t, "--to-all=http://"+address)
	agent := s.start(t)
	sendFrom(t, s.otlp, "node-a", "site.alarm")
	id := verdictLike(t, backend.Running, `"status":"open".*of the alarm on node-a`)
	response, err := http.Post("http://"+s.otlp+"/v1/metrics", "application/json", strings.NewReader(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"site.load","gauge":{"dataPoints":[{"asInt":"7"}]}}]}]}]}`))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	response, err = http.Post("http://"+s.otlp+"/v1/traces", "application/json", strings.NewReader(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708","name":"training.step"}]}]}]}`))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Eventually(t, func() bool {
		events, _ := backend.delivered(t)
		spans, _ := os.ReadFile(backend.deliveries + ".spans")
		metrics, _ := os.ReadFile(backend.deliveries + ".metrics")
		return strings.Contains(strings.Join(events, " "), "site.alarm") && strings.Contains(string(metrics), "site.load") && strings.Contains(string(spans), "training.step")
	}, hosttest.Patience, poll, "%s", agent.Stderr)
	_, verdicts := backend.delivered(t)
	require.Len(t, verdicts, 1, "not also among the records")
	require.Equal(t, id, verdicts[0].ID)
	sendFrom(t, s.otlp, "node-a", "site.calm")
	require.Eventually(t, func() bool {
		spans, _ := os.ReadFile(backend.deliveries + ".spans")
		return strings.Contains(string(spans), `"name":"site_alarm"`)
	}, hosttest.Patience, poll, "the incident is a trace once it is over: %s", agent.Stderr)
}

// A backend that is down for good costs the agent nothing: it judges, and ends when asked to.
func TestAnAgentEndsWhileItsBackendIsAway(t *testing.T) {
	s := newSender(t, "--to-all=https://127.0.0.1:1", "--to=grpcs://127.0.0.1:2")
	agent := s.start(t)
	sendFrom(t, s.otlp, "node-a", "site.alarm")
	verdictLike(t, agent, `of the alarm on node-a`)
	for _, backend := range []string{"https://127.0.0.1:1", "grpcs://127.0.0.1:2"} {
		require.Eventually(t, func() bool { return strings.Contains(agent.Stderr.String(), backend+" does not answer yet: ") }, hosttest.Patience, poll)
	}
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
	folders, err := filepath.Glob(filepath.Join(s.state, "exporter_otlp_*"))
	require.NoError(t, err)
	require.Len(t, folders, 5, "verdicts of each, records, metrics, and spans: %v", folders)
}

// The token of a backend stands in no argument, and the configuration does not show it.
func TestATokenIsNotShown(t *testing.T) {
	cmd := commandtest.New(t, "print-config", "--format=json", "--to=https://backend:4318")
	cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter2")
	got := commandtest.Finish(t, cmd)
	require.Equal(t, exitOK, got.Code, got.Stderr)
	require.NotContains(t, got.Stdout, "hunter2")
	var config struct {
		Exporters map[string]struct {
			Endpoint string
			Headers  any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &config))
	require.Equal(t, "https://backend:4318", config.Exporters["otlp_http/backend:4318"].Endpoint)
	require.NotEmpty(t, config.Exporters["otlp_http/backend:4318"].Headers)
}
