package k8seventsreceiver

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server compares the namespace of an event with that of its object only where the event has no
// eventTime (k8s.io/kubernetes v1.35, pkg/apis/core/validation/events.go).
func TestATenantSpeaksOfNoPodOfAnotherNamespace(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	forged := func(reason, uid string) *corev1.Event {
		e := about(reason, "train-3", uid, now)
		e.Namespace, e.EventTime = "evil", metav1.NewMicroTime(now)
		return e
	}
	w.Add(forged("TaintManagerEviction", ""))
	w.Add(about("FailedMount", "train-3", "a", now))
	requireTold(t, sink, append(uidAndNode, "gen_ai.training.job_id"), "mount_failure a gpu-17 llm-7")
}

func TestATenantEndsNoEvictionOfAnotherNamespace(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	w.Add(about("TaintManagerEviction", "train-3", "", now))
	forged := about("Scheduled", "train-3", "made-up", now)
	forged.Namespace, forged.EventTime = "evil", metav1.NewMicroTime(now)
	w.Add(forged)
	w.Add(about("FailedMount", "train-3", "a", now))
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17", "mount_failure a gpu-17")
}

// Each namespace shares in the room for evictions.
func TestNamespacesThatATenantMakesUpHideNothing(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}
	r := start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	w.Add(about("Evicted", "train-3", "a", now))
	for n := range mostRemembered {
		e := about("Evicted", "x", fmt.Sprint(n), now)
		e.Namespace, e.EventTime, e.InvolvedObject.Namespace = "evil", metav1.NewMicroTime(now), fmt.Sprint("made-up-", n)
		w.Add(e)
	}
	w.Add(about("FailedMount", "train-3", "a", now))
	requireTold(t, sink, uidAndNode, "pod_evicted a gpu-17", "mount_failure a gpu-17")
	require.True(t, r.evicted.any("ml", now), "the eviction of ml/train-3 is forgotten")
}

// Text of an event has no bound where it has no eventTime.
func TestScheduledEventsHoldNoMegabytes(t *testing.T) {
	p := newPods(newCluster(), nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range 512 {
		e := podEvent(scheduled, "Successfully assigned a to b"+strings.Repeat("x", 1<<20), time.Now())
		e.InvolvedObject.Name, e.InvolvedObject.UID = fmt.Sprint(n), "u"
		o := ofEvent(e)
		p.scheduled(&o)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(32<<20))
	runtime.KeepAlive(p)
}

func TestEvictionsInStorageAreBounded(t *testing.T) {
	c, sink, store := newCluster(), &consumertest.LogsSink{}, &memory{data: map[string][]byte{}}
	r := start(t, c, store, sink)
	w := nextWatch(t, c.watches)
	long := strings.Repeat("x", 1<<20)
	for n := range 64 {
		w.Add(about("Evicted", fmt.Sprint(n)+long, "a", time.Now()))
	}
	from := about("Evicted", "of-a-host", "a", time.Now())
	from.Source.Host = long
	preempted := about("Preempted", "on-a-node", "a", time.Now())
	preempted.Message = "Preempted by pod 7f3c on node " + long
	w.Add(from)
	w.Add(preempted)
	awaitRecords(t, sink, 66)
	require.NoError(t, r.Shutdown(t.Context()))
	require.Less(t, len(store.data[positionsKey]), 1<<20)
}

func TestAConditionIsToldBeforeTheEvictionThatItCaused(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(aPod("train-3", "a")), &consumertest.LogsSink{}
	c.has(node("gpu-17", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-12 * time.Minute)), Message: "Kubelet stopped posting node status."}))
	c.listed = []corev1.Event{*about("TaintManagerEviction", "train-3", "", now.Add(-40*time.Second))}
	start(t, c, nil, sink)
	var condition, eviction time.Time
	for _, r := range awaitRecords(t, sink, 2) {
		hint, _ := r.Attributes().Get("k8s.event.hint")
		if hint.Str() == "pod_evicted" {
			eviction = r.Timestamp().AsTime()
		} else {
			condition = r.Timestamp().AsTime()
		}
	}
	require.True(t, condition.Before(eviction), "condition %s, eviction %s", condition, eviction)
}

// The pod is gone, and its uid was never known.
func TestThePodInThePlaceIsNotToldAsTheOneThatLostIt(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	w.Add(about("TaintManagerEviction", "train-3", "", now.Add(-time.Minute)))
	requireTold(t, sink, uidAndNode, "pod_evicted  ")
	young := aPod("train-3", "new")
	young.CreationTimestamp, young.Spec.NodeName = metav1.NewTime(now.Add(-5*time.Second)), "gpu-18"
	require.NoError(t, c.Tracker().Add(young))
	w.Add(about("Scheduled", "train-3", "new", now))
	requireTold(t, sink, uidAndNode, "pod_evicted  ", "pod_replaced  ")
}
