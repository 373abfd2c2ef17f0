package command

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// siteRule is a rule of a site, and reloadedConfig an agent that runs it.
const (
	siteRule = `id: 1001
name: site_alarm
summary: the site has an alarm
declares: {events: {site.alarm: this test, site.calm: this test}}
parameters:
  window: {type: duration, default: 1m, range: [1s, 1h], meaning: nothing here}
key: [host]
within: $window
evidence: {alarm: {logs: site.alarm, shows: an alarm}}
full: alarm
resolves: {calm: {logs: site.calm, shows: it is calm}}
severity: error
headline: "VERSION of the alarm on {host}, $window"
remedy: look
`
	reloadedConfig = `
extensions: {health_check: , file_storage: {directory: %s}}
receivers: {otlp: {senders: agents, protocols: {http: {endpoint: "%s"}}}}
processors: {patterndetector: {storage: file_storage, rules: ["%s"], patterns: {site_alarm: {window: %s}}}}
exporters: {terminal: {format: json}}
service:
  extensions: [health_check, file_storage]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp], processors: [patterndetector], exporters: [terminal]}}
`
)

// A change of the configuration and of a rule file takes effect on SIGHUP: the process
// stays, and the verdict that was open goes on as the same.
func TestAReloadKeepsOpenVerdicts(t *testing.T) {
	dir, otlp := t.TempDir(), hosttest.FreeAddress(t)
	config, rules := filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "rule.yaml")
	write := func(version, window string) {
		require.NoError(t, os.WriteFile(rules, []byte(strings.Replace(siteRule, "VERSION", version, 1)), 0o600))
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, reloadedConfig, filepath.Join(dir, "state"), otlp, rules, window), 0o600))
	}
	write("first", "2m")
	agent := commandtest.Start(t, commandtest.New(t, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t)))
	send(t, otlp, "site.alarm")
	open := verdictLike(t, agent, `"status":"open".*first of the alarm on node-a, 2m`)

	write("second", "3m")
	hangUp(t, agent)
	require.Eventually(t, func() bool { return strings.Count(agent.Stderr.String(), "Everything is ready") == 2 }, hosttest.Patience, 5*time.Millisecond, "%s", agent.Stderr)
	send(t, otlp, "site.calm")
	resolved := verdictLike(t, agent, `"status":"resolved".*second of the alarm on node-a, 3m`)
	require.Equal(t, open, resolved, "the same verdict")
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
}

// A mistake in a rule file or in the configuration ends nothing: it is named with file and
// line, the verdict that was open goes on, and the next SIGHUP takes what was mended.
func TestAReloadOfAMistakeChangesNothing(t *testing.T) {
	dir, otlp := t.TempDir(), hosttest.FreeAddress(t)
	config, rules := filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "rule.yaml")
	write := func(file, text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	good := fmt.Sprintf(reloadedConfig, filepath.Join(dir, "state"), otlp, rules, "2m")
	write(config, good)
	write(rules, strings.Replace(siteRule, "VERSION", "first", 1))
	agent := commandtest.Start(t, commandtest.New(t, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t)))
	send(t, otlp, "site.alarm")
	open := verdictLike(t, agent, `"status":"open".*first of the alarm on node-a, 2m`)

	says := func(text string, times int) {
		t.Helper()
		hangUp(t, agent)
		require.Eventually(t, func() bool { return strings.Count(agent.Stderr.String(), text) == times }, hosttest.Patience, 5*time.Millisecond, "%s", agent.Stderr)
	}
	for i, broken := range []struct{ file, text, says string }{
		{rules, strings.Replace(siteRule, "full: alarm", "full: alram", 1), `agent.yaml:4: processors::patterndetector::rules: ` + rules + `:10:7: there is no evidence "alram": did you mean "alarm"?`},
		{config, fmt.Sprintf(reloadedConfig, filepath.Join(dir, "state"), otlp, rules, "2h"), "agent.yaml:4: processors::patterndetector::patterns::site_alarm::window: 2h is out of range: write a value from 1s to 1h"},
		{config, strings.Replace(good, "rules:", "ruls:", 1), `agent.yaml:4: processors::patterndetector: there is no key "ruls": did you mean "rules"?`},
		{config, strings.Replace(good, "storage: file_storage", "storage: file_storag", 1), `agent.yaml:4: processors::patterndetector::storage: there is no extension "file_storag": did you mean "file_storage"?`},
		{config, strings.Replace(good, "extensions: [health_check, file_storage]", "extensions: [health_check]", 1), `agent.yaml:7: service::extensions: it leaves out "file_storage": add it, since processors::patterndetector::storage names it`},
		{config, good + "  - {", "agent.yaml: line "},
		{config, "", "agent.yaml: no such file"},
		{config, strings.Replace(good, rules, rules+".gone", 1), "rule.yaml.gone: no such file"},
	} {
		before, err := os.ReadFile(broken.file)
		require.NoError(t, err)
		require.NoError(t, os.Remove(broken.file))
		if broken.text != "" {
			write(broken.file, broken.text)
		}
		says("what runs goes on", i+1)
		require.Contains(t, agent.Stderr.String(), broken.says)
		write(broken.file, string(before))
	}
	send(t, otlp, "site.alarm") // it takes records as before
	require.Equal(t, 1, strings.Count(agent.Stderr.String(), "Everything is ready"))

	write(rules, strings.Replace(siteRule, "VERSION", "second", 1))
	says("Everything is ready", 2)
	send(t, otlp, "site.calm")
	require.Equal(t, open, verdictLike(t, agent, `"status":"resolved".*second of the alarm on node-a, 2m`), "the same verdict")
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
}

// hangUp sends SIGHUP once the process hears it: while it starts, it does not (proc(5), SigCgt).
func hangUp(t *testing.T, agent *commandtest.Running) {
	t.Helper()
	heard := regexp.MustCompile(`(?m)^SigCgt:\s.*[13579bdf]$`)
	require.Eventually(t, func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", agent.Cmd.Process.Pid))
		return err == nil && heard.Match(status)
	}, hosttest.Patience, 5*time.Millisecond)
	require.NoError(t, agent.Cmd.Process.Signal(syscall.SIGHUP))
}

// send sends a log record over OTLP until it is taken.
func send(t *testing.T, address, event string) {
	t.Helper()
	sendFrom(t, address, "node-a", event)
}

// sendFrom sends it as a host's.
func sendFrom(t *testing.T, address, host, event string) {
	t.Helper()
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", host)
	record := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	body, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		response, err := http.Post("http://"+address+"/v1/logs", "application/json", bytes.NewReader(body))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, hosttest.Patience, 5*time.Millisecond)
}

// verdictID is that of a verdict on the terminal.
var verdictID = regexp.MustCompile(`"verdict_id":"([^"]+)"`)

// verdictLike waits for a verdict and returns its id.
func verdictLike(t *testing.T, agent *commandtest.Running, like string) string {
	t.Helper()
	want := regexp.MustCompile(like)
	var line string
	require.Eventually(t, func() bool {
		for one := range strings.Lines(agent.Stdout.String()) {
			if want.MatchString(one) {
				line = one
			}
		}
		return line != ""
	}, hosttest.Patience, 5*time.Millisecond, "%s\n%s", agent.Stdout, agent.Stderr)
	id := verdictID.FindStringSubmatch(line)
	require.NotNil(t, id, line)
	return id[1]
}
