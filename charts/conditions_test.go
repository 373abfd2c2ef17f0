package charts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func withConditions(args ...string) []string {
	return append([]string{"--set", "nodeConditions.enabled=true"}, args...)
}

func TestNodeConditionsAreOffUntilAskedFor(t *testing.T) {
	for _, args := range [][]string{nil, withGateway()} {
		require.NotContains(t, render(t, args...), "k8snode")
		require.NotContains(t, render(t, args...), "nodes/status")
	}
}

// TestWhoJudgesWritesConditions gives the exporter, the token and the rights to
// the tier that runs the patterns, and to no other.
func TestWhoJudgesWritesConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		tier    string
		account string
		tokens  map[string]bool
	}{
		"agents":  {withConditions(), "agent", "test-tracecore", map[string]bool{"DaemonSet/agent": true}},
		"gateway": {withConditions("--set", "gateway.enabled=true,gateway.resolver=dns"), "gateway", "test-tracecore-gateway", map[string]bool{"DaemonSet/agent": false, "StatefulSet/gateway": true}},
	} {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, tc.args...))
			pipeline := at(t, config(t, tc.tier, tc.args...), "service", "pipelines", "logs")
			require.True(t, contains(at(t, pipeline, "exporters"), "k8snode"))
			require.Equal(t, "filter/verdicts", at(t, pipeline, "processors", 1), "a verdict that somebody sends drains no node")
			require.Equal(t, []any{rule("", "nodes/status", "patch")}, at(t, all["ClusterRole/conditions"], "rules"))
			require.Equal(t, []any{rule("", "events", "create")}, at(t, all["Role/conditions/default"], "rules"))
			for _, binding := range []string{"ClusterRoleBinding/conditions", "RoleBinding/conditions/default"} {
				require.Equal(t, tc.account, at(t, all[binding], "subjects", 0, "name"))
				require.Len(t, at(t, all[binding], "subjects"), 1)
			}
			for workload, token := range tc.tokens {
				require.Equal(t, token, at(t, all[workload], "spec", "template", "spec", "automountServiceAccountToken"), workload)
			}
			require.Equal(t, tc.account, at(t, all["ServiceAccount/"+tc.tier], "metadata", "name"))
		})
	}
	agent := config(t, "agent", withConditions("--set", "gateway.enabled=true")...)
	require.NotContains(t, at(t, agent, "exporters"), "k8snode")
}

func TestPodEventsTakeMoreRights(t *testing.T) {
	all := objects(t, render(t, withConditions("--set", "nodeConditions.podEvents=true")...))
	require.Equal(t, []any{rule("", "nodes/status", "patch"), rule("", "events", "create")}, at(t, all["ClusterRole/conditions"], "rules"))
	require.NotContains(t, all, "Role/conditions/default")
	require.Equal(t, true, at(t, config(t, "agent", withConditions("--set", "nodeConditions.podEvents=true")...), "exporters", "k8snode", "pod_events"))
}
