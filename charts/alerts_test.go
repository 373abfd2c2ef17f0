package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// foreign are the modules of the collector whose own metrics alerts may use.
var foreign = []string{
	"go.opentelemetry.io/collector/exporter/exporterhelper",
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor",
	"go.opentelemetry.io/collector/processor/processorhelper",
	"go.opentelemetry.io/collector/receiver/receiverhelper",
	"go.opentelemetry.io/collector/service",
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/kafkaexporter",
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/loadbalancingexporter",
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kafkareceiver",
}

// existing are the metrics that the components of the distribution have, and
// the labels of each, by the name under which Prometheus sees them.
func existing(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("../*/*/metadata.yaml")
	require.NoError(t, err)
	for _, module := range foreign {
		dir, err := run(t, "go", "list", "-m", "-f", "{{.Dir}}", module)
		require.NoError(t, err, dir)
		files = append(files, filepath.Join(strings.TrimSpace(dir), "metadata.yaml"))
	}
	all := map[string][]string{"up": nil}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var metadata struct {
			Telemetry struct {
				Metrics map[string]struct{ Attributes []string }
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &metadata), file)
		for name, metric := range metadata.Telemetry.Metrics {
			all["otelcol_"+strings.ReplaceAll(name, ".", "_")] = metric.Attributes
		}
	}
	require.Greater(t, len(all), 80)
	return all
}

// rules returns the groups of the PrometheusRule, as a file for promtool.
func rules(t *testing.T) (path string, groups []any) {
	t.Helper()
	rule := objects(t, render(t, "--set", "monitoring.alerts.enabled=true"))["PrometheusRule/monitoring"]
	text, err := yaml.Marshal(at(t, rule, "spec"))
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "alerts.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path, at(t, rule, "spec", "groups").([]any)
}

func alerts(t *testing.T, groups []any) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, group := range groups {
		for _, rule := range at(t, group, "rules").([]any) {
			all[at(t, rule, "alert").(string)] = rule.(map[string]any)
		}
	}
	require.GreaterOrEqual(t, len(all), 10)
	return all
}

var (
	text     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	matchers = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|ignoring)\s*\([^)]*\)`)
	name     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	// words of PromQL that stand where a metric may.
	words = []string{"increase", "rate", "label_replace", "or", "and", "unless", "offset", "sum", "max", "min", "m", "by", "count", "count_over_time", "topk", "time", "vector", "last_over_time"}
)

// metricsIn returns every name in an expression that is not a word of PromQL.
func metricsIn(expression string) []string {
	bare := matchers.ReplaceAllString(text.ReplaceAllString(expression, `""`), "")
	var found []string
	for _, word := range name.FindAllString(regexp.MustCompile(`\b[0-9]+[smhd]\b`).ReplaceAllString(bare, ""), -1) {
		if !slices.Contains(words, word) {
			found = append(found, word)
		}
	}
	return found
}

func TestMetricsAreFoundInExpressions(t *testing.T) {
	require.Equal(t, []string{"a_b", "c", "d"}, metricsIn(`sum by (x) (rate(a_b{y="or {z}"}[5m])) > 0 or (c unless d offset 15m)`))
}

func TestAlertsUseMetricsThatExist(t *testing.T) {
	known := existing(t)
	_, groups := rules(t)
	for alert, rule := range alerts(t, groups) {
		metrics := metricsIn(at(t, rule, "expr").(string))
		require.NotEmpty(t, metrics, alert)
		for _, metric := range metrics {
			require.Contains(t, known, metric, "%s: no component has this metric", alert)
		}
	}
}

func TestDashboardsUseMetricsThatExist(t *testing.T) {
	known := existing(t)
	all := boards(t)
	for _, name := range []string{"tracecore.json", "fleet.json", "job.json", "node.json"} {
		require.GreaterOrEqual(t, len(all[name]), 8, name)
	}
	for file, panels := range all {
		for _, panel := range panels {
			for _, target := range panel.Targets {
				for _, metric := range metricsIn(target.Expr) {
					require.Contains(t, known, metric, "%s: %s", file, panel.Title)
				}
				out, err := run(t, tool(t, ".cache/bin/promtool"), "--experimental", "promql", "format", target.Expr)
				require.NoError(t, err, "%s: %s: %s", file, panel.Title, out)
			}
		}
	}
}

// jobPatterns are those whose verdict is no word about hardware.
var jobPatterns = []string{
	"checkpoint_stall", "crash_loop", "cuda_oom", "dataloader_hang", "fuse_stall", "host_oom_kill", "library_crash", "nccl_bootstrap_timeout",
	"nccl_hang", "nccl_socket_stall", "node_pressure", "pod_evicted", "pod_not_starting", "rank_exit", "straggler",
}

// TestEveryPatternHasItsAlert: each pattern is hardware or not, and the alerts have it so.
func TestEveryPatternHasItsAlert(t *testing.T) {
	_, groups := rules(t)
	expression := at(t, alerts(t, groups)["TracecoreHardwareVerdict"], "expr").(string)
	listed := regexp.MustCompile(`pattern=~\\?"([^"\\]+)`).FindStringSubmatch(expression)
	require.NotNil(t, listed)
	require.Contains(t, at(t, alerts(t, groups)["TracecoreJobVerdict"], "expr"), `pattern!~"`+listed[1]+`|ib_link_down|xid_impact"`)
	require.Contains(t, expression, `pattern=~"ib_link_down|xid_impact",verdict_severity!="warning"`, "an Xid of the application, and a port that was switched off, are no word about hardware")
	files, err := filepath.Glob("../patterns/*/pattern.yaml")
	require.NoError(t, err)
	all := append([]string{"ib_link_down", "xid_impact"}, jobPatterns...)
	for _, pattern := range strings.Split(listed[1], "|") {
		require.NotContains(t, jobPatterns, pattern)
		all = append(all, pattern)
	}
	var there []string
	for _, file := range files {
		there = append(there, filepath.Base(filepath.Dir(file)))
	}
	require.ElementsMatch(t, there, all, "name a new pattern in the alert of hardware, or above")
}

func TestAlertsNameTheirSectionOfTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("../RUNBOOK.md")
	require.NoError(t, err)
	sections := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(runbook), -1) {
		sections[strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-")] = true
	}
	_, groups := rules(t)
	for alert, rule := range alerts(t, groups) {
		_, section, _ := strings.Cut(at(t, rule, "annotations", "runbook").(string), "RUNBOOK.md#")
		require.True(t, sections[section], "%s: RUNBOOK.md has no section %q", alert, section)
	}
}

// TestAlertsFireAndRest runs testdata/alerts.yaml: series, and which alerts they
// lead to. Each alert must fire in one of its cases.
func TestAlertsFireAndRest(t *testing.T) {
	promtool := tool(t, ".cache/bin/promtool")
	path, groups := rules(t)
	out, err := run(t, promtool, "check", "rules", "--lint=all", "--lint-fatal", path)
	require.NoError(t, err, out)

	cases, err := os.ReadFile("testdata/alerts.yaml")
	require.NoError(t, err)
	test := filepath.Join(filepath.Dir(path), "test.yaml")
	require.NoError(t, os.WriteFile(test, fmt.Appendf(nil, "rule_files: [%s]\n%s", path, cases), 0o600))
	out, err = run(t, promtool, "test", "rules", test)
	require.NoError(t, err, out)

	var document struct {
		Tests []struct {
			Cases []struct {
				Alert    string           `yaml:"alertname"`
				Expected []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(cases, &document))
	fires := map[string]bool{}
	for _, test := range document.Tests {
		for _, one := range test.Cases {
			fires[one.Alert] = fires[one.Alert] || len(one.Expected) > 0
		}
	}
	for alert := range alerts(t, groups) {
		require.True(t, fires[alert], "%s: no case of testdata/alerts.yaml lets it fire", alert)
	}
}

// notAlerted are counters of losses that wake nobody, and why.
var notAlerted = map[string]string{
	"connector_incidenttraces_evicted":  "a trace of an incident that is over: its verdict was told",
	"connector_incidenttraces_failures": "a trace of an incident that is over: its verdict was told",
	"connector_incidenttraces_lost":     "a trace of an incident that is over: its verdict was told",

	"exporter_k8snode_events":                "its condition is set all the same",
	"exporter_terminal_incidents_evicted":    "the order of lines alone",
	"exporter_terminal_verdicts":             "what breaks the schema is counted by exporters that tell, too; what a stream does not take is in the history",
	"extension_history_agents_evicted":       "somebody makes up machines",
	"extension_history_cut":                  "the newest revisions are there",
	"extension_history_evicted":              "the file is full: the oldest give way, as it was set",
	"extension_identity_senders_unnoted":     "a tenant floods, and alone loses by it",
	"processor_patterndetector_runs_ended":   "a job failed: its verdict is told",
	"processor_patterndetector_runs_lost":    "time of jobs",
	"processor_patterndetector_near_crowded": "no verdict rests on them",
	"processor_rankjoin_groups_skipped":      "a tenant floods, and alone loses by it",
	"processor_rankjoin_records_cut":         "a tenant floods, and alone loses by it",

	"processor_patterndetector_delivery_failures": "tried again: TracecoreVerdictsWait",
	"processor_patterndetector_history_failures":  "tried again: history_dropped and history_write_failures",
	"processor_patterndetector_records_irregular": "clocks and senders of others: the page of the processor says what each is",

	"extension_agent_auth_clocks_refused": "the times are taken as they are, and status tells of a clock that is wrong",
	"extension_agent_auth_refused":        "a stranger is kept out",
	"receiver_otlp_refused":               "a sender is told to come back",
	"receiver_ncclfr_files_refused":       "a tenant's file that is no dump",

	"receiver_cudaoom_probe_failures": "TracecoreProbeDown", "receiver_fusefault_probe_failures": "TracecoreProbeDown", "receiver_kernelevents_probe_failures": "TracecoreProbeDown",
	"receiver_ncclcall_probe_failures": "TracecoreProbeDown", "receiver_ncclsock_probe_failures": "TracecoreProbeDown", "receiver_oomkill_probe_failures": "TracecoreProbeDown",
	"receiver_pyexception_probe_failures": "TracecoreProbeDown", "receiver_stacks_probe_failures": "TracecoreProbeDown",

	"receiver_cudaoom_refusals":                "what the driver refused a job",
	"receiver_fusefault_scans_failed":          "tried again a second later",
	"receiver_gpu_call_failures":               "a GPU that does not answer is a verdict",
	"receiver_gpu_events_lost":                 "the kernel log has them",
	"receiver_gpu_folds_closed_early":          "each fault of the storm is told",
	"receiver_kernelevents_folds_closed_early": "each fault of the storm is told",
	"receiver_ncclcall_calls_refused":          "a tenant floods, and alone loses by it",
	"receiver_stacks_failed":                   "a process that ended while it was read",
	"receiver_stacks_limited":                  "a tenant floods, and alone loses by it",
}

// TestEachLossIsAlerted, or says why nobody needs to know.
func TestEachLossIsAlerted(t *testing.T) {
	lossy := regexp.MustCompile(`fail|drop|lost|refus|forgot|crowd|evict|skip|missed|error|set_aside|damaged|cut|closed_early|irregular|limited|unnoted`)
	_, groups := rules(t)
	var used []string
	for _, rule := range alerts(t, groups) {
		used = append(used, metricsIn(at(t, rule, "expr").(string))...)
	}
	files, err := filepath.Glob("../*/*/metadata.yaml")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var metadata struct {
			Attributes map[string]struct{ Enum []string }
			Telemetry  struct {
				Metrics map[string]struct {
					Attributes []string
					Sum        struct{ Monotonic bool }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &metadata), file)
		for name, metric := range metadata.Telemetry.Metrics {
			loss := lossy.MatchString(name)
			for _, attribute := range metric.Attributes {
				for _, value := range metadata.Attributes[attribute].Enum {
					loss = loss || slices.Contains([]string{"aside", "crowded", "failed", "invalid", "lost", "refused"}, value)
				}
			}
			_, excused := notAlerted[name]
			alerted := slices.Contains(used, "otelcol_"+name)
			switch {
			case metric.Sum.Monotonic && loss:
				require.True(t, alerted || excused, "%s: %s counts a loss: name it in an alert, or above with the reason", file, name)
				require.False(t, alerted && excused, "%s: it is in an alert", name)
			default:
				require.False(t, excused, "%s: it counts no loss", name)
			}
		}
	}
}
