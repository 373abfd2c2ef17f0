package cluster_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// chartRights are the chart's service accounts, roles and bindings, and the ledger.
func chartRights(t *testing.T, args ...string) (accounts, roles []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range render(t, append([]string{"--set", "gateway.enabled=true"}, args...)...) {
		switch object.GetKind() {
		case "ServiceAccount":
			accounts = append(accounts, object)
		case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			roles = append(roles, object)
		case "ConfigMap":
			if object.GetLabels()["app.kubernetes.io/component"] == "conditions" { // what the role is about
				roles = append(roles, object)
			}
		}
	}
	return accounts, roles
}

// serverWithRights has the chart's accounts and their rights.
func serverWithRights(t *testing.T, args ...string) *server {
	t.Helper()
	s := newServer(t)
	s.namespace(t, release, "privileged")
	s.namespace(t, "ml", "privileged")
	accounts, roles := chartRights(t, args...)
	s.grant(t, accounts, roles)
	return s
}

// clusterWithRights has, besides, a node and a pod of a training job that runs on
// it.
func clusterWithRights(t *testing.T, args ...string) *server {
	t.Helper()
	s := serverWithRights(t, args...)
	s.kubelets(t)
	s.node(t, "gpu-17")
	s.pod(t, "train-3", "gpu-17")
	s.phase(t, "train-3", corev1.PodRunning)
	return s
}

// say makes an event about a pod, as the kubelet's recorder does: kwok's stages
// could, but each needs its text beforehand.
func (s *server) say(t *testing.T, pod, reason, message string) {
	t.Helper()
	about, err := s.CoreV1().Pods("ml").Get(t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	now, of := metav1.Now(), corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ml", Name: pod, UID: about.UID}
	if reason == "TaintManagerEviction" {
		of.UID = "" // its controller names the pod alone (pkg/controller/tainteviction)
	}
	_, err = s.CoreV1().Events("ml").Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod + ".", Namespace: "ml"},
		InvolvedObject: of,
		Reason:         reason, Message: message, Type: corev1.EventTypeWarning, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "kubelet", Host: about.Spec.NodeName},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// TestEventsBecomeRecordsWithTheChartsRights is the receiver against the true
// API, with no more rights than the chart gives it.
func TestEventsBecomeRecordsWithTheChartsRights(t *testing.T) {
	s := clusterWithRights(t)
	w := newWatcher(t, s)
	w.start(t)
	said := []struct{ reason, message, hint string }{ // of an end, the record has words of its own
		{"Evicted", "The node was low on resource: memory.", "pod_evicted"},
		{"TaintManagerEviction", "Marking for deletion Pod ml/train-3", "pod_evicted"},
		{"Preempted", "Preempted by a pod", "pod_preempted"},
		{"FailedMount", "MountVolume.SetUp failed for volume data", "mount_failure"},
		{"BackOff", "Back-off restarting failed container train", "backoff"},
		{"BackOff", "Back-off pulling image registry.test/train:1", "image_pull_failed"},
		{"OOMKilling", "Memory cgroup out of memory: Killed process 7", "oom_killed"},
		{"FailedScheduling", "0/3 nodes are available", "unschedulable"},
		{"Unhealthy", "Liveness probe failed", "probe_failed"},
		{"FailedCreatePodSandBox", "failed to set up network", "sandbox_failed"},
		{"Scheduled", "Successfully assigned ml/train-3 to gpu-17", "pod_scheduled"},
		{"Started", "Started container train", "pod_started"},
		{"Started", "Started container train", ""},
	}
	var want []string
	for _, one := range said {
		s.say(t, "train-3", one.reason, one.message)
		if one.hint != "" {
			short := ""
			if one.reason == "Evicted" {
				short = "memory "
			}
			message := cmp.Or(map[string]string{
				"pod_scheduled": "pod ml/train-3 was scheduled, on gpu-17", "pod_started": "pod ml/train-3 has started, on gpu-17",
			}[one.hint], one.message)
			want = append(want, fmt.Sprintf("k8s.event %s Pod train-3 gpu-17 %sllm-7: %s", one.hint, short, message))
		}
	}
	w.await(t, want...)

	// A series of the newer API generation.
	_, err := s.EventsV1().Events("ml").Create(t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "series", Namespace: "ml"}, EventTime: metav1.NowMicro(),
		Series: &eventsv1.EventSeries{Count: 7, LastObservedTime: metav1.NowMicro()},
		Reason: "FailedMount", Note: "timed out waiting", Type: corev1.EventTypeWarning, Action: "Mount",
		Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "ml", Name: "train-3"}, ReportingController: "kubelet", ReportingInstance: "gpu-17",
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	want = append(want, "k8s.event mount_failure Pod train-3 gpu-17 llm-7: timed out waiting")
	w.await(t, want...)

	// Conditions turn bad, are said again by heartbeats, turn good and bad again.
	for _, message := range []string{"kubelet has insufficient memory available", "again"} {
		s.ails(t, "gpu-17", corev1.NodeMemoryPressure, message)
		want = append(want, "k8s.event node_pressure Node gpu-17 gpu-17 memory: "+message, "k8s.event node_unhealthy Node gpu-17 gpu-17: "+message)
		w.await(t, want...)
		s.heartbeat(t, "gpu-17")
		s.recovers(t, "gpu-17")
		want = append(want, "k8s.event node_recovered Node gpu-17 gpu-17: kubelet is posting ready status",
			"k8s.event node_recovered Node gpu-17 gpu-17 memory: kubelet has sufficient memory available")
		w.await(t, want...)
	}
	s.dies(t, "gpu-17")
	w.await(t, append(want, "k8s.event node_unhealthy Node gpu-17 gpu-17: Kubelet stopped posting node status.")...)
}

// TestEvictionOfAPod has a kubelet evict a pod, and the API another one and what
// is left of the first, as a drain does.
func TestEvictionOfAPod(t *testing.T) {
	s := clusterWithRights(t)
	w := newWatcher(t, s)
	w.start(t)
	patch(t, s.CoreV1().Pods("ml").Patch, "train-3", `{"metadata":{"annotations":{"evict":"memory"}}}`)
	// The pod may be gone when its event is read: what it was is asked at the first
	// event and remembered.
	evicted := "k8s.event pod_evicted Pod train-3 gpu-17 memory llm-7: The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi. "
	w.await(t, evicted)
	s.phase(t, "train-3", corev1.PodFailed)

	s.pod(t, "train-4", "gpu-17")
	s.phase(t, "train-4", corev1.PodRunning)
	for _, name := range []string{"train-3", "train-4"} {
		require.NoError(t, s.CoreV1().Pods("ml").EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ml"}}))
		require.Eventually(t, func() bool {
			_, err := s.CoreV1().Pods("ml").Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, patience, 20*time.Millisecond, "the evicted pod stays")
	}
	// By hand: the controller of taints says it, and none runs here.
	now := metav1.Now()
	_, err := s.CoreV1().Events("ml").Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "after", Namespace: "ml"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ml", Name: "train-3"},
		Reason:         "TaintManagerEviction", Message: "Marking for deletion Pod ml/train-3", FirstTimestamp: now, LastTimestamp: now,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.await(t, evicted, "k8s.event pod_evicted Pod train-3 gpu-17 llm-7: Marking for deletion Pod ml/train-3")
}

// TestWatchOutlivesTheServerAndItself kills the API server, restarts tracecore and
// kills it: each event is reported, and none twice but the last ones before the
// kill.
func TestWatchOutlivesTheServerAndItself(t *testing.T) {
	s := clusterWithRights(t)
	w := newWatcher(t, s)
	w.start(t)
	first := "k8s.event backoff Pod train-3 gpu-17 llm-7: first"
	s.say(t, "train-3", "BackOff", "first")
	w.await(t, first)

	s.api.kill()
	require.Eventually(t, func() bool { return w.metric("otelcol_receiver_k8sevents_watch_failures") > 0 }, patience, 50*time.Millisecond, "nobody noticed that the API server is away")
	s.startAPI(t)
	s.say(t, "train-3", "BackOff", "after the server")
	after := "k8s.event backoff Pod train-3 gpu-17 llm-7: after the server"
	w.await(t, first, after)

	w.stop(t)
	s.say(t, "train-3", "BackOff", "while tracecore was away")
	w.start(t)
	away := "k8s.event backoff Pod train-3 gpu-17 llm-7: while tracecore was away"
	w.await(t, first, after, away)

	w.kill()
	s.say(t, "train-3", "BackOff", "after the kill")
	w.start(t)
	require.Eventually(t, func() bool {
		for _, line := range w.seen(t) {
			if line == "k8s.event backoff Pod train-3 gpu-17 llm-7: after the kill" {
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond)
}

func (s *server) uid(t *testing.T, pod string) types.UID {
	t.Helper()
	p, err := s.CoreV1().Pods("ml").Get(t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	return p.UID
}

// TestWithoutTheRoleTheErrorNamesTheRight has the account and not the role; the
// role then comes while it runs.
func TestWithoutTheRoleTheErrorNamesTheRight(t *testing.T) {
	s := newServer(t)
	s.namespace(t, release, "privileged")
	s.namespace(t, "ml", "privileged")
	accounts, roles := chartRights(t)
	s.apply(t.Context(), t, accounts)
	s.pod(t, "train-3", "gpu-17")
	w := newWatcher(t, s)
	w.start(t)
	require.Eventually(t, func() bool { return w.metric("otelcol_receiver_k8sevents_watch_failures") > 0 }, patience, 50*time.Millisecond)
	names := regexp.MustCompile(`(events|nodes) is forbidden: User \\?"system:serviceaccount:gpu:test-tracecore-events\\?" cannot (list|watch) resource`)
	require.Eventually(t, func() bool { return names.MatchString(tail(w.log)) }, patience, 50*time.Millisecond, "it is counted before it is said")

	s.apply(t.Context(), t, roles)
	s.say(t, "train-3", "BackOff", "now it may")
	w.await(t, "k8s.event backoff Pod train-3 gpu-17 llm-7: now it may")
}

// TestNamedNamespacesAloneAreSeen has the narrower roles of a list of namespaces.
func TestNamedNamespacesAloneAreSeen(t *testing.T) {
	s := newServer(t)
	for _, name := range []string{release, "ml", "other"} {
		s.namespace(t, name, "privileged")
	}
	narrow := []string{"--set", "gateway.events.namespaces={ml}"}
	accounts, roles := chartRights(t, narrow...)
	s.grant(t, accounts, roles)
	s.pod(t, "train-3", "gpu-17")
	w := newWatcher(t, s, narrow...)
	w.start(t)
	s.say(t, "train-3", "BackOff", "in ml")
	w.await(t, "k8s.event backoff Pod train-3 gpu-17 llm-7: in ml")
	events := []string{"get pods", "list events", "list nodes", "watch events", "watch nodes"}
	require.Equal(t, events, s.rights(t, s.kubeconfig(t, "test-tracecore-events"), "ml"))
	require.Equal(t, []string{"list nodes", "watch nodes"}, s.rights(t, s.kubeconfig(t, "test-tracecore-events"), "other"))
	text, err := os.ReadFile(w.log)
	require.NoError(t, err)
	require.NotContains(t, string(text), "forbidden", "a right is missing")
}

// TestAgentsFindTheGatewayWithTheirRole runs the agent's load balancer with the
// agent's service account: replicas come, are found, and go.
func TestAgentsFindTheGatewayWithTheirRole(t *testing.T) {
	s := serverWithRights(t)
	w := &watcher{dir: t.TempDir(), metrics: hosttest.FreePort(t), from: s}
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(tierConfig(t, "agent")), &config))
	// Probes are not what is asked here.
	set(t, config, map[string]any{"otlp": map[string]any{"protocols": map[string]any{"grpc": map[string]any{"endpoint": "127.0.0.1:0"}}}}, "receivers")
	for _, signal := range []string{"logs", "metrics"} {
		set(t, config, []any{"otlp"}, "service", "pipelines", signal, "receivers")
	}
	set(t, config, []any{"health_check", "file_storage", "agent_auth"}, "service", "extensions")
	w.local(t, config, hosttest.FreePort(t))
	s.endpoints(t, "192.0.2.1", "192.0.2.2")
	w.start(t, "KUBECONFIG="+s.kubeconfig(t, "test-tracecore"))
	backends := func(n float64) func() bool {
		// Logs and metrics have a balancer each, of one name.
		return func() bool { return w.metric("otelcol_loadbalancer_num_backends") == n }
	}
	require.Eventually(t, backends(2), patience, 50*time.Millisecond, "the agent finds no gateway")
	s.endpoints(t, "192.0.2.1", "192.0.2.2", "192.0.2.3")
	require.Eventually(t, backends(3), patience, 50*time.Millisecond, "the agent does not see the new replica")
	require.NoFileExists(t, filepath.Join(w.dir, "records.json"))
	text, err := os.ReadFile(w.log)
	require.NoError(t, err)
	require.NotContains(t, string(text), "forbidden")
}

// endpoints are the ready replicas, as the EndpointSlice controller writes them.
func (s *server) endpoints(t *testing.T, addresses ...string) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "gateway-1", Namespace: release, Labels: map[string]string{discoveryv1.LabelServiceName: "test-tracecore-gateway"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	client := s.DiscoveryV1().EndpointSlices(release)
	if _, err := client.Create(t.Context(), slice, metav1.CreateOptions{}); err == nil {
		return
	}
	_, err := client.Update(t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(t, err)
}
