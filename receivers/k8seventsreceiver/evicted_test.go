package k8seventsreceiver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
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

// forget has the API server forget where a watch stands: a list comes, by name.
func (c *cluster) forget(t *testing.T, w *watch.FakeWatcher, events ...*corev1.Event) *watch.FakeWatcher {
	t.Helper()
	c.mu.Lock()
	lastVersion++
	c.version, c.listed = lastVersion, nil
	for _, e := range events {
		c.listed = append(c.listed, *e)
	}
	c.mu.Unlock()
	w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	return nextWatch(t, c.watches)
}

// A list after a gap tells what is new, in the order in which it happened.
func TestAGapTellsNothingTwice(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(aPod("train-a", "a"), aPod("train-b", "b"), aPod("train-c", "c")), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	evicted, replaced := about("Evicted", "train-b", "b", now), about("Scheduled", "train-a", "a", now)
	w.Add(evicted)
	w.Add(replaced)
	told := []string{"pod_evicted b gpu-17", "pod_replaced b gpu-17"}
	requireTold(t, sink, uidAndNode, told...)
	w = c.forget(t, w, replaced, evicted)
	w.Add(about("Scheduled", "train-c", "c", now)) // is in nobody's place

	ofGap, after := about("Evicted", "train-c", "c", now), about("Scheduled", "train-b", "b", now)
	w = c.forget(t, w, replaced, after, evicted, ofGap)
	told = append(told, "pod_evicted c gpu-17", "pod_replaced c gpu-17")
	requireTold(t, sink, uidAndNode, told...)
	w.Add(about("FailedMount", "train-a", "a", now))
	requireTold(t, sink, uidAndNode, append(told, "mount_failure a gpu-17")...)
}

func TestAPodThatWasScheduledBeforeAnEvictionIsNotInItsPlace(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(aPod("train-3", "a"), aPod("train-5", "b")), &consumertest.LogsSink{}
	before := []*corev1.Event{about("Scheduled", "train-3", "a", now.Add(-30*time.Minute)), about("Scheduled", "train-5", "b", now.Add(-30*time.Minute))}
	c.version = lastVersion
	start(t, c, nil, sink)
	w := c.forget(t, nextWatch(t, c.watches), before[0], about("Evicted", "train-3", "a", now), before[1])
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17")
	w.Add(about("Scheduled", "train-3", "new-a", now))
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17", "pod_replaced a gpu-17")
}

// A server that was restored from a backup counts from there again: versions say nothing then.
func TestAfterABackupTheTimeOfAnEventCounts(t *testing.T) {
	c, sink := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}
	c.version = lastVersion + 1_000_000
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	c.forget(t, w, about("Evicted", "train-3", "a", time.Now()), about("Evicted", "train-3", "a", time.Now().Add(-time.Hour)))
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17")
}

func TestAnEvictionIsRememberedOverARestart(t *testing.T) {
	c, sink, store := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}, &memory{data: map[string][]byte{}}
	r := start(t, c, store, sink)
	nextWatch(t, c.watches).Add(about("Evicted", "train-3", "a", time.Now()))
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17")
	require.NoError(t, r.Shutdown(t.Context()))
	start(t, c, store, sink)
	w := nextWatch(t, c.watches)
	replacePod(t, c, "train-3", aPod("train-3", "b"))
	w.Add(about("Scheduled", "train-3", "b", time.Now()))
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17", "pod_replaced a gpu-17")
}

func TestWhoIsInThePlaceOfAnEvictedPod(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		name, job, index string
		later            time.Duration
		is               bool
	}{
		"of its name":               {name: "llm-3-a", is: true},
		"of its job":                {name: "llm-3-b", job: "llm", is: true},
		"of its index":              {name: "llm-3-b", job: "llm", index: "worker/3", is: true},
		"of another index":          {name: "llm-5-b", job: "llm", index: "worker/5"},
		"of another job":            {name: "bert-3-b", job: "bert", index: "worker/3"},
		"of no job":                 {name: "web"},
		"an hour later":             {name: "llm-3-a", later: time.Hour, is: true},
		"after pod_evicted is over": {name: "llm-3-a", later: time.Hour + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var e evicted
			o := ofEvent(about("Evicted", "llm-3-a", "a", now))
			o.job = "llm"
			e.note(&o, place{index: "worker/3"}, now)
			is := e.any("ml", now.Add(tc.later))
			if is {
				_, is = e.take(&occurrence{namespace: "ml", name: tc.name, objectUID: "b"}, place{job: tc.job, index: tc.index})
			}
			require.Equal(t, tc.is, is)
		})
	}
}

func TestWhichPodOfItsJobOneIs(t *testing.T) {
	for want, labels := range map[string]map[string]string{
		"3":          {"batch.kubernetes.io/job-completion-index": "3"},
		"1/worker/2": {"batch.kubernetes.io/job-completion-index": "1", "jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": "2"},
		"worker/0":   {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"},
		"ps/1":       {"volcano.sh/task-spec": "ps", "volcano.sh/task-index": "1"},
		"":           {"app": "web"},
	} {
		require.Equal(t, want, indexOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}}))
	}
}

// The API server tells whole seconds: an event of the second in which the receiver stopped is told.
func TestAnEventOfTheSecondOfTheStopIsTold(t *testing.T) {
	c, sink, store := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}, &memory{data: map[string][]byte{}}
	stop := time.Now().Truncate(time.Second).Add(300 * time.Millisecond)
	text, err := json.Marshal(positionsState{Streams: map[string]string{}, Time: stop})
	require.NoError(t, err)
	require.NoError(t, store.Set(t.Context(), positionsKey, text))
	c.listed = []corev1.Event{*about("Evicted", "train-3", "a", stop.Truncate(time.Second))}
	start(t, c, store, sink)
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17")
}

// A pod may be gone when its event is read: its scheduler has said where it ran.
func TestThePodThatIsGoneHadANode(t *testing.T) {
	now := time.Now()
	assigned := func(name, uid, node string) *corev1.Event {
		e := about("Scheduled", name, uid, now.Add(-30*time.Minute))
		e.Message = "Successfully assigned ml/" + name + " to " + node
		return e
	}
	c, sink := newCluster(aPod("train-5", "new")), &consumertest.LogsSink{}
	c.listed = []corev1.Event{*assigned("train-3", "a", "gpu-3"), *assigned("train-4", "b", "gpu-4")}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	w.Add(assigned("train-5", "old", "gpu-5"))
	forged := assigned("train-3", "a", "gpu-9")
	forged.InvolvedObject.Namespace = "evil"
	w.Add(forged)
	w.Add(about("Evicted", "train-3", "a", now))
	w.Add(about("TaintManagerEviction", "train-4", "", now))
	w.Add(about("Preempted", "train-5", "old", now)) // another has its name
	preempted := about("Preempted", "train-6", "c", now)
	preempted.Message = "Preempted by pod 7f3c on node gpu-6"
	w.Add(preempted)
	w.Add(about("Evicted", "train-7", "d", now))
	requireTold(t, sink, append(uidAndNode, "gen_ai.training.job_id"),
		"pod_evicted a gpu-3 ", "pod_evicted b gpu-4 ", "pod_preempted old gpu-5 ", "pod_preempted c gpu-6 ", "pod_evicted d  ")
}

// What was asked of a pod while it was there counts for an event that names it without its uid, too.
func TestThePodThatIsGoneHadAJob(t *testing.T) {
	c, sink := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	w.Add(about("FailedMount", "train-3", "a", time.Now()))
	awaitRecords(t, sink, 1)
	require.NoError(t, c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ml", "train-3"))
	w.Add(about("TaintManagerEviction", "train-3", "", time.Now()))
	requireTold(t, sink, append(uidAndNode, "gen_ai.training.job_id"), "mount_failure a gpu-17 llm-7", "pod_evicted a gpu-17 llm-7")
}

// Pods without end in one namespace have nobody forget those in another, and what the API server answered stands.
func TestThePodsOfOneNamespaceHideNoneOfAnother(t *testing.T) {
	p := newPods(newCluster(aPod("train-3", "a")), createDefaultConfig().(*Config).JobLabels)
	own := occurrence{namespace: "ml", name: "train-3", objectUID: "a"}
	want := place{uid: "a", node: "gpu-17", job: "llm-7"}
	require.Equal(t, want, p.where(t.Context(), &own))
	p.client = newCluster()
	for n := range 2 * mostPods {
		p.scheduled(&occurrence{reason: scheduled, kind: "Pod", namespace: "tenant", name: fmt.Sprint(n), objectUID: "a", message: "Successfully assigned tenant/1 to gpu-1"})
	}
	p.scheduled(&occurrence{reason: scheduled, kind: "Pod", namespace: "ml", name: "train-3", objectUID: "a", message: "Successfully assigned ml/train-3 to gpu-1"})
	require.Len(t, p.known, mostPods)
	require.Len(t, p.newest, mostPods)
	require.Equal(t, want, p.where(t.Context(), &own))
}
