package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var podNames = []string{"--set", "gateway.enabled=false,podNames.enabled=true"}

// newNamer is the agent as the chart renders it, with its token, which judges
// what it is sent and writes its verdicts to a file, too.
func newNamer(t *testing.T, s *server) *judge {
	t.Helper()
	j := &judge{&watcher{dir: t.TempDir(), metrics: hosttest.FreePort(t), from: s}, hosttest.FreePort(t), hosttest.FreePort(t), ""}
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(tierConfig(t, "agent", podNames...)), &config))
	// The probes are not what is tested, nor the pod's folder with its token.
	set(t, config, []any{"otlp"}, "service", "pipelines", "logs", "receivers")
	set(t, config, []any{"otlp"}, "service", "pipelines", "metrics", "receivers")
	set(t, config, []any{"health_check", "file_storage", "history"}, "service", "extensions")
	set(t, config, "kubeConfig", "processors", "k8s_attributes", "auth_type")
	set(t, config, map[string]any{
		"senders":   "agents", // the test speaks for the probes
		"protocols": map[string]any{"grpc": map[string]any{"endpoint": fmt.Sprintf("127.0.0.1:%d", j.port)}},
	}, "receivers", "otlp")
	set(t, config, map[string]any{"path": j.records(), "append": true}, "exporters", "file")
	set(t, config, []any{"terminal", "file"}, "service", "pipelines", "logs", "exporters")
	j.local(t, config, j.health)
	return j
}

// verdicts are those written so far, by their GPU.
func (j *judge) verdicts(t *testing.T) map[string]verdict.Verdict {
	t.Helper()
	all := map[string]verdict.Verdict{}
	for _, r := range recordsOf(t, j.records()) {
		if v, err := verdict.FromRecord(r); err == nil {
			all[v.Culprit["gpu"]] = v
		}
	}
	return all
}

// lost sends that GPUs were lost, in one batch, and waits for what the verdicts
// say of the pods that used them: namespace, name, workload, uid.
func (j *judge) lost(t *testing.T, pods map[string]types.UID) map[string]string {
	t.Helper()
	var records []map[string]any
	for gpu, uid := range pods {
		one := map[string]any{"kernelevents.xid": 79, "gpu.id": gpu, "gpu.vendor": "nvidia"}
		if uid != "" {
			one["k8s.pod.uid"] = string(uid)
		}
		records = append(records, one)
	}
	j.send(t, "gpu.xid", records...)
	told := map[string]string{}
	require.Eventually(t, func() bool {
		for gpu, v := range j.verdicts(t) {
			if _, asked := pods[gpu]; asked {
				told[gpu] = strings.Join([]string{v.Culprit["namespace"], v.Culprit["pod_name"], v.Culprit["workload"], v.Culprit["pod"]}, " ")
			}
		}
		return len(told) == len(pods)
	}, patience, 20*time.Millisecond, "no verdict: %s", tail(j.log))
	return told
}

// owned makes a pod on a node that something made.
func (s *server) owned(t *testing.T, name, node, kind, owner string, labels map[string]string) types.UID {
	t.Helper()
	s.bind(t, node, metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: "c0ffee", Controller: new(true)},
	}})
	return s.phase(t, name, corev1.PodRunning).UID
}

// TestVerdictsNamePods starts the agent while the API server is away: it judges,
// and knows uids alone. Then it is told the pods of its own node, with the rights
// that the chart gives it and no others.
func TestVerdictsNamePods(t *testing.T) {
	s := clusterWithRights(t, podNames...)
	token := s.kubeconfig(t, "test-tracecore")
	for _, namespace := range []string{release, "ml"} {
		require.Equal(t, []string{"list pods", "watch pods"}, s.rights(t, token, namespace))
	}
	s.node(t, "gpu-18")
	train := s.uid(t, "train-3")
	set := s.owned(t, "llama-worker-3", "gpu-17", "StatefulSet", "llama-worker", nil)
	job := s.owned(t, "llama-x7k2p", "gpu-17", "Job", "llama", nil)
	deployment := s.owned(t, "serve-5d4f8c7b9-abcde", "gpu-17", "ReplicaSet", "serve-5d4f8c7b9", map[string]string{"pod-template-hash": "5d4f8c7b9"})
	elsewhere := s.owned(t, "llama-worker-4", "gpu-18", "StatefulSet", "llama-worker", nil)

	s.api.kill()
	j := newNamer(t, s)
	j.start(t, "KUBECONFIG="+token, "K8S_NODE_NAME=gpu-17")
	j.ready(t, j.health)
	require.Equal(t, map[string]string{"0000:01:00.0": "   " + string(set)}, j.lost(t, map[string]types.UID{"0000:01:00.0": set}))
	s.startAPI(t)
	// Four pods, each under its uid and twice under its address.
	require.Eventually(t, func() bool { return j.metric("otelcol_otelsvc_k8s_pod_table_size") == 12 }, patience, 20*time.Millisecond, "no pods: %s", tail(j.log))

	told := j.lost(t, map[string]types.UID{
		"0000:11:00.0": set, "0000:12:00.0": job, "0000:13:00.0": deployment, "0000:14:00.0": train, "0000:15:00.0": elsewhere, "0000:16:00.0": "dead", "0000:17:00.0": "",
	})
	require.Equal(t, map[string]string{
		"0000:11:00.0": "ml llama-worker-3 statefulset/llama-worker " + string(set),
		"0000:12:00.0": "ml llama-x7k2p job/llama " + string(job),
		"0000:13:00.0": "ml serve-5d4f8c7b9-abcde deployment/serve " + string(deployment),
		"0000:14:00.0": "ml train-3  " + string(train),
		"0000:15:00.0": "   " + string(elsewhere), // the agent of that node knows it
		"0000:16:00.0": "   dead",
		"0000:17:00.0": "   ",
	}, told)
	require.Eventually(t, func() bool { // beside the file
		text, err := os.ReadFile(j.log)
		return err == nil && strings.Contains(string(text), "pod ml/llama-worker-3, workload statefulset/llama-worker")
	}, patience, 20*time.Millisecond)

	// The server goes away again: what is known stays known.
	s.api.kill()
	require.Equal(t, map[string]string{"0000:21:00.0": "ml llama-x7k2p job/llama " + string(job)}, j.lost(t, map[string]types.UID{"0000:21:00.0": job}))
}
