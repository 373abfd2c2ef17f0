package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// told are releases that tell of verdicts, and which tier of each runs the patterns.
var told = map[string]struct{ values, judge, workload string }{
	"agents":  {"tracecore/ci/told-values.yaml", "agent", "DaemonSet/agent"},
	"gateway": {"tracecore/ci/told-gateway-values.yaml", "gateway", "StatefulSet/gateway"},
}

// secretsIn is what a container gets, by name: of a secret, NAME/KEY.
func secretsIn(t *testing.T, workload any) map[string]string {
	t.Helper()
	all := map[string]string{}
	container := at(t, workload, "spec", "template", "spec", "containers", 0).(map[string]any)
	list, _ := container["env"].([]any)
	for _, one := range list {
		from, _ := one.(map[string]any)["valueFrom"].(map[string]any)
		if secret, ok := from["secretKeyRef"]; ok {
			all[at(t, one, "name").(string)] = fmt.Sprint(at(t, secret, "name"), "/", at(t, secret, "key"))
		}
	}
	return all
}

// TestWhoJudgesTells: alerts and verdicts leave the tier that runs the patterns, with its
// secrets, and no other; they follow its own verdicts alone, and are told again.
func TestWhoJudgesTells(t *testing.T) {
	for name, tc := range told {
		t.Run(name, func(t *testing.T) {
			rendered := render(t, "--values", tc.values)
			for tier := range collectorConfigs(t, rendered) {
				c := config(t, tier, "--values", tc.values)
				exporters := at(t, c, "exporters").(map[string]any)
				logs := at(t, c, "service", "pipelines", "logs")
				for _, exporter := range []string{"alert/alertmanager", "alert/slack"} {
					if tier != tc.judge {
						require.NotContains(t, exporters, exporter, tier)
						continue
					}
					require.True(t, contains(at(t, logs, "exporters"), exporter))
					require.Equal(t, "35m", at(t, exporters[exporter], "stale"))
					require.Equal(t, "file_storage", at(t, exporters[exporter], "sending_queue", "storage"))
				}
			}
			c := config(t, tc.judge, "--values", tc.values)
			require.Equal(t, "filter/verdicts", at(t, c, "service", "pipelines", "logs", "processors", 1), "a verdict that somebody sends wakes nobody")
			require.Equal(t, "10m", at(t, c, "processors", "patterndetector", "repeat"))
			require.Equal(t, "${env:TRACECORE_SLACK_URL}", at(t, c, "exporters", "alert/slack", "endpoint"), "an address that is a secret is in no ConfigMap")
			for kind, object := range objects(t, rendered) {
				switch kind {
				case "DaemonSet/agent", "StatefulSet/gateway", "StatefulSet/events":
					_, tells := secretsIn(t, object)["TRACECORE_SLACK_URL"]
					require.Equal(t, kind == tc.workload, tells, kind)
				}
			}
		})
	}
	all := objects(t, render(t, "--values", told["agents"].values))
	require.Equal(t, map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "backend/headers", "TRACECORE_SLACK_URL": "slack/url", "TRACECORE_WEBHOOK_URL": "pager/url"}, secretsIn(t, all["DaemonSet/agent"]))
	agent := config(t, "agent", "--values", told["agents"].values)
	require.Equal(t, "error", at(t, agent, "exporters", "alert/webhook", "min_severity"))
	require.Equal(t, map[string]any{"cluster": "a"}, at(t, agent, "exporters", "alert/alertmanager", "labels"))
	require.Contains(t, at(t, agent, "exporters", "alert/webhook", "template"), "json .Verdict.Headline")
}

// TestABackendGetsWhatTheFlagSends: it is the flag of the command.
func TestABackendGetsWhatTheFlagSends(t *testing.T) {
	arguments := func(values, workload string) []any {
		return at(t, objects(t, render(t, "--values", values))[workload], "spec", "template", "spec", "containers", 0, "args").([]any)
	}
	const file = "--config=/etc/tracecore/config.yaml"
	require.Equal(t, []any{file, "--to-all=https://backend.example.com:4318"}, arguments(told["agents"].values, "DaemonSet/agent"))
	require.Equal(t, []any{file, "--to=grpcs://backend.example.com:4317"}, arguments(told["gateway"].values, "StatefulSet/gateway"))
	for _, workload := range []string{"DaemonSet/agent", "StatefulSet/events"} {
		require.Equal(t, []any{file}, arguments(told["gateway"].values, workload))
	}
}

// TestRecordsTakeNoRoomFromVerdicts: verdicts and summaries of runs have a queue of their own, with
// the settings of `tracecore --to`, and each record leaves once.
func TestRecordsTakeNoRoomFromVerdicts(t *testing.T) {
	for name, tc := range told {
		t.Run(name, func(t *testing.T) {
			const own = `event_name != "pattern.verdict" and event_name != "job.summary"`
			c := config(t, tc.judge, "--values", tc.values)
			pipelines := at(t, c, "service", "pipelines")
			require.True(t, contains(at(t, pipelines, "logs", "exporters"), "forward/backend"))
			require.False(t, contains(at(t, pipelines, "logs", "exporters"), "otlp_grpc"))
			for part, exporter := range map[string]string{"verdicts": "otlp_grpc/verdicts", "records": "otlp_grpc"} {
				require.Equal(t, map[string]any{
					"receivers": []any{"forward/backend"}, "processors": []any{"filter/backend_" + part}, "exporters": []any{exporter},
				}, at(t, pipelines, "logs/backend_"+part))
			}
			require.Equal(t, []any{own, `attributes["pattern.repeated"] == true`}, at(t, c, "processors", "filter/backend_verdicts", "logs", "log_record"), "what is told again would fill the queue")
			require.Equal(t, []any{`event_name == "pattern.verdict" or event_name == "job.summary"`}, at(t, c, "processors", "filter/backend_records", "logs", "log_record"))
			records, verdicts := at(t, c, "exporters", "otlp_grpc").(map[string]any), at(t, c, "exporters", "otlp_grpc/verdicts").(map[string]any)
			for _, key := range []string{"endpoint", "tls", "headers"} {
				require.Equal(t, records[key], verdicts[key], key)
			}
			queue := at(t, verdicts, "sending_queue")
			require.Equal(t, "file_storage", at(t, queue, "storage"))
			require.EqualValues(t, 1, at(t, queue, "num_consumers"), "a revision does not come before the revision that it replaces")
			room, err := strconv.ParseFloat(fmt.Sprint(at(t, queue, "queue_size")), 64)
			require.NoError(t, err)
			require.Equal(t, "bytes", at(t, queue, "sizer"))
			require.EqualValues(t, 64<<20, room, "as tracecore --to has it")
			require.Equal(t, "0s", at(t, verdicts, "retry_on_failure", "max_elapsed_time"))
		})
	}
}

// TestSpansReachWhoJudges, and incidents leave as traces from there.
func TestSpansReachWhoJudges(t *testing.T) {
	for name, tc := range told {
		c := config(t, tc.judge, "--values", tc.values)
		pipelines := at(t, c, "service", "pipelines")
		require.Equal(t, []any{"memory_limiter", "patterndetector"}, at(t, pipelines, "traces", "processors"), name)
		require.Equal(t, []any{"otlp_grpc"}, at(t, pipelines, "traces", "exporters"), name)
		require.Equal(t, map[string]any{"receivers": []any{"incidenttraces"}, "exporters": []any{"otlp_grpc"}}, at(t, pipelines, "traces/incidents"), name)
		require.True(t, contains(at(t, pipelines, "logs", "exporters"), "incidenttraces"), name)
	}
	agent := config(t, "agent", "--values", told["gateway"].values)
	require.Equal(t, []any{"load_balancing"}, at(t, agent, "service", "pipelines", "traces", "exporters"))
	require.NotContains(t, agent, "connectors")
	require.NotContains(t, at(t, agent, "service", "pipelines"), "logs/backend_verdicts", "who judges sends")

	alone := config(t, "agent", "--set", "traces.enabled=true")
	require.Equal(t, []any{"debug"}, at(t, alone, "service", "pipelines", "traces", "exporters"))
	require.NotContains(t, at(t, alone, "service", "pipelines"), "traces/incidents", "nobody takes them")
	require.ElementsMatch(t, []string{"logs", "metrics"}, slices.Collect(maps.Keys(at(t, config(t, "agent"), "service", "pipelines").(map[string]any))))
}
