package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSendersShowTheTokenOfTheirPod keeps audience, accounts and mounts of both ends as one.
func TestSendersShowTheTokenOfTheirPod(t *testing.T) {
	for name, tt := range map[string]struct {
		args           []string
		agents, relays []any
		senders        []string
	}{
		"gateway": {withGateway(), []any{"gpu/test-tracecore"}, []any{"gpu/test-tracecore-events"}, []string{"DaemonSet/agent", "StatefulSet/events"}},
		"kafka": {
			[]string{"--values", "tracecore/ci/kafka-values.yaml"}, nil, []any{"gpu/test-tracecore-events", "gpu/test-tracecore-gateway"},
			[]string{"StatefulSet/gateway", "StatefulSet/events"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, tt.args...))
			gateway := config(t, "gateway", tt.args...)
			require.Equal(t, "agent_auth", at(t, gateway, "receivers", "otlp", "protocols", "grpc", "auth", "authenticator"))
			require.Contains(t, at(t, gateway, "service", "extensions"), "agent_auth")
			review := at(t, gateway, "extensions", "agent_auth", "token_review")
			require.Equal(t, "test-tracecore-gateway.gpu", at(t, review, "audience"))
			require.ElementsMatch(t, tt.relays, at(t, review, "relays"))
			if tt.agents != nil {
				require.Equal(t, tt.agents, at(t, review, "agents"))
				require.Equal(t, "test-tracecore", at(t, all["DaemonSet/agent"], "spec", "template", "spec", "serviceAccountName"))
			}
			for _, tier := range []string{"DaemonSet/agent", "StatefulSet/gateway", "StatefulSet/events"} {
				spec := at(t, all[tier], "spec", "template", "spec")
				if !slices.Contains(tt.senders, tier) {
					require.NotContains(t, mounts(t, spec), "/var/run/secrets/tracecore", tier)
					continue
				}
				require.Contains(t, mounts(t, spec), "/var/run/secrets/tracecore", tier)
				require.Contains(t, at(t, spec, "volumes"), map[string]any{"name": "token", "projected": map[string]any{"sources": []any{
					map[string]any{"serviceAccountToken": map[string]any{"path": "token", "audience": at(t, review, "audience"), "expirationSeconds": 3600}},
				}}}, tier)
			}
		})
	}
	for tier, exporter := range map[string]string{"agent": "load_balancing", "events": "load_balancing"} {
		c := config(t, tier, withGateway()...)
		require.Equal(t, "agent_auth", at(t, c, "exporters", exporter, "protocol", "otlp", "auth", "authenticator"), tier)
		require.Equal(t, "/var/run/secrets/tracecore/token", at(t, c, "extensions", "agent_auth", "token_file"), tier)
		require.Contains(t, at(t, c, "service", "extensions"), "agent_auth", tier)
	}
	require.NotContains(t, at(t, config(t, "agent"), "extensions"), "agent_auth", "without a gateway it shows nobody a token")
}

// TestWhatWritesToKafkaIsBelievedOnlyWhenSaid: the gateway cannot see who wrote.
func TestWhatWritesToKafkaIsBelievedOnlyWhenSaid(t *testing.T) {
	says, err := helm(t, "--values", "tracecore/ci/kafka-values.yaml", "--set", "kafka.onlyAgentsWrite=false")
	require.Error(t, err)
	require.Contains(t, says, "set kafka.onlyAgentsWrite=true")
	gateway := config(t, "gateway", "--values", "tracecore/ci/kafka-values.yaml")
	require.Equal(t, "agents", at(t, gateway, "receivers", "kafka", "senders"))
	require.Nil(t, at(t, gateway, "receivers", "otlp", "senders"), "the replicas show their tokens")
}

// TestAnAgentListensOnLoopback: ports for pods are a choice, and have a policy.
func TestAnAgentListensOnLoopback(t *testing.T) {
	otlp := at(t, config(t, "agent"), "receivers", "otlp")
	require.Equal(t, "127.0.0.1:4317", at(t, otlp, "protocols", "grpc", "endpoint"))
	require.Equal(t, "127.0.0.1:4318", at(t, otlp, "protocols", "http", "endpoint"))
	require.Nil(t, at(t, otlp, "senders"))
	for _, more := range []string{"", ",networkPolicy.enabled=false"} {
		args := []string{"--set", "receiver.otlp.pods.enabled=true" + more}
		otlp = at(t, config(t, "agent", args...), "receivers", "otlp")
		require.Equal(t, ":4317", at(t, otlp, "protocols", "grpc", "endpoint"))
		require.Equal(t, "node", at(t, otlp, "senders"), "foreign, about this node")
		require.Contains(t, allowed(t, objects(t, render(t, args...))["NetworkPolicy/agent"]), "otlp-grpc")
	}
}

// allowed are the ports that a policy opens, each with those who may reach it.
func allowed(t *testing.T, policy any) map[string]string {
	t.Helper()
	require.Equal(t, []any{"Ingress"}, at(t, policy, "spec", "policyTypes"))
	ports := map[string]string{}
	rules, _ := at(t, policy, "spec", "ingress").([]any)
	for i := range rules {
		require.NotEmpty(t, at(t, rules[i], "from"), "from everywhere")
		for _, port := range at(t, rules[i], "ports").([]any) {
			ports[at(t, port, "port").(string)] = fmt.Sprint(at(t, rules[i], "from"))
		}
	}
	return ports
}

// TestPoliciesCoverEveryPort: what no rule names is closed, as is the health check.
func TestPoliciesCoverEveryPort(t *testing.T) {
	all := objects(t, render(t, withGateway()...))
	const own, everybody = "[map[podSelector:map[matchLabels:map[app.kubernetes.io/instance:test app.kubernetes.io/name:tracecore]]]]", "[map[namespaceSelector:map[]]]"
	for tier, want := range map[string]map[string]string{
		"agent": {"metrics": everybody}, "gateway": {"metrics": everybody, "otlp-grpc": own}, "events": {"metrics": everybody},
	} {
		policy := all["NetworkPolicy/"+tier]
		require.Equal(t, want, allowed(t, policy), tier)
		workload := "StatefulSet/" + tier
		if tier == "agent" {
			workload = "DaemonSet/agent"
		}
		require.Equal(t, at(t, all[workload], "spec", "selector", "matchLabels"), at(t, policy, "spec", "podSelector", "matchLabels"), tier)
	}
	closed := objects(t, render(t, withGateway("--set-json", "networkPolicy.metricsFrom=[]")...))
	require.Empty(t, allowed(t, closed["NetworkPolicy/agent"]))
	for kind := range maps.Keys(objects(t, render(t, withGateway("--set", "networkPolicy.enabled=false")...))) {
		require.NotContains(t, kind, "NetworkPolicy")
	}
}
