package charts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var withPodNames = []string{"--set", "podNames.enabled=true"}

func TestPodNamesTakeNoRightsUntilAskedFor(t *testing.T) {
	rendered := render(t)
	require.NotContains(t, rendered, "k8s_attributes")
	require.NotContains(t, objects(t, rendered), "ClusterRole/pods")
}

// TestAgentsNamePods: with a gateway or without, it is the agent that asks, for the
// pods of its own node, before anything reads the records.
func TestAgentsNamePods(t *testing.T) {
	for name, tc := range map[string]struct {
		args       []string
		processors []any
	}{
		"agents judge":   {nil, []any{"memory_limiter", "groupbyattrs", "k8s_attributes", "transform/pods", "rankjoin", "patterndetector"}},
		"and set states": {withConditions(), []any{"memory_limiter", "filter/verdicts", "groupbyattrs", "k8s_attributes", "transform/pods", "rankjoin", "patterndetector"}},
		"gateway judges": {withGateway("--set", "gateway.resolver=dns"), []any{"memory_limiter", "groupbyattrs", "k8s_attributes", "transform/pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(append([]string{}, withPodNames...), tc.args...)
			agent := config(t, "agent", args...)
			require.Equal(t, tc.processors, at(t, agent, "service", "pipelines", "logs", "processors"))
			require.Equal(t, "K8S_NODE_NAME", at(t, agent, "processors", "k8s_attributes", "filter", "node_from_env_var"))
			all := objects(t, render(t, args...))
			require.Equal(t, []any{rule("", "pods", "list", "watch")}, at(t, all["ClusterRole/pods"], "rules"))
			require.Equal(t, "test-tracecore", at(t, all["ClusterRoleBinding/pods"], "subjects", 0, "name"))
			require.Len(t, at(t, all["ClusterRoleBinding/pods"], "subjects"), 1)
			spec := at(t, all["DaemonSet/agent"], "spec", "template", "spec")
			require.Equal(t, true, at(t, spec, "automountServiceAccountToken"))
			require.Equal(t, "K8S_NODE_NAME", at(t, spec, "containers", 0, "env", 0, "name"))
		})
	}
	require.NotContains(t, at(t, config(t, "gateway", append(withGateway(), withPodNames...)...), "processors"), "k8s_attributes")
}
