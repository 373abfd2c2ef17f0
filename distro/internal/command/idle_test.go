package command

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// TestWhatDoesNothingIsSaid: parts of a configuration that are right and have no effect.
func TestWhatDoesNothingIsSaid(t *testing.T) {
	empty := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(empty, "..data"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(empty, "rule.yaml.off"), []byte(siteRule), 0o600))
	const alone = `
receivers: {otlp: {protocols: {http: }}}
exporters: {debug: , debug/two: }
service:
  pipelines: {logs: {receivers: [otlp], exporters: [debug, " debug / two "]}}
`
	for name, tc := range map[string]struct {
		config string
		alone  bool     // not over the default
		args   []string // beside it
		want   []string // lines, without the file
	}{
		"nothing":                    {config: "receivers: {}"},
		"a zero without a unit":      {config: "processors: {patterndetector: {repeat: 0}}"},
		"a file that stands alone":   {config: alone, alone: true},
		"a pipeline that takes less": {config: "service: {pipelines: {metrics: {receivers: [otlp], processors: [], exporters: [debug]}}}\nexporters: {debug: }"},
		"one of each section": {
			config: "receivers:\n  otlp/two: {protocols: {http: }}\nprocessors:\n  patterndetector/two:\nexporters:\n\n  debug/two:\nextensions:\n  health_check/two:\n",
			want: []string{
				":2: receivers::otlp/two is in no pipeline, so it does nothing: name it in a pipeline of service::pipelines, or take it out",
				":4: processors::patterndetector/two is in no pipeline, so it does nothing: name it in a pipeline of service::pipelines, or take it out",
				":7: exporters::debug/two is in no pipeline, so it does nothing: name it in a pipeline of service::pipelines, or take it out",
				":9: extensions::health_check/two is not in service::extensions, so it does not start: name it there, or take it out",
			},
		},
		"a connector": {config: "connectors:\n  forward/two:\n", want: []string{":2: connectors::forward/two is in no pipeline, so it does nothing: name it in a pipeline of service::pipelines, or take it out"}},
		"by a flag": {config: "receivers: {}", args: []string{"--set=exporters.debug/two.verbosity=basic"}, want: []string{
			"exporters::debug/two is in no pipeline, so it does nothing: name it in a pipeline of service::pipelines, or take it out",
		}},
		"a folder without a rule": {config: "processors:\n  patterndetector:\n    rules:\n      - " + empty, want: []string{
			":4: processors::patterndetector::rules::0: no file *.yaml is in " + empty + ", so no pattern of your own runs: put pattern files there, or take the folder out",
		}},
		"mutes": {config: `processors:
  patterndetector:
    mutes:
      - {pattern: gpu_lost, culprit: {host: a}, until: 2126-12-01T08:00:00Z, reason: x}
      - {pattern: gpu_lost, culprit: {host: a}, until: 2126-12-01T08:00:00Z, reason: y}
      - {pattern: gpu_lost, culprit: {host: b}, until: 2126-12-01T08:00:00Z, reason: x}
      - {pattern: gpu_lost, culprit: {host: a}, until: 2126-12-01T09:00:00Z, reason: later}
      - {pattern: hbm_ecc, culprit: {host: a}, until: 2126-12-01T08:00:00Z, reason: x}
      - {pattern: hbm_ecc, until: 2126-12-01T08:00:00Z, reason: all}
      - {pattern: hbm_ecc, culprit: {host: c}, until: 2126-12-02T08:00:00Z, reason: longer}
      - {pattern: hbm_ecc, until: 2025-12-02T08:00:00Z, reason: over}
`, want: []string{
			":4: processors::patterndetector::mutes::0: mutes::3 keeps the same back, until 2126-12-01T09:00:00Z: take this one out",
			":5: processors::patterndetector::mutes::1: mutes::0 keeps the same back, until 2126-12-01T08:00:00Z: take this one out",
			":8: processors::patterndetector::mutes::4: mutes::5 keeps the same back, until 2126-12-01T08:00:00Z: take this one out",
			":11: processors::patterndetector::mutes::7: it ended at 2025-12-02T08:00:00Z and mutes nothing: take it out",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := filepath.Join(t.TempDir(), "mine.yaml")
			require.NoError(t, os.WriteFile(mine, []byte(tc.config), 0o600))
			args := []string{"validate", "--config=tracecore:default", "--config=" + mine}
			if tc.alone {
				args = []string{"validate", "--config=" + mine}
			}
			got := commandtest.Finish(t, commandtest.New(t, append(args, tc.args...)...))
			require.Equal(t, exitOK, got.Code, got.Stderr)
			var want strings.Builder
			for _, line := range tc.want {
				want.WriteString("tracecore: warning: ")
				if strings.HasPrefix(line, ":") {
					want.WriteString(mine)
				}
				want.WriteString(line + "\n")
			}
			require.Equal(t, want.String(), got.Stderr)
		})
	}
}

// TestAConnectorNeedsBothEnds: the collector does not start, and names neither file nor line.
func TestAConnectorNeedsBothEnds(t *testing.T) {
	for pipelines, says := range map[string]string{
		"{logs: {exporters: [terminal, forward/two]}}":                      "is among the exporters of a pipeline, and no pipeline reads it",
		"{logs/two: {receivers: [forward/two], exporters: [terminal]}}":     "is among the receivers of a pipeline, and no pipeline sends to it",
		"{logs/two: {receivers: [otlp], exporters: [\" forward / two \"]}}": "is among the exporters of a pipeline, and no pipeline reads it",
	} {
		mine := filepath.Join(t.TempDir(), "mine.yaml")
		require.NoError(t, os.WriteFile(mine, []byte("connectors:\n  forward/two:\nservice:\n  pipelines: "+pipelines), 0o600))
		got := commandtest.Finish(t, commandtest.New(t, "validate", "--config=tracecore:default", "--config="+mine))
		require.NotEqual(t, exitOK, got.Code)
		require.Contains(t, got.Stderr, mine+":2: connectors::forward/two "+says)
	}
}

// TestTheStartSaysWhatDoesNothing once, and again when a reload finds something else.
func TestTheStartSaysWhatDoesNothing(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(mine, []byte(text), 0o600)) }
	write("exporters:\n  debug/two:\n")
	agent := commandtest.Start(t, commandtest.New(t, append(commandtest.Ports(t), "--config=tracecore:default", "--config="+mine)...))
	said := func(text string) int { return strings.Count(agent.Stderr.String(), "tracecore: warning: "+mine+text) }
	require.Equal(t, 1, said(":2: exporters::debug/two is in no pipeline"))

	// A mistake beside it: what was said is not said again, neither then nor once it is mended.
	write("exporters:\n  debug/two:\n  debug/four:\nreceivers: {otlp: {wrong: 1}}\n")
	hangUp(t, agent)
	require.Eventually(t, func() bool { return strings.Contains(agent.Stderr.String(), "the configuration has a mistake") }, hosttest.Patience, 5*time.Millisecond, "%s", agent.Stderr)
	require.Equal(t, 1, said(":2: exporters::debug/two is in no pipeline"))
	require.Equal(t, 1, said(":3: exporters::debug/four is in no pipeline"))

	write("exporters:\n\n  debug/three:\n")
	hangUp(t, agent)
	require.Eventually(t, func() bool { return strings.Contains(agent.Stderr.String(), "it is taken over") }, hosttest.Patience, 5*time.Millisecond, "%s", agent.Stderr)
	require.Equal(t, 1, said(":3: exporters::debug/three is in no pipeline"))
	require.Equal(t, 1, said(":2: exporters::debug/two is in no pipeline"))
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
}
