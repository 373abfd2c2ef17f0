package k8seventsreceiver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

// ofContainer is an event of a container of a pod.
func ofContainer(container, reason, message, name, uid string) *corev1.Event {
	e := about(reason, name, uid, time.Now())
	e.Message, e.InvolvedObject.FieldPath = message, "spec.containers{"+container+"}"
	return e
}

const noImage = `Failed to pull image "registry/train:1": not found`

func runs(container, name, uid string) *corev1.Event {
	return ofContainer(container, "Started", "Container started", name, uid)
}

func TestTheEndOfAPodThatDoesNotStart(t *testing.T) {
	now := time.Now()
	indexed := func(name, uid string) *corev1.Pod {
		p := aPod(name, uid)
		p.Labels["training.kubeflow.org/replica-index"] = "3"
		return p
	}
	for name, tc := range map[string]struct {
		pods []*corev1.Pod // beside train-3 of the uid a
		says []*corev1.Event
		want []string
	}{
		"a node is found": {
			says: []*corev1.Event{about("FailedScheduling", "train-3", "a", now), about("Scheduled", "train-3", "a", now), about("Scheduled", "train-3", "a", now)},
			want: []string{"unschedulable a", "pod_scheduled a"},
		},
		"the image comes": {
			says: []*corev1.Event{ofContainer("train", "Failed", noImage, "train-3", "a"), about("Scheduled", "train-3", "a", now), runs("train", "train-3", "a"), runs("train", "train-3", "a")},
			want: []string{"image_pull_failed a", "pod_started a"},
		},
		"that a node was found was not seen": {
			says: []*corev1.Event{about("FailedScheduling", "train-3", "a", now), runs("train", "train-3", "a")},
			want: []string{"unschedulable a", "pod_started a"},
		},
		"its sandbox is made": {
			says: []*corev1.Event{about("FailedCreatePodSandBox", "train-3", "a", now), runs("train", "train-3", "a")},
			want: []string{"sandbox_failed a", "pod_started a"},
		},
		"its container starts again and again": {
			says: []*corev1.Event{ofContainer("train", "BackOff", "Back-off restarting failed container", "train-3", "a"), runs("train", "train-3", "a"),
				ofContainer("train", "BackOff", "Back-off restarting failed container", "train-3", "a"), runs("train", "train-3", "a")},
			want: []string{"backoff a", "pod_started a", "backoff a", "pod_started a"},
		},
		"another container starts": {
			says: []*corev1.Event{ofContainer("train", "Failed", noImage, "train-3", "a"), runs("logs", "train-3", "a"), runs("train", "train-3", "a")},
			want: []string{"image_pull_failed a", "pod_started a"},
		},
		"one of two containers starts": {
			says: []*corev1.Event{ofContainer("train", "Failed", noImage, "train-3", "a"), ofContainer("logs", "Failed", noImage, "train-3", "a"),
				runs("train", "train-3", "a"), about("BackOff", "train-3", "a", now), runs("logs", "train-3", "a")},
			want: []string{"image_pull_failed a", "image_pull_failed a", "backoff a", "pod_started a"},
		},
		"another pod has its name": {
			pods: []*corev1.Pod{aPod("train-3", "b")},
			says: []*corev1.Event{about("UnexpectedAdmissionError", "train-3", "a", now), runs("train", "train-3", "b")},
			want: []string{"device_unavailable a", "pod_started a"},
		},
		"another pod has its index": {
			pods: []*corev1.Pod{indexed("train-3-x", "b"), aPod("train-4", "c")},
			says: []*corev1.Event{about("FailedScheduling", "train-3", "a", now), about("Scheduled", "train-4", "c", now), about("Scheduled", "train-3-x", "b", now)},
			want: []string{"unschedulable a", "pod_scheduled a"},
		},
		"a pod of no job": {
			pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ml", UID: "w"}}},
			says: []*corev1.Event{about("FailedScheduling", "web", "w", now), about("Scheduled", "web", "w", now), runs("web", "web", "w")},
			want: []string{"unschedulable w"},
		},
		"in the place of an evicted one": {
			pods: []*corev1.Pod{indexed("train-3-x", "b")},
			says: []*corev1.Event{about("Evicted", "train-3", "a", now), about("FailedScheduling", "train-3-x", "b", now), about("Scheduled", "train-3-x", "b", now)},
			want: []string{"pod_evicted a", "unschedulable b", "pod_replaced a", "pod_scheduled b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, sink := newCluster(indexed("train-3", "a")), &consumertest.LogsSink{}
			start(t, c, nil, sink)
			w := nextWatch(t, c.watches)
			for i, e := range tc.says {
				if e.Reason == "UnexpectedAdmissionError" {
					e.Message = "Allocate failed due to no healthy devices present"
				}
				if i == 1 { // its job was asked for by then
					awaitRecords(t, sink, 1)
					for _, p := range tc.pods {
						put(t, c, p)
					}
				}
				if i == 0 && len(tc.pods) == 1 && tc.pods[0].Name == "web" {
					put(t, c, tc.pods[0])
				}
				w.Add(e)
			}
			w.Add(about("FailedMount", "train-3", "a", now)) // all before it has been read
			requireTold(t, sink, []string{"k8s.pod.uid"}, append(tc.want, "mount_failure a")...)
		})
	}
}

// put has a cluster hold a pod, in the place of one of its name.
func put(t *testing.T, c *cluster, p *corev1.Pod) {
	t.Helper()
	_ = c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ml", p.Name)
	require.NoError(t, c.Tracker().Add(p))
}

func TestAPodThatDoesNotStartIsRememberedOverARestart(t *testing.T) {
	c, sink, store := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}, &memory{data: map[string][]byte{}}
	r := start(t, c, store, sink)
	nextWatch(t, c.watches).Add(ofContainer("train", "Failed", noImage, "train-3", "a"))
	requireTold(t, sink, uidAndNode, "image_pull_failed a gpu-17")
	require.NoError(t, r.Shutdown(t.Context()))
	start(t, c, store, sink)
	nextWatch(t, c.watches).Add(runs("train", "train-3", "a"))
	requireTold(t, sink, append(uidAndNode, "gen_ai.training.job_id", "k8s.event.message"),
		"image_pull_failed a gpu-17 llm-7 "+noImage, "pod_started a gpu-17 llm-7 pod ml/train-3 has started, on gpu-17")
}

// A gap of the watch: what started before it failed ends nothing.
func TestAStartBeforeAFailureEndsNothing(t *testing.T) {
	c, sink := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	before := runs("train", "train-3", "a")
	w.Add(before)
	failed := ofContainer("train", "BackOff", "Back-off restarting failed container", "train-3", "a")
	w.Add(failed)
	requireTold(t, sink, []string{"k8s.pod.uid"}, "backoff a")
	w = c.forget(t, w, before, failed)
	w.Add(runs("train", "train-3", "a"))
	requireTold(t, sink, []string{"k8s.pod.uid"}, "backoff a", "pod_started a")
}

// Who writes events in his own namespace ends nothing in another, and has nobody forget what is told there.
func TestOneNamespaceEndsNothingInAnother(t *testing.T) {
	now := time.Now()
	f := &failing{}
	fail := func(namespace, name string) {
		f.note(&occurrence{meaning: hint.Meaning{Hint: hint.Unschedulable}, namespace: namespace, name: name, objectUID: name, job: "llm"}, place{}, now)
	}
	fail("ml", "train-3")
	for n := range 2 * mostRemembered {
		fail("tenant", fmt.Sprint(n))
	}
	require.Len(t, f.known(), mostRemembered)
	require.Empty(t, f.take(&occurrence{reason: scheduled, namespace: "tenant", name: "train-3", objectUID: "train-3"}, place{job: "llm"}))
	require.Len(t, f.take(&occurrence{reason: scheduled, namespace: "ml", name: "train-3", objectUID: "train-3"}, place{}), 1)
	require.False(t, f.any("ml", now))
	require.False(t, f.any("tenant", now.Add(rememberedFor+time.Second)))
}

// A failure that is heard of again is as young as that.
func TestAFailureThatLastsIsRemembered(t *testing.T) {
	now := time.Now()
	f := &failing{}
	for range 3 {
		f.note(&occurrence{meaning: hint.Meaning{Hint: hint.BackOff}, namespace: "ml", name: "train-3", job: "llm"}, place{}, now)
		now = now.Add(rememberedFor - time.Minute)
	}
	require.True(t, f.any("ml", now))
	require.Len(t, f.known(), 1)
}
