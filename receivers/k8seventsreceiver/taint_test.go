package k8seventsreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// aPod is a pod of the job llm-7 on gpu-17.
func aPod(name, uid string) *corev1.Pod {
	p := trainingPod()
	p.Name, p.UID = name, types.UID(uid)
	return p
}

// about is an event of a pod. Kubernetes names the pod of a taint by its name alone.
func about(reason, name, uid string, at time.Time) *corev1.Event {
	e := podEvent(reason, reason+" "+name, at)
	e.InvolvedObject.Name, e.InvolvedObject.UID = name, types.UID(uid)
	return e
}

// replacePod puts another pod into a cluster in the place of one.
func replacePod(t *testing.T, c *cluster, old string, another *corev1.Pod) {
	t.Helper()
	require.NoError(t, c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ml", old))
	require.NoError(t, c.Tracker().Add(another))
}

// requireTold waits for records, each a hint and the values of these attributes, and requires that there are no others.
func requireTold(t *testing.T, sink *consumertest.LogsSink, attributes []string, want ...string) {
	t.Helper()
	var told []string
	for _, r := range awaitRecords(t, sink, len(want)) {
		hint, _ := r.Attributes().Get("k8s.event.hint")
		one := hint.Str()
		for _, name := range attributes {
			value, _ := r.Attributes().Get(name)
			one += " " + value.Str()
		}
		told = append(told, one)
	}
	require.Equal(t, want, told)
}

var uidAndNode = []string{"k8s.pod.uid", "k8s.node.name"}

func TestAPodThatATaintEvictsIsTheOneOfItsName(t *testing.T) {
	now := time.Now()
	young := aPod("train-5", "c")
	young.CreationTimestamp = metav1.NewTime(now.Add(time.Minute))
	c, sink := newCluster(aPod("train-3", "a"), aPod("train-4", "b"), young), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	for _, name := range []string{"train-3", "train-4", "train-5", "gone"} {
		w.Add(about("TaintManagerEviction", name, "", now))
	}
	told := []string{"pod_evicted a gpu-17", "pod_evicted b gpu-17", "pod_evicted  ", "pod_evicted  "}
	requireTold(t, sink, uidAndNode, told...)
	replacePod(t, c, "train-3", aPod("train-3", "new-a"))
	replacePod(t, c, "train-4", aPod("train-4", "new-b"))
	w.Add(about("Scheduled", "train-4", "new-b", now))
	w.Add(about("Scheduled", "train-3", "new-a", now))
	requireTold(t, sink, uidAndNode, append(told, "pod_replaced b gpu-17", "pod_replaced a gpu-17")...)
}
