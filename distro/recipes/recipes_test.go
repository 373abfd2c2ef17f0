// Package recipes holds configurations that bring what other programs say into
// the shape that the patterns read. It has tests only: each recipe runs as an
// operator runs it, on text that the producer wrote.
package recipes

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/distro/internal/command"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func TestMain(m *testing.M) {
	if commandtest.IsCommand() {
		os.Exit(command.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// patience bounds every wait; only a test that fails reaches it.
const patience = hosttest.Patience

// withoutProbes takes the kernel's own part out of the default: what this machine
// goes through must not mix with what a recipe reads.
const withoutProbes = `yaml:
service:
  extensions: [health_check, file_storage, history]
  pipelines:
    logs: {receivers: [otlp]}
    metrics: {receivers: [otlp]}
`

// agent is a tracecore with one recipe over its embedded default, whose verdicts
// come as JSON.
type agent struct {
	*commandtest.Running
}

// host is what the agents of the tests call their node.
const host = "node-7"

// start runs a recipe. More configuration and flags go over it.
func start(t *testing.T, recipe string, more ...string) agent {
	t.Helper()
	args := []string{
		"--config=tracecore:default", "--config=" + recipe, "--config=" + withoutProbes, "--set=exporters.terminal.format=json",
	}
	cmd := commandtest.New(t, slices.Concat(args, commandtest.Ports(t), more)...)
	cmd.Env = append(cmd.Env, "K8S_NODE_NAME="+host)
	a := agent{commandtest.Start(t, cmd)}
	// A statement that fails is left out and logged; none of a recipe may.
	t.Cleanup(func() { require.NotContains(t, a.Stderr.String(), "failed to") })
	return a
}

// verdicts are all that were printed so far, in order, every revision.
func (a agent) verdicts(t *testing.T) []verdict.Verdict {
	t.Helper()
	var all []verdict.Verdict
	for line := range strings.Lines(a.Stdout.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of it is on its way
		}
		v, err := verdict.FromJSON([]byte(line))
		require.NoError(t, err, line)
		all = append(all, v)
	}
	return all
}

// await returns the first verdict that matches, whenever it was printed.
func (a agent) await(t *testing.T, what string, match func(verdict.Verdict) bool) verdict.Verdict {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		all := a.verdicts(t)
		if i := slices.IndexFunc(all, match); i >= 0 {
			return all[i]
		}
		if time.Now().After(deadline) {
			said, _ := json.MarshalIndent(all, "", "  ")
			require.FailNow(t, "no verdict: "+what, "verdicts:\n%s\nlog:\n%s", said, a.Stderr)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// about matches verdicts of one pattern that name this value of a culprit.
func about(pattern, key, value string) func(verdict.Verdict) bool {
	return func(v verdict.Verdict) bool { return v.Pattern == pattern && v.Culprit[key] == value }
}

// Lists of a configuration replace each other: a recipe for logs has to repeat
// the receivers of the default's pipeline.
func TestRecipesForLogsKeepTheReceiversOfTheDefault(t *testing.T) {
	type config struct {
		Service struct {
			Pipelines map[string]struct{ Receivers []string }
		}
	}
	read := func(file string) (c config) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &c), file)
		return c
	}
	defaults := read("../defaultconfig/default.yaml").Service.Pipelines["logs"].Receivers
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".yaml") {
			continue
		}
		if pipeline, ok := read(f.Name()).Service.Pipelines["logs"]; ok && pipeline.Receivers != nil {
			want := append(slices.Clone(defaults), "forward/recipes")
			require.Equal(t, want, pipeline.Receivers, f.Name())
		}
	}
}

// TestRecipesGoTogether: the page says that several do. Lists replace each other, so what two
// recipes both set must be the same, and what a pipeline sends on must have its end in each.
func TestRecipesGoTogether(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	lists, from := map[string]any{}, map[string]string{}
	for _, file := range files {
		var recipe struct {
			Service struct {
				Pipelines map[string]map[string]any
			}
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &recipe), file)
		for pipeline, parts := range recipe.Service.Pipelines {
			for part, list := range parts {
				key := pipeline + "::" + part
				if _, set := lists[key]; set {
					require.Equal(t, lists[key], list, "%s of %s and of %s", key, file, from[key])
				}
				lists[key], from[key] = list, file
				if strings.HasPrefix(pipeline, "metrics/") && pipeline != "metrics/out" {
					require.NotContains(t, list, "debug", "%s: %s: prometheus.yaml beside it gets none of these", file, key)
				}
			}
		}
	}
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	for range 2 {
		args := []string{"validate", "--config=tracecore:default"}
		for _, file := range files {
			args = append(args, "--config="+file)
		}
		cmd := commandtest.New(t, args...)
		cmd.Env = append(cmd.Env, "SLACK_WEBHOOK_URL=https://slack/x", "WEBHOOK_URL=https://w/x", "RECIPES="+here)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%q: %s", args, out)
		slices.Reverse(files)
	}
	for _, pair := range [][2]string{{"loki.yaml", "slack.yaml"}, {"slurm-drain.yaml", "alertmanager.yaml"}, {"prometheus.yaml", "dcgm-exporter.yaml"}, {"dcgm-exporter.yaml", "prometheus.yaml"}} {
		cmd := commandtest.New(t, "validate", "--config=tracecore:default", "--config="+pair[0], "--config="+pair[1])
		cmd.Env = append(cmd.Env, "SLACK_WEBHOOK_URL=https://slack/x")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%q: %s", pair, out)
	}
}
