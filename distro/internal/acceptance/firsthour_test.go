//go:build linux

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var well = []int{0}

// user types commands beside a running agent.
type user struct {
	state, address string
}

// types runs one, logs it with its time and output, and returns what it printed. It ends
// with that code, or, where other tests may have broken something, with one of them.
func (u user) types(t *testing.T, codes []int, args ...string) string {
	t.Helper()
	cmd := commandtest.New(t, args...)
	cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR="+u.state)
	began := time.Now()
	got := commandtest.Finish(t, cmd)
	t.Logf("$ tracecore %s\n%s%s# exit code %d after %s", strings.Join(args, " "), got.Stdout, got.Stderr, got.Code, time.Since(began).Round(time.Millisecond))
	require.Contains(t, codes, got.Code)
	return got.Stdout
}

// asks is types for a command that asks the agent.
func (u user) asks(t *testing.T, codes []int, args ...string) string {
	t.Helper()
	return u.types(t, codes, append(args, "--address="+u.address)...)
}

// sees asks until the answer has all of these texts: the history has a verdict a moment after the
// terminal.
func (u user) sees(t *testing.T, codes []int, texts []string, args ...string) {
	t.Helper()
	u.seesAs(t, func(said string) string { return said }, codes, texts, args...)
}

// seesAs is sees in what as makes of it.
func (u user) seesAs(t *testing.T, as func(said string) string, codes []int, texts []string, args ...string) {
	t.Helper()
	for deadline := time.Now().Add(hosttest.Patience); ; time.Sleep(100 * time.Millisecond) {
		said := as(u.asks(t, codes, args...))
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(said, text) }) {
			return
		}
		require.True(t, time.Now().Before(deadline), "%v", texts)
	}
}

// startBackend starts a second tracecore that takes verdicts over OTLP and prints them.
func startBackend(t *testing.T, address string) agent {
	t.Helper()
	config := filepath.Join(t.TempDir(), "backend.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
extensions: {health_check: }
receivers: {otlp: {senders: agents, protocols: {http: {endpoint: %q}}}}
exporters: {terminal: {format: json}}
service:
  extensions: [health_check]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [otlp], exporters: [terminal]}}
`, address), 0o600))
	cmd := commandtest.New(t, "--config="+config, "--set=extensions.health_check.endpoint="+hosttest.FreeAddress(t))
	return agent{Running: commandtest.Start(t, cmd)}
}

// TestTheFirstHour is that of a new user: start, drill, a fault, and every way to look at
// it and to send it on. Its log has each command, its output and its time.
func TestTheFirstHour(t *testing.T) {
	privtest.Require(t)
	backendAddress := hosttest.FreeAddress(t)
	backend := startBackend(t, backendAddress)
	u := user{state: t.TempDir(), address: hosttest.FreeAddress(t)}
	began := time.Now()
	a := startAgent(t, u.state, "--to=http://"+backendAddress, "--set=extensions.history.http.endpoint="+u.address)
	t.Logf("$ tracecore --to http://%s\n# healthy after %s", backendAddress, time.Since(began).Round(time.Millisecond))

	// A drill is shown where it is made, and wakes nobody.
	require.Contains(t, u.types(t, well, "drill", "xid"), "This is a drill")
	drilled := a.await(t, "the drill", func(v verdict.Verdict) bool { return v.Drill })
	u.sees(t, []int{0, 1}, []string{"DRILL"}, "incidents", "show", drilled.IncidentID)

	rank := startRank(t, "3")
	pid := strconv.Itoa(rank.PID())
	writeKmsg(t, fmt.Sprintf("NVRM: Xid (PCI:0000:6b:00): 79, pid=%s, name=python, GPU has fallen off the bus.", pid))
	root := a.await(t, "the lost GPU", about("gpu_lost", "gpu", "0000:6b:00.0"))
	_, err := rank.Abort()
	require.NoError(t, err)
	a.await(t, "the rank's death", about("rank_exit", "pid", pid))

	// A process wrote the line: the cause is likely, and no script is told to act.
	// Beside other tests it may be neither the newest nor the only one.
	u.sees(t, []int{0, 1}, []string{"GPU 0000:6b:00.0 on ", "Drain node", "SIGABRT"}, "incidents", "show", root.IncidentID)
	u.sees(t, []int{0, 1}, []string{"open, ", "tracecore incidents show ", "receiver kernelevents"}, "status", "--metrics="+a.metrics)
	require.Contains(t, u.asks(t, well, "incidents", "--job=acceptance"), root.IncidentID)
	u.sees(t, well, []string{"acceptance"}, "jobs")
	u.sees(t, []int{4}, []string{"acceptance"}, "top")

	for _, format := range []string{"html", "md", "json"} {
		page := filepath.Join(t.TempDir(), "incident."+format)
		u.asks(t, well, "report", root.IncidentID, "-o", page)
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Contains(t, string(text), "0000:6b:00.0")
		require.Contains(t, string(text), "SIGABRT")
		require.Less(t, len(text), 2<<20)
		require.NotContains(t, string(text), "<script")
	}
	u.types(t, well, "incidents", "ack", root.IncidentID)
	require.Contains(t, u.asks(t, well, "incidents", "show", root.IncidentID), "Acknowledged")

	sent := backend.await(t, "the lost GPU, sent", func(v verdict.Verdict) bool { return v.ID == root.ID })
	require.Equal(t, root.Headline, sent.Headline)
}
