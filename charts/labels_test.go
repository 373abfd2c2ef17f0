package charts_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// panel is what a dashboard asks of Prometheus.
type panel struct {
	Title   string
	Targets []struct{ Expr, LegendFormat string }
}

// variables are those of Grafana, as a user has chosen them.
var variables = strings.NewReplacer("$__range", "1h", "$job", "llm", "$node", "gpu-17")

// boards are the dashboards that the chart brings, by file.
func boards(t *testing.T) map[string][]panel {
	t.Helper()
	rendered := objects(t, render(t, "--set", "monitoring.dashboard.enabled=true"))["ConfigMap/dashboard"]
	all := map[string][]panel{}
	for file, text := range at(t, rendered, "data").(map[string]any) {
		var board struct{ Panels []panel }
		require.NoError(t, json.Unmarshal([]byte(variables.Replace(text.(string))), &board), file)
		all[file] = board.Panels
	}
	return all
}

func panels(t *testing.T) (all []panel) {
	t.Helper()
	for _, board := range boards(t) {
		all = append(all, board...)
	}
	return all
}

var (
	grouped  = regexp.MustCompile(`\b(?:by|on|ignoring)\s*\(([^)]*)\)`)
	matched  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	inLegend = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)
	// given are the labels that a scrape adds, those of the PodMonitor among them,
	// and those that the collector's own helpers put on their metrics, which their
	// metadata does not list.
	given = []string{"pod", "namespace", "container", "instance", "job", "node", "tracecore", "exporter", "processor", "receiver", "__name__"}
)

// labelsIn are the labels that an expression groups or selects by.
func labelsIn(expression string) []string {
	var found []string
	for _, list := range grouped.FindAllStringSubmatch(expression, -1) {
		for _, label := range strings.Split(list[1], ",") {
			found = append(found, strings.TrimSpace(label))
		}
	}
	for _, one := range matched.FindAllStringSubmatch(expression, -1) {
		found = append(found, one[1])
	}
	return found
}

func TestLabelsAreFoundInExpressions(t *testing.T) {
	require.Equal(t, []string{"a", "b", "c", "d"}, labelsIn(`sum by (a, b) (rate(x{c="y",d!~"z"}[5m]))`))
}

// TestPanelsGroupByLabelsThatExist: a label that no metric of the expression has
// would make one line out of many, or none.
func TestPanelsGroupByLabelsThatExist(t *testing.T) {
	known := existing(t)
	for _, p := range panels(t) {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			labels := slices.Clone(given)
			for _, metric := range metricsIn(target.Expr) {
				labels = append(labels, known[metric]...)
			}
			used := labelsIn(target.Expr)
			require.Subset(t, labels, used, "%s: %s", p.Title, target.Expr)
			for _, shown := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, used, shown[1], "%s: the legend shows a label that the expression does not keep", p.Title)
			}
		}
	}
}

// TestAlertsSelectByLabelsThatExist is the same for alerts.
func TestAlertsSelectByLabelsThatExist(t *testing.T) {
	known := existing(t)
	_, groups := rules(t)
	for alert, rule := range alerts(t, groups) {
		expression := at(t, rule, "expr").(string)
		labels := append(slices.Clone(given), "counter") // counter is what label_replace makes
		for _, metric := range metricsIn(expression) {
			labels = append(labels, known[metric]...)
		}
		require.Subset(t, labels, labelsIn(expression), "%s: %s", alert, expression)
	}
}

// TestThePodMonitorGivesTheLabels that alerts and panels rely on.
func TestThePodMonitorGivesTheLabels(t *testing.T) {
	monitor := objects(t, render(t, "--set", "monitoring.podMonitor.enabled=true"))["PodMonitor/monitoring"]
	var targets []any
	for _, relabeling := range at(t, monitor, "spec", "podMetricsEndpoints", 0, "relabelings").([]any) {
		targets = append(targets, at(t, relabeling, "targetLabel"))
	}
	require.Subset(t, targets, []any{"tracecore", "node"})
}
