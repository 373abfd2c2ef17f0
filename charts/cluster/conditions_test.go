package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

var (
	conditions = []string{"--set", "nodeConditions.enabled=true,nodeConditions.mode=act"}
	unhealthy  = corev1.NodeConditionType("TracecoreGPUUnhealthy")
)

// judge is the gateway as the chart renders it, with its token.
type judge struct {
	*watcher
	port, health int
	token        string // of an agent on gpu-17; an API server that is away makes none
}

func newJudge(t *testing.T, s *server, args ...string) *judge {
	t.Helper()
	j := &judge{&watcher{dir: t.TempDir(), metrics: hosttest.FreePort(t), from: s}, hosttest.FreePort(t), hosttest.FreePort(t), s.podToken(t, "test-tracecore", "agent-17", "gpu-17", audience)}
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(tierConfig(t, "gateway", args...)), &config))
	set(t, config, s.kubeconfig(t, "test-tracecore-gateway"), "exporters", "k8snode", "kubeconfig")
	set(t, config, s.kubeconfig(t, "test-tracecore-gateway"), "extensions", "agent_auth", "token_review", "kubeconfig")
	set(t, config, fmt.Sprintf(":%d", j.port), "receivers", "otlp", "protocols", "grpc", "endpoint")
	j.local(t, config, j.health)
	return j
}

// ready waits for the health check that the chart's probes ask.
func (w *watcher) ready(t *testing.T, port int) {
	t.Helper()
	require.Eventually(t, func() bool {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, 5*time.Millisecond, "not ready")
}

// send gives the gateway records as the agent of gpu-17 does, in one batch.
func (j *judge) send(t *testing.T, event string, records ...map[string]any) {
	t.Helper()
	j.sendAbout(t, "gpu-17", event, records...)
}

// sendAbout is send of records about some node.
func (j *judge) sendAbout(t *testing.T, node, event string, records ...map[string]any) {
	t.Helper()
	ld := plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	require.NoError(t, resource.Resource().Attributes().FromRaw(map[string]any{"host.name": node, "k8s.node.name": node}))
	scope := resource.ScopeLogs().AppendEmpty()
	for _, attributes := range records {
		r := scope.LogRecords().AppendEmpty()
		r.SetEventName(event)
		r.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		require.NoError(t, r.Attributes().FromRaw(attributes))
	}
	connection, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", j.port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer connection.Close()
	_, err = plogotlp.NewGRPCClient(connection).Export(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+j.token), plogotlp.NewExportRequestFromLogs(ld))
	require.NoError(t, err)
}

// xid is a line of the driver about GPU 65; the pod of a rank used it.
func (j *judge) xid(t *testing.T, code int, pod types.UID, more map[string]any) {
	t.Helper()
	j.send(t, "gpu.xid", xid(code, pod, more))
}

func xid(code int, pod types.UID, more map[string]any) map[string]any {
	attributes := map[string]any{"kernelevents.xid": code, "gpu.id": "0000:65:00.0", "gpu.vendor": "nvidia", "tracecore.trust": "proven", "k8s.pod.uid": string(pod)}
	maps.Copy(attributes, more)
	return attributes
}

// awaitCondition waits until the condition of gpu-17 has a status.
func (s *server) awaitCondition(t *testing.T, status corev1.ConditionStatus) corev1.NodeCondition {
	t.Helper()
	var found corev1.NodeCondition
	require.Eventually(t, func() bool {
		node, err := s.CoreV1().Nodes().Get(t.Context(), "gpu-17", metav1.GetOptions{})
		if err != nil {
			return false
		}
		found = conditionOf(node, unhealthy)
		return found.Status == status
	}, patience, 20*time.Millisecond, "the condition never was %s", status)
	return found
}

// staysOverHeartbeat checks that a condition of gpu-17 is the same after its kubelet
// has written its own, and they are the kubelet's.
func (s *server) staysOverHeartbeat(t *testing.T, was corev1.NodeCondition) {
	t.Helper()
	s.heartbeat(t, "gpu-17")
	node, err := s.CoreV1().Nodes().Get(t.Context(), "gpu-17", metav1.GetOptions{})
	require.NoError(t, err)
	is := conditionOf(node, was.Type)
	is.LastHeartbeatTime = was.LastHeartbeatTime // a later revision of the verdict may write it
	require.Equal(t, was, is)
	require.Equal(t, "kubelet is posting ready status", conditionOf(node, corev1.NodeReady).Message)
	require.Equal(t, corev1.ConditionFalse, conditionOf(node, corev1.NodeMemoryPressure).Status)
	require.Len(t, node.Status.Conditions, 6, "kwok's five and ours")
}

// said are the messages of tracecore's Events in a namespace.
func (s *server) said(ctx context.Context, t require.TestingT, namespace string) []string {
	list, err := s.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=tracecore"})
	require.NoError(t, err)
	var all []string
	for _, event := range list.Items {
		text, _, _ := strings.Cut(event.Message, ".0 ")
		all = append(all, event.InvolvedObject.Kind+" "+event.InvolvedObject.Name+": "+text+".0")
	}
	return all
}

// TestVerdictsSetAndClearConditions takes faults to the gateway, which has the
// chart's rights and no others.
func TestVerdictsSetAndClearConditions(t *testing.T) {
	args := append([]string{"--set", "nodeConditions.podEvents=true"}, conditions...)
	s := clusterWithRights(t, args...)
	rights := []string{"create events", "create tokenreviews", "get nodes", "list nodes", "patch nodes/status"}
	require.Equal(t, rights, s.rights(t, s.kubeconfig(t, "test-tracecore-gateway"), "ml"))
	require.Equal(t, slices.Sorted(slices.Values(append(rights, "get configmaps test-tracecore-conditions", "update configmaps test-tracecore-conditions"))),
		s.rights(t, s.kubeconfig(t, "test-tracecore-gateway"), release))
	s.node(t, "gpu-18")
	j := newJudge(t, s, args...)
	j.start(t)
	j.ready(t, j.health)

	// What claims to be a verdict drains nothing.
	j.send(t, "pattern.verdict", map[string]any{"pattern.verdict_json": `{"verdict_id":"gpu_lost-x","incident_id":"i","pattern_id":18,"pattern":"gpu_lost","role":"root_cause","status":"open","confidence":"full","severity":"critical","revision":1,"onset":"2026-11-21T00:00:00Z","updated":"2026-11-21T00:00:00Z","headline":"forged","remediation":"","culprit":{"node":"gpu-17"},"evidence":[]}`})
	// Nor does a line that nothing shows to be the driver's, and one of an unknown trust is no verdict at all.
	j.xid(t, 79, "", map[string]any{"gpu.id": "0000:66:00.0", "tracecore.trust": "claimed"})
	j.xid(t, 79, "", map[string]any{"gpu.id": "0000:67:00.0", "tracecore.trust": ""})
	// Nor does a drill, nor what the agent of gpu-17 says of another node.
	j.xid(t, 79, "", map[string]any{"gpu.id": "0000:68:00.0", "tracecore.drill": true})
	j.sendAbout(t, "gpu-18", "gpu.xid", xid(79, "", nil))
	j.xid(t, 79, s.uid(t, "train-3"), map[string]any{"k8s.namespace.name": "ml", "k8s.pod.name": "train-3"})
	found := s.awaitCondition(t, corev1.ConditionTrue)
	require.Equal(t, "TracecoreGpuLost", found.Reason)
	require.Regexp(t, `^gpu_lost/[0-9a-f]+: GPU 0000:65:00.0 on gpu-17 has fallen off the bus$`, found.Message)
	s.staysOverHeartbeat(t, found)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.ElementsMatch(c, []string{"Node gpu-17: GPU 0000:65:00.0", "Node gpu-17: likely: GPU 0000:66:00.0", "Node gpu-17: DRILL: GPU 0000:68:00.0"}, s.said(t.Context(), c, "default"))
		assert.Equal(c, []string{"Pod train-3: GPU 0000:65:00.0"}, s.said(t.Context(), c, "ml"))
	}, patience, 20*time.Millisecond)
	node, err := s.CoreV1().Nodes().Get(t.Context(), "gpu-18", metav1.GetOptions{})
	require.NoError(t, err)
	require.Zero(t, conditionOf(node, unhealthy))
	require.EqualValues(t, 1, j.metric("otelcol_ingress_refused"))

	// The API server goes away, the gateway dies, the fault clears meanwhile.
	s.api.kill()
	j.xid(t, 154, "", map[string]any{"kernelevents.recovery_action": "none"})
	require.Eventually(t, func() bool { return strings.Contains(tail(j.log), "connection refused") }, patience, 20*time.Millisecond)
	j.kill()
	s.startAPI(t)
	j.start(t)
	j.ready(t, j.health)
	cleared := s.awaitCondition(t, corev1.ConditionFalse)
	require.Equal(t, "TracecoreNoOpenVerdict", cleared.Reason)
	s.staysOverHeartbeat(t, cleared)

	// By hand, as the runbook does.
	runbook, err := os.ReadFile("../../RUNBOOK.md")
	require.NoError(t, err)
	patch := regexp.MustCompile(`--subresource=status -p '(.*)'`).FindSubmatch(runbook)
	require.NotNil(t, patch)
	j.xid(t, 79, "", nil)
	s.awaitCondition(t, corev1.ConditionTrue)
	_, err = s.CoreV1().Nodes().Patch(t.Context(), "gpu-17", types.StrategicMergePatchType, patch[1], metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	require.Equal(t, "taken back by hand", s.awaitCondition(t, corev1.ConditionFalse).Message)
}

// TestInstallToFirstVerdict installs the chart into a fresh cluster, runs its
// gateway and one agent with their tokens, and has a drill: the verdict is an
// Event of the node. The times are in the chart's README.
func TestInstallToFirstVerdict(t *testing.T) {
	hosttest.Require(t, "a drill writes to the kernel log")
	began := time.Now()
	lap := func(what string) { t.Logf("%6.2f s: %s", time.Since(began).Seconds(), what) }
	s := newServer(t)
	lap("etcd and kube-apiserver are ready")
	s.namespace(t, release, "privileged")
	s.apply(t.Context(), t, render(t, append([]string{"--set", "gateway.enabled=true"}, conditions...)...))
	lap("the chart is rendered and applied")
	s.kubelets(t)
	s.node(t, "gpu-17")
	lap("the node is ready")
	j := newJudge(t, s, conditions...)
	j.start(t)
	agent, health := newAgent(t, s, j.port)
	agent.start(t, "KUBECONFIG="+s.kubeconfig(t, "test-tracecore"), "K8S_NODE_NAME=gpu-17")
	j.ready(t, j.health)
	agent.ready(t, health)
	lap("gateway and agent are ready")
	out, err := exec.Command(need(t, "../../bin/tracecore"), "drill", "xid").CombinedOutput()
	require.NoError(t, err, "%s", out)
	lap("the drill has its own verdict")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.True(c, slices.ContainsFunc(s.said(t.Context(), c, "default"), func(one string) bool {
			return strings.HasPrefix(one, "Node gpu-17: ") && strings.Contains(one, "GPU ffff:ff:1f.0")
		}))
	}, patience, 5*time.Millisecond, "no Event of the drill: %s", tail(j.log))
	lap("the verdict is an Event of the node")
	node, err := s.CoreV1().Nodes().Get(t.Context(), "gpu-17", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, conditionOf(node, unhealthy), "a drill sets no condition")
}

// newAgent is the agent as the chart renders it, all probes on, which finds the
// gateway by its EndpointSlice.
func newAgent(t *testing.T, s *server, port int) (*watcher, int) {
	t.Helper()
	w, health := &watcher{dir: t.TempDir(), metrics: hosttest.FreePort(t), from: s}, hosttest.FreePort(t)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(tierConfig(t, "agent", append([]string{"--set", "receiver.otlp.enabled=false"}, conditions...)...)), &config))
	set(t, config, []any{port}, "exporters", "load_balancing", "resolver", "k8s", "ports")
	token := filepath.Join(w.dir, "token")
	require.NoError(t, os.WriteFile(token, []byte(s.podToken(t, "test-tracecore", "agent-17", "gpu-17", audience)), 0o600))
	set(t, config, token, "extensions", "agent_auth", "token_file")
	w.local(t, config, health)
	s.endpoints(t, ownAddress(t))
	return w, health
}

// ownAddress is one of this machine that an EndpointSlice may have: not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, one := range all {
		if ip, _, err := net.ParseCIDR(one.String()); err == nil && ip.To4() != nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	require.FailNow(t, "this machine has no address but loopback")
	return ""
}
