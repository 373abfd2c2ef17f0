package recipes

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/alertmanagertest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// alarmRule is a rule of a site, which one record fulfils and another resolves.
const alarmRule = `id: 1001
name: site_alarm
summary: the site has an alarm
declares: {events: {site.alarm: this test, site.calm: this test}}
key: [host]
within: 1m
evidence: {alarm: {logs: site.alarm, shows: an alarm}}
full: alarm
resolves: {calm: {logs: site.calm, shows: it is calm}}
severity: error
headline: "\"alarm\" on {host}"
remedy: look
`

// hook is a webhook that keeps what it is sent.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.bodies = append(h.bodies, string(body))
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) got() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.bodies...)
}

// All three recipes beside each other. An alert begins, the agent ends, and the next one ends
// what the first began: everybody is told once of each.
func TestRootCausesAreToldOverARestart(t *testing.T) {
	am, slack, webhook := alertmanagertest.Start(t), newHook(t), newHook(t)
	t.Setenv("ALERTMANAGER", am.URL)
	t.Setenv("SLACK_WEBHOOK_URL", slack.URL+"/services/hunter2")
	t.Setenv("WEBHOOK_URL", webhook.URL)
	rule, state, otlp := filepath.Join(t.TempDir(), "rule.yaml"), t.TempDir(), hosttest.FreeAddress(t)
	require.NoError(t, os.WriteFile(rule, []byte(alarmRule), 0o600))
	run := func() agent {
		return start(t, "alertmanager.yaml", "--config=slack.yaml", "--config=webhook.yaml", "--set=exporters.alert/alertmanager.resend=1m",
			"--set=processors.patterndetector.rules=["+rule+"]", "--set=receivers.otlp.senders=agents", "--set=receivers.otlp.protocols.http.endpoint="+otlp,
			"--set=extensions.file_storage.directory="+state, "--set=extensions.history.directory="+filepath.Join(state, "history"))
	}
	first := run()
	send(t, otlp, "site.alarm")
	v := first.await(t, "the alarm", about("site_alarm", "host", host))
	told := func(a agent, times int) {
		require.Eventually(t, func() bool {
			return len(am.Told()) >= times && len(slack.got()) >= times && len(webhook.got()) >= times
		}, patience, time.Millisecond,
			"%v\n%v\n%v\n%s", am, slack, webhook, a.Stderr)
		require.Equal(t, []int{times, times, times}, []int{len(am.Told()), len(slack.got()), len(webhook.got())})
	}
	told(first, 1)
	require.Equal(t, map[string]string{
		"alertname": "TracecoreSiteAlarm", "pattern": "site_alarm", "severity": "error", "node": host, "verdict_id": v.ID,
	}, am.Alerts(t)[0].Labels)
	require.Zero(t, first.Stop(t, syscall.SIGTERM), first.Stderr)

	second := run()
	send(t, otlp, "site.calm")
	second.await(t, "the calm", func(v verdict.Verdict) bool { return v.Status == verdict.Resolved })
	told(second, 2)
	require.True(t, am.Told()[1].Resolved)
	require.Equal(t, am.Told()[0].Labels, am.Told()[1].Labels)
	require.Empty(t, am.Alerts(t))
	require.Contains(t, slack.got()[0], `"text":"ERROR"`)
	require.Contains(t, slack.got()[1], `"text":"RESOLVED"`)
	var body struct{ ID, State, Severity, Summary, Remedy, Runbook string }
	require.NoError(t, json.Unmarshal([]byte(webhook.got()[1]), &body))
	require.Equal(t, v.ID, body.ID)
	require.Equal(t, "resolved", body.State)
	require.Equal(t, `"alarm" on `+host, body.Summary)
	require.NotContains(t, second.Stderr.String(), "hunter2")
}

// send sends a record of this host until it is taken.
func send(t *testing.T, address, event string) {
	t.Helper()
	require.Eventually(t, func() bool { return post(t, address, event) }, patience, 5*time.Millisecond)
}

// post sends a record of this host and reports whether it was taken.
func post(t *testing.T, address, event string) bool {
	t.Helper()
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", host)
	of.Resource().Attributes().PutStr("tracecore.trust", "proven") // as an agent's own receivers say
	record := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	body, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	response, err := http.Post("http://"+address+"/v1/logs", "application/json", bytes.NewReader(body))
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
