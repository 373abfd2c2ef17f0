package charts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func withConditions(args ...string) []string {
	return append([]string{"--set", "nodeConditions.enabled=true"}, args...)
}

func nodeRules() []any {
	return []any{rule("", "nodes", "get", "list"), rule("", "nodes/status", "patch")}
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
			require.Equal(t, nodeRules(), at(t, all["ClusterRole/conditions"], "rules"))
			require.Equal(t, []any{map[string]any{
				"apiGroups": []any{""}, "resources": []any{"configmaps"}, "resourceNames": []any{"test-tracecore-conditions"}, "verbs": []any{"get", "update"},
			}}, at(t, all["Role/conditions"], "rules"))
			require.Nil(t, all["ConfigMap/conditions"]["data"], "an upgrade must leave what is in it")
			require.Equal(t, []any{rule("", "events", "create")}, at(t, all["Role/conditions/default"], "rules"))
			for _, binding := range []string{"ClusterRoleBinding/conditions", "RoleBinding/conditions", "RoleBinding/conditions/default"} {
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
	require.Equal(t, append(nodeRules(), rule("", "events", "create")), at(t, all["ClusterRole/conditions"], "rules"))
	require.NotContains(t, all, "Role/conditions/default")
	require.Equal(t, true, at(t, config(t, "agent", withConditions("--set", "nodeConditions.podEvents=true")...), "exporters", "k8snode", "pod_events"))
}

// TestConditionsAreObservedFirst: a mode that acts, and what it may do, is a choice.
func TestConditionsAreObservedFirst(t *testing.T) {
	for name, args := range map[string][]string{"agent": withConditions(), "gateway": withConditions("--set", "gateway.enabled=true")} {
		exporter := at(t, config(t, name, args...), "exporters", "k8snode")
		require.Equal(t, "observe", at(t, exporter, "mode"))
		require.Equal(t, map[string]any{"nodes": 5, "percent": 5, "window": "1h", "ledger": "gpu/test-tracecore-conditions"}, at(t, exporter, "breaker"))
		require.Equal(t, "10m", at(t, config(t, name, args...), "processors", "patterndetector", "repeat"), "conditions become Unknown after 35m without it")
	}
	agent := at(t, config(t, "agent", withConditions()...), "exporters", "k8snode")
	require.Equal(t, "${env:K8S_NODE_NAME}", at(t, agent, "node"), "an agent speaks of its own node alone")
}

// TestUninstallTakesConditionsBack has a job of its own rights, after the release has
// lost its own.
func TestUninstallTakesConditionsBack(t *testing.T) {
	all := objects(t, render(t, withConditions("--set", "gateway.enabled=true")...))
	for _, key := range []string{"ServiceAccount/uninstall", "ClusterRole/uninstall", "ClusterRoleBinding/uninstall", "Job/uninstall"} {
		require.Contains(t, all, key)
		require.Equal(t, "post-delete", at(t, all[key], "metadata", "annotations", "helm.sh/hook"), key)
	}
	require.Equal(t, nodeRules(), at(t, all["ClusterRole/uninstall"], "rules"))
	pod := at(t, all["Job/uninstall"], "spec", "template", "spec")
	require.Equal(t, []any{"conditions", "remove"}, at(t, pod, "containers", 0, "args"))
	require.Equal(t, "test-tracecore-uninstall", at(t, pod, "serviceAccountName"))
	require.NotContains(t, render(t), "uninstall")
}
