package charts_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func withGateway(args ...string) []string {
	return append([]string{"--set", "gateway.enabled=true"}, args...)
}

func TestWithoutAGatewayTheAgentJudgesAndAsksNobody(t *testing.T) {
	for kind := range objects(t, render(t)) {
		require.Contains(t, []string{"ConfigMap/agent", "DaemonSet/agent", "ServiceAccount/agent", "NetworkPolicy/agent", "Pod/test"}, kind)
	}
}

func TestOnlyTheGatewayRunsThePatterns(t *testing.T) {
	for tier, want := range map[string]bool{"agent": false, "gateway": true, "events": false} {
		c := config(t, tier, withGateway()...)
		processors := at(t, c, "service", "pipelines", "logs", "processors")
		require.Equal(t, want, contains(processors, "patterndetector"), tier)
		require.Equal(t, want, contains(processors, "rankjoin"), tier)
		require.Equal(t, want, contains(at(t, c, "service", "extensions"), "history"), "%s: who makes verdicts keeps them", tier)
		require.Equal(t, !want, contains(at(t, c, "service", "pipelines", "logs", "exporters"), "load_balancing"), tier)
	}
	require.Equal(t, "history", at(t, config(t, "gateway", withGateway()...), "processors", "patterndetector", "history"))
	require.Equal(t, "history", at(t, config(t, "agent"), "processors", "patterndetector", "history"))
}

// TestAgentsAloneTellThatTheyWatch: the pods of the gateway and of the events run on nodes
// whose agents tell.
func TestAgentsAloneTellThatTheyWatch(t *testing.T) {
	for tier, want := range map[string]bool{"agent": true, "gateway": false, "events": false} {
		require.Equal(t, want, contains(at(t, config(t, tier, withGateway()...), "service", "pipelines", "logs", "receivers"), "heartbeat"), tier)
	}
	require.True(t, contains(at(t, config(t, "agent"), "service", "pipelines", "logs", "receivers"), "heartbeat"))
}

func contains(list any, item string) bool {
	for _, one := range list.([]any) {
		if one == item {
			return true
		}
	}
	return false
}

// TestLoadBalancersFindTheService keeps the name they resolve, the Service and
// the ports as one.
func TestLoadBalancersFindTheService(t *testing.T) {
	all := objects(t, render(t, withGateway()...))
	service := all["Service/gateway"]
	require.Equal(t, "None", at(t, service, "spec", "clusterIP"))
	require.Equal(t, at(t, service, "metadata", "name"), at(t, all["StatefulSet/gateway"], "spec", "serviceName"))
	require.Equal(t, at(t, service, "spec", "selector"), at(t, all["StatefulSet/gateway"], "spec", "selector", "matchLabels"))
	address := at(t, service, "metadata", "name").(string) + ".gpu"
	for _, tier := range []string{"agent", "events"} {
		balancer := at(t, config(t, tier, withGateway()...), "exporters", "load_balancing")
		require.Equal(t, []any{"gen_ai.training.job_id"}, at(t, balancer, "routing_attributes"))
		require.Equal(t, address, at(t, balancer, "resolver", "k8s", "service"))
		require.Equal(t, []any{at(t, service, "spec", "ports", 0, "port")}, at(t, balancer, "resolver", "k8s", "ports"))
		require.Equal(t, "file_storage", at(t, balancer, "sending_queue", "storage"))
		byName := at(t, config(t, tier, withGateway("--set", "gateway.resolver=dns")...), "exporters", "load_balancing", "resolver", "dns")
		require.Equal(t, address+".svc", at(t, byName, "hostname"))
	}
}

// TestRightsAreNoWiderThanTheirUse lists every right of every tier.
func TestRightsAreNoWiderThanTheirUse(t *testing.T) {
	all := objects(t, render(t, withGateway()...))
	require.Equal(t, []any{rule("discovery.k8s.io", "endpointslices", "list", "watch")}, at(t, all["Role/gateway"], "rules"))
	require.Equal(t, []any{rule("", "nodes", "list", "watch"), rule("", "events", "list", "watch"), rule("", "pods", "get")}, at(t, all["ClusterRole/events"], "rules"))
	require.Equal(t, []any{rule("authentication.k8s.io", "tokenreviews", "create")}, at(t, all["ClusterRole/senders"], "rules"))
	require.Equal(t, "test-tracecore-gateway", at(t, all["ClusterRoleBinding/senders"], "subjects", 0, "name"))
	for tier, token := range map[string]bool{"DaemonSet/agent": true, "StatefulSet/gateway": true, "StatefulSet/events": true} {
		require.Equal(t, token, at(t, all[tier], "spec", "template", "spec", "automountServiceAccountToken"), tier)
	}
}

func rule(group, resource string, verbs ...any) map[string]any {
	return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
}

func TestNamedNamespacesNarrowTheRights(t *testing.T) {
	all := objects(t, render(t, withGateway("--set", "gateway.events.namespaces={ml,research}")...))
	require.Equal(t, []any{rule("", "nodes", "list", "watch")}, at(t, all["ClusterRole/events"], "rules"))
	for _, namespace := range []string{"ml", "research"} {
		require.Len(t, at(t, all["Role/events/"+namespace], "rules"), 2)
		require.Equal(t, "gpu", at(t, all["RoleBinding/events/"+namespace], "subjects", 0, "namespace"))
	}
}

func TestNamesNeedNoRightsAtAgents(t *testing.T) {
	all := objects(t, render(t, withGateway("--set", "gateway.resolver=dns,gateway.events.enabled=false")...))
	for kind, object := range all {
		if strings.HasPrefix(kind, "RoleBinding") || strings.HasPrefix(kind, "ClusterRoleBinding") {
			require.Equal(t, "test-tracecore-gateway", at(t, object, "subjects", 0, "name"), kind)
			require.Len(t, at(t, object, "subjects"), 1, kind)
		}
	}
	require.Equal(t, false, at(t, all["DaemonSet/agent"], "spec", "template", "spec", "automountServiceAccountToken"))
}

// TestGatewayKeepsToTheRestrictedStandard checks what Pod Security's restricted
// profile asks of a pod.
func TestGatewayKeepsToTheRestrictedStandard(t *testing.T) {
	all := objects(t, render(t, withGateway()...))
	for _, tier := range []string{"StatefulSet/gateway", "StatefulSet/events"} {
		spec := at(t, all[tier], "spec", "template", "spec")
		require.Equal(t, true, at(t, spec, "securityContext", "runAsNonRoot"), tier)
		require.Equal(t, "RuntimeDefault", at(t, spec, "securityContext", "seccompProfile", "type"), tier)
		container := at(t, spec, "containers", 0, "securityContext")
		require.Equal(t, false, at(t, container, "allowPrivilegeEscalation"), tier)
		require.Equal(t, []any{"ALL"}, at(t, container, "capabilities", "drop"), tier)
		require.Equal(t, true, at(t, container, "readOnlyRootFilesystem"), tier)
		require.Nil(t, at(t, spec, "hostPID"), tier)
		for _, volume := range at(t, spec, "volumes").([]any) {
			require.NotContains(t, volume, "hostPath", tier)
		}
		require.Equal(t, "state", at(t, all[tier], "spec", "volumeClaimTemplates", 0, "metadata", "name"))
	}
}

// TestABalancerPausesBetweenAttempts: its exporter has no intervals of its own,
// and tries without any.
func TestABalancerPausesBetweenAttempts(t *testing.T) {
	for _, tier := range []string{"agent", "events"} {
		retry := at(t, config(t, tier, withGateway()...), "exporters", "load_balancing", "retry_on_failure")
		require.Equal(t, "0s", at(t, retry, "max_elapsed_time"))
		for _, key := range []string{"initial_interval", "max_interval", "multiplier"} {
			require.NotEmpty(t, at(t, retry, key), "%s: %s", tier, key)
		}
	}
}

func TestTLSIsOnBothSides(t *testing.T) {
	args := withGateway("--set", "gateway.tls.secretName=gateway-tls")
	tls := at(t, config(t, "agent", args...), "exporters", "load_balancing", "protocol", "otlp", "tls")
	require.Equal(t, "test-tracecore-gateway.gpu.svc", at(t, tls, "server_name_override"))
	require.Nil(t, at(t, tls, "insecure"))
	require.Contains(t, at(t, config(t, "gateway", args...), "receivers", "otlp", "protocols", "grpc", "tls"), "client_ca_file")
	all := objects(t, render(t, args...))
	for _, tier := range []string{"DaemonSet/agent", "StatefulSet/gateway", "StatefulSet/events"} {
		require.Contains(t, mounts(t, at(t, all[tier], "spec", "template", "spec")), "/etc/tracecore-tls", tier)
	}
}

func mounts(t *testing.T, spec any) []string {
	t.Helper()
	var paths []string
	for _, mount := range at(t, spec, "containers", 0, "volumeMounts").([]any) {
		paths = append(paths, at(t, mount, "mountPath").(string))
	}
	return paths
}
