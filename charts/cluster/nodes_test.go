package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// stages are what kwok does in place of kubelets: `make cluster` takes them from
// its module, one is our own.
var stages = []string{
	"../../.cache/stages/node-initialize.yaml", "../../.cache/stages/node-heartbeat.yaml", "../../.cache/stages/node-not-ready.yaml",
	"../../.cache/stages/pod-ready.yaml", "../../.cache/stages/pod-delete.yaml", "testdata/pod-evicted.yaml",
}

// kubelets starts kwok. Nodes become ready and stay it by heartbeats, which patch
// their status as a kubelet does; pods that are bound to them run, and go when they
// are deleted.
func (s *server) kubelets(t *testing.T) {
	t.Helper()
	kwok, config := need(t, "../../.cache/bin/kwok"), filepath.Join(s.dir, "stages.yaml")
	var text []byte
	for _, path := range stages {
		file, err := os.ReadFile(path)
		require.NoError(t, err, "run `make cluster`")
		for _, stage := range decode(t, file) {
			if stage.GetName() == "node-heartbeat" { // each 20 s to 25 s, a kubelet's each 10 s
				require.NoError(t, unstructured.SetNestedMap(stage.Object, map[string]any{"durationMilliseconds": int64(1000)}, "spec", "delay"))
			}
			one, err := stage.MarshalJSON()
			require.NoError(t, err)
			text = append(append(text, "---\n"...), one...)
		}
	}
	require.NoError(t, os.WriteFile(config, text, 0o600))
	s.kwok = start(t, filepath.Join(s.dir, "kwok.log"), []string{"KWOK_WORKDIR=" + s.dir}, kwok,
		"--manage-all-nodes", "--kubeconfig", s.kubeconfigOf(t, s.kubelet), "--config", config)
}

// node registers a node and waits until it is ready.
func (s *server) node(t *testing.T, name string) {
	t.Helper()
	_, err := s.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.awaitNode(t, name, func(ready corev1.NodeCondition) bool { return ready.Status == corev1.ConditionTrue })
}

// awaitNode waits until the condition Ready of a node is as asked.
func (s *server) awaitNode(t *testing.T, name string, is func(ready corev1.NodeCondition) bool) {
	t.Helper()
	require.True(t, s.kwok.comes(t, func() bool {
		node, err := s.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && is(conditionOf(node, corev1.NodeReady))
	}), "kwok ended")
}

// conditionOf is a condition of a node, the zero value where it has none.
func conditionOf(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

// heartbeat waits for one that is written after now.
func (s *server) heartbeat(t *testing.T, name string) {
	t.Helper()
	node, err := s.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	last := conditionOf(node, corev1.NodeReady).LastHeartbeatTime
	s.awaitNode(t, name, func(ready corev1.NodeCondition) bool { return last.Before(&ready.LastHeartbeatTime) })
}

// ails makes the kubelet of a node say, with each heartbeat, that the node is not
// ready and why.
func (s *server) ails(t *testing.T, name string, kind corev1.NodeConditionType, message string) {
	t.Helper()
	const stage = "node-not-ready.stage.kwok.x-k8s.io"
	patch(t, s.CoreV1().Nodes().Patch, name, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"},"annotations":{%q:%q,%q:%q}}}`,
		stage, stage+"/type", kind, stage+"/message", message))
}

// recovers ends what ails a node, and waits until its kubelet says so.
func (s *server) recovers(t *testing.T, name string) {
	t.Helper()
	patch(t, s.CoreV1().Nodes().Patch, name, `{"metadata":{"labels":{"node-not-ready.stage.kwok.x-k8s.io":null}}}`)
	s.awaitNode(t, name, func(ready corev1.NodeCondition) bool { return ready.Status == corev1.ConditionTrue })
}

// dies ends the kubelets, and says of a node what the controller of nodes says
// after 40 s without a heartbeat: none runs here.
func (s *server) dies(t *testing.T, name string) {
	t.Helper()
	s.kwok.stop(t)
	patch(t, s.CoreV1().Nodes().Patch, name,
		`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status."}]}}`, "status")
}

// patch changes an object by a client's Patch.
func patch[T any](t *testing.T, by func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error), name, text string, subresources ...string) {
	t.Helper()
	_, err := by(t.Context(), name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
	require.NoError(t, err)
}

// pod makes a pod of a job, bound to a node.
func (s *server) pod(t *testing.T, name, node string) {
	t.Helper()
	s.bind(t, node, metav1.ObjectMeta{Name: name, Labels: map[string]string{"training.kubeflow.org/job-name": "llm-7"}})
}

// bind makes a pod that the scheduler has given a node.
func (s *server) bind(t *testing.T, node string, meta metav1.ObjectMeta) {
	t.Helper()
	_, err := s.CoreV1().Pods("ml").Create(t.Context(), &corev1.Pod{
		ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "train", Image: "registry.test/train:1"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// phase waits until the kubelet has brought a pod to it.
func (s *server) phase(t *testing.T, name string, phase corev1.PodPhase) (pod *corev1.Pod) {
	t.Helper()
	require.True(t, s.kwok.comes(t, func() bool {
		var err error
		pod, err = s.CoreV1().Pods("ml").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == phase
	}), "kwok ended")
	return pod
}
