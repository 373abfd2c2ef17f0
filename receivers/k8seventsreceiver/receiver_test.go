package k8seventsreceiver

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

func TestEvictionBecomesARecordWithNodeAndJob(t *testing.T) {
	c, sink := newCluster(trainingPod()), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	at := time.Now().Truncate(time.Second)
	w.Add(podEvent("Scheduled", "Successfully assigned ml/train-3 to gpu-17", at))
	w.Add(podEvent("Evicted", "The node was low on resource: memory", at))
	r := awaitRecords(t, sink, 1)[0]
	require.Equal(t, "k8s.event", r.EventName())
	require.Equal(t, plog.SeverityNumberError, r.SeverityNumber())
	require.Equal(t, at.UTC(), r.Timestamp().AsTime())
	attributes := r.Attributes().AsRaw()
	require.NotEmpty(t, attributes["k8s.event.uid"])
	delete(attributes, "k8s.event.uid")
	require.Equal(t, map[string]any{
		"k8s.event.hint": "pod_evicted", "k8s.event.reason": "Evicted", "k8s.event.message": "The node was low on resource: memory", "k8s.node.pressure": "memory",
		"k8s.event.count": int64(1), "k8s.object.kind": "Pod", "k8s.object.name": "train-3", "k8s.namespace.name": "ml",
		"k8s.pod.name": "train-3", "k8s.pod.uid": "0f0e", "k8s.node.name": "gpu-17", "gen_ai.training.job_domain": "pods in namespace ml", "gen_ai.training.job_id": "llm-7", "tracecore.trust": "claimed",
	}, attributes)
}

func TestPodOfTheSameNameIsAnother(t *testing.T) {
	pod := trainingPod()
	pod.UID = "beef"
	c, sink := newCluster(pod), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	nextWatch(t, c.watches).Add(podEvent("Evicted", "", time.Now()))
	_, found := awaitRecords(t, sink, 1)[0].Attributes().Get("k8s.node.name")
	require.False(t, found)
}

func TestOldEventsAreNotNews(t *testing.T) {
	c, sink := newCluster(), &consumertest.LogsSink{}
	c.listed = []corev1.Event{
		*podEvent("Evicted", "an hour ago", time.Now().Add(-time.Hour)),
		*podEvent("Evicted", "just now", time.Now()),
	}
	start(t, c, nil, sink)
	nextWatch(t, c.watches)
	require.Equal(t, "just now", awaitRecords(t, sink, 1)[0].Body().Str())
}

func TestWatchGoesOnWhereItStoodAfterARestart(t *testing.T) {
	c, sink, store := newCluster(), &consumertest.LogsSink{}, &memory{data: map[string][]byte{}}
	r := start(t, c, store, sink)
	last := podEvent("Evicted", "first", time.Now())
	nextWatch(t, c.watches).Add(last)
	awaitRecords(t, sink, 1)
	require.Eventually(t, func() bool { return r.positions.get("events/") == last.ResourceVersion }, testPatience, time.Millisecond)
	require.NoError(t, r.Shutdown(context.Background()))

	start(t, c, store, sink)
	nextWatch(t, c.watches).Add(podEvent("Evicted", "second", time.Now()))
	awaitRecords(t, sink, 2)
	require.Equal(t, []string{"100", last.ResourceVersion}, c.askedAt())
}

func TestForgottenPositionBeginsWithAList(t *testing.T) {
	c, sink := newCluster(), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	c.mu.Lock()
	c.version, c.listed = 500, []corev1.Event{*podEvent("Evicted", "while it was gone", time.Now())}
	c.mu.Unlock()
	w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	nextWatch(t, c.watches)
	require.Equal(t, "while it was gone", awaitRecords(t, sink, 1)[0].Body().Str())
	require.Equal(t, []string{"100", "500"}, c.askedAt())
}

func TestConditionIsReportedWhenItTurns(t *testing.T) {
	c, sink := newCluster(), &consumertest.LogsSink{}
	pressure := func(status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: status, LastTransitionTime: metav1.Now(), Message: "kubelet has insufficient memory"}
	}
	start(t, c, nil, sink)
	w := nextWatch(t, c.nodesAt)
	w.Modify(node("gpu-17", pressure(corev1.ConditionFalse)))
	w.Modify(node("gpu-17", pressure(corev1.ConditionTrue)))
	w.Modify(node("gpu-17", pressure(corev1.ConditionTrue))) // a heartbeat
	w.Modify(node("gpu-17", pressure(corev1.ConditionFalse)))
	w.Modify(node("gpu-17", pressure(corev1.ConditionTrue)))
	w.Modify(node("gpu-18", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}))
	w.Modify(node("gpu-18", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}))
	w.Modify(node("gpu-18", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}))
	all := awaitRecords(t, sink, 5)
	for i, want := range []string{"node_pressure memory", "node_recovered memory", "node_pressure memory", "node_unhealthy ", "node_recovered "} {
		hint, _ := all[i].Attributes().Get("k8s.event.hint")
		kind, _ := all[i].Attributes().Get("k8s.node.pressure")
		require.Equal(t, want, hint.Str()+" "+kind.Str())
	}
	require.Equal(t, plog.SeverityNumberInfo, all[1].SeverityNumber())
}

// A node under memory pressure freezes: its kubelet says no more, and the controller of nodes sets
// every condition to Unknown. The pressure has not gone.
func TestAConditionThatNobodyKnowsIsNotOver(t *testing.T) {
	c := newConditions()
	turns := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) string {
		o := ofCondition("gpu-17", corev1.NodeCondition{Type: kind, Status: status})
		if !c.turned(&o) {
			return ""
		}
		return string(o.meaning.Hint) + " " + o.meaning.Pressure
	}
	for kind, short := range map[corev1.NodeConditionType]string{"MemoryPressure": "memory", "DiskPressure": "disk", "PIDPressure": "pid"} {
		require.Empty(t, turns(kind, "Unknown"))
		require.Equal(t, "node_pressure "+short, turns(kind, "True"))
		require.Empty(t, turns(kind, "Unknown"))
		require.Empty(t, turns(kind, "True"), "it is what it was")
		require.Empty(t, turns(kind, "Unknown"))
		require.Equal(t, "node_recovered "+short, turns(kind, "False"))
		require.Empty(t, turns(kind, "Unknown"))
		require.Empty(t, turns(kind, "False"))
	}
	require.Empty(t, turns(corev1.NodeReady, "True"))
	require.Equal(t, "node_unhealthy ", turns(corev1.NodeReady, "Unknown"))
	require.Empty(t, turns(corev1.NodeReady, "False"))
	require.Equal(t, "node_recovered ", turns(corev1.NodeReady, "True"))
	require.Empty(t, turns("NetworkUnavailable", "True"))
	require.Empty(t, turns("NetworkUnavailable", "False"))
}

// Who watched before has told of a pressure, and did not see its end.
func TestAConditionThatEndedBetweenTwoWatchesIsTold(t *testing.T) {
	stopped := time.Now()
	turns := func(c *conditions, at time.Time) bool {
		o := ofCondition("gpu-17", corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(at)})
		return c.turned(&o)
	}
	require.False(t, turns(newConditions(), stopped.Add(time.Minute)), "nobody has watched before")
	c := newConditions()
	c.since = stopped
	require.False(t, turns(c, stopped.Add(-time.Minute)), "it was seen")
	c = newConditions()
	c.since = stopped
	require.True(t, turns(c, stopped.Add(time.Minute)))
	require.False(t, turns(c, stopped.Add(time.Minute)))
}

// A condition stands until it turns: where it turned before a pattern would take it, it is told as of now.
func TestAConditionThatTurnedLongAgoIsTold(t *testing.T) {
	now := time.Now()
	c, sink := newCluster(), &consumertest.LogsSink{}
	disk := func(status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago)), Message: "the kubelet says so"}
	}
	c.has(node("gpu-17", disk(corev1.ConditionTrue, 20*time.Hour)), node("gpu-18", disk(corev1.ConditionTrue, time.Minute)))
	start(t, c, nil, sink)
	w := nextWatch(t, c.nodesAt)
	w.Modify(node("gpu-17", disk(corev1.ConditionFalse, time.Hour))) // the API server was away
	w.Modify(node("gpu-18", disk(corev1.ConditionFalse, time.Second)))
	for i, r := range awaitRecords(t, sink, 4) {
		ago := [...]time.Duration{20 * time.Hour, time.Minute, time.Hour, time.Second}[i]
		then, at := now.Add(-ago), r.Timestamp().AsTime()
		if ago > time.Minute {
			require.WithinRange(t, at, now.Add(-longestAgo), time.Now().Add(-longestAgo))
			require.Equal(t, "the kubelet says so (since "+then.UTC().Format(time.RFC3339)+")", r.Body().Str())
			continue
		}
		require.WithinDuration(t, then, at, 0)
		require.Equal(t, "the kubelet says so", r.Body().Str())
	}
}

// A node that joins long after the receiver has come back was never bad.
func TestANodeThatJoinsHasNotRecovered(t *testing.T) {
	c, sink, store := newCluster(), &consumertest.LogsSink{}, &memory{data: map[string][]byte{}}
	r := start(t, c, store, sink)
	nextWatch(t, c.watches).Add(podEvent("Evicted", "", time.Now()))
	awaitRecords(t, sink, 1)
	nextWatch(t, c.nodesAt)
	require.NoError(t, r.Shutdown(t.Context()))
	start(t, c, store, sink)
	w := nextWatch(t, c.nodesAt)
	disk := func(status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: status, LastTransitionTime: metav1.NewTime(time.Now().Add(time.Hour))}
	}
	w.Add(node("gpu-18", disk(corev1.ConditionFalse)))
	w.Modify(node("gpu-18", disk(corev1.ConditionTrue)))
	got, _ := awaitRecords(t, sink, 2)[1].Attributes().Get("k8s.event.hint")
	require.Equal(t, "node_pressure", got.Str())
}

// A node that is removed is short of nothing any more. Another of its name begins anew.
func TestWhatWasBadOfANodeEndsWithIt(t *testing.T) {
	c, sink := newCluster(), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.nodesAt)
	disk := func(status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: status, LastTransitionTime: metav1.Now()}
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	w.Modify(node("gpu-17", disk(corev1.ConditionTrue), ready))
	w.Delete(node("gpu-17", disk(corev1.ConditionUnknown)))
	w.Delete(node("gpu-18"))
	w.Modify(node("gpu-17", disk(corev1.ConditionFalse), ready))
	w.Modify(node("gpu-17", disk(corev1.ConditionTrue)))
	all := awaitRecords(t, sink, 3)
	for i, want := range []string{"node_pressure disk", "node_recovered disk", "node_pressure disk"} {
		hint, _ := all[i].Attributes().Get("k8s.event.hint")
		kind, _ := all[i].Attributes().Get("k8s.node.pressure")
		require.Equal(t, want, hint.Str()+" "+kind.Str())
	}
	require.Equal(t, "the node was removed from the cluster", all[1].Body().Str())
}

// A node that was removed while nobody watched is told once, and what stands of the others is as it was.
func TestANodeThatWasRemovedWhileNobodyWatchedIsOver(t *testing.T) {
	disk := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
	good := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}
	const bad = "node_pressure gpu-"
	told := func(t *testing.T, sink *consumertest.LogsSink, want ...string) {
		t.Helper()
		for i, r := range awaitRecords(t, sink, len(want)) {
			hint, _ := r.Attributes().Get("k8s.event.hint")
			node, _ := r.Attributes().Get("k8s.node.name")
			require.Equal(t, want[i], hint.Str()+" "+node.Str())
		}
	}
	gap := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
	t.Run("in a gap of the watch", func(t *testing.T) {
		c, sink := newCluster(), &consumertest.LogsSink{}
		c.has(node("gpu-17", disk), node("gpu-18", disk), node("gpu-19", good))
		start(t, c, nil, sink)
		w := nextWatch(t, c.nodesAt)
		told(t, sink, bad+"17", bad+"18")
		c.has(node("gpu-18", disk))
		w.Error(gap)
		w = nextWatch(t, c.nodesAt)
		told(t, sink, bad+"17", bad+"18", "node_recovered gpu-17")
		w.Error(gap)
		w = nextWatch(t, c.nodesAt)
		w.Delete(node("gpu-17", disk))
		w.Add(node("gpu-17", disk))
		told(t, sink, bad+"17", bad+"18", "node_recovered gpu-17", bad+"17")
		require.Equal(t, "the node was removed from the cluster", awaitRecords(t, sink, 4)[2].Body().Str())
	})
	for name, left := range map[string]string{"gone": "", "beside another": "gpu-20", "another of its name": "gpu-17"} {
		t.Run("before the receiver came back: "+name, func(t *testing.T) {
			c, sink, store := newCluster(), &consumertest.LogsSink{}, &memory{data: map[string][]byte{}}
			c.has(node("gpu-17", disk), node("gpu-18", disk))
			r := start(t, c, store, sink)
			nextWatch(t, c.nodesAt)
			told(t, sink, bad+"17", bad+"18")
			require.NoError(t, r.Shutdown(t.Context()))
			c.has(node("gpu-18", disk))
			if left != "" {
				c.has(node("gpu-18", disk), node(left, good))
			}
			r = start(t, c, store, sink)
			nextWatch(t, c.nodesAt)
			told(t, sink, bad+"17", bad+"18", bad+"18", "node_recovered gpu-17")
			require.NoError(t, r.Shutdown(t.Context()))
			start(t, c, store, sink)
			nextWatch(t, c.nodesAt)
			told(t, sink, bad+"17", bad+"18", bad+"18", "node_recovered gpu-17", bad+"18")
		})
	}
}

// An evicted pod never returns: another one takes its place, of its name or of its job.
func TestAPodInThePlaceOfAnEvictedOneIsTold(t *testing.T) {
	pod := func(name, uid, job string) *corev1.Pod {
		p := trainingPod()
		p.Name, p.UID = name, types.UID(uid)
		p.Labels = map[string]string{"training.kubeflow.org/job-name": job}
		return p
	}
	c, sink := newCluster(pod("train-3", "old-3", "llm"), pod("worker-a", "old-a", "llm"), pod("other", "other", "another")), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	w := nextWatch(t, c.watches)
	event := func(reason, name, uid string) *corev1.Event {
		e := podEvent(reason, reason, time.Now())
		e.InvolvedObject.Name, e.InvolvedObject.UID = name, types.UID(uid)
		return e
	}
	replace := func(old, name, uid, job string) {
		require.NoError(t, c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ml", old))
		require.NoError(t, c.Tracker().Add(pod(name, uid, job)))
	}
	w.Add(event("Scheduled", "train-3", "old-3"))
	w.Add(event("Evicted", "train-3", "old-3"))
	w.Add(event("Evicted", "train-3", "old-3"))
	w.Add(event("Evicted", "worker-a", "old-a"))
	w.Add(event("Scheduled", "other", "other"))
	awaitRecords(t, sink, 3)
	replace("train-3", "train-3", "new-3", "llm")
	w.Add(event("Scheduled", "train-3", "new-3"))
	awaitRecords(t, sink, 4)
	replace("worker-a", "worker-b", "new-b", "llm")
	w.Add(event("Scheduled", "worker-b", "new-b"))
	w.Add(event("Scheduled", "worker-b", "new-b"))
	all := awaitRecords(t, sink, 5)
	for i, want := range [...]string{"pod_evicted old-3", "pod_evicted old-3", "pod_evicted old-a", "pod_replaced old-3", "pod_replaced old-a"} {
		hint, _ := all[i].Attributes().Get("k8s.event.hint")
		uid, _ := all[i].Attributes().Get("k8s.pod.uid")
		require.Equal(t, want, hint.Str()+" "+uid.Str())
	}
	require.Contains(t, all[4].Body().Str(), "pod ml/worker-b was scheduled in the place of worker-a")
	w.Add(event("Evicted", "other", "other"))
	require.Len(t, awaitRecords(t, sink, 6), 6, "nothing else was told")
}

func TestHostileMessageIsCutToText(t *testing.T) {
	c, sink := newCluster(), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = "é"[i%2]
	}
	nextWatch(t, c.watches).Add(podEvent("Evicted", "x"+string(long), time.Now()))
	body := awaitRecords(t, sink, 1)[0].Body().Str()
	require.LessOrEqual(t, len(body), longestMessage)
	require.NotContains(t, body, "\uFFFD")
}

func TestUnreachableServerIsTriedAgain(t *testing.T) {
	c, sink := newCluster(), &consumertest.LogsSink{}
	refusals := 3
	s := &stream{pause: time.Millisecond, name: "events", moved: func(string) {}, opened: func() {}, failed: func(error) { refusals-- }}
	ctx, cancel := context.WithCancel(t.Context())
	s.client = eventsOf(c, func() error {
		if refusals > 0 {
			return errors.New("connection refused")
		}
		cancel()
		return nil
	})
	s.run(ctx)
	require.Zero(t, refusals)
	require.Empty(t, sink.AllLogs())
}

func TestServerThatGoesAwayIsSaidAndItsReturnToo(t *testing.T) {
	c := newCluster()
	away := errors.New("connection refused")
	told := make(chan error, 64)
	opened := make(chan struct{}, 64)
	s := &stream{name: "events", moved: func(string) {}, opened: func() { opened <- struct{}{} }, failed: func(err error) { told <- err }}
	refuse := false
	s.client = c.events("")
	begin := s.client.WatchFuncWithContext
	s.client.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if refuse = !refuse; !refuse {
			return nil, away // every second watch
		}
		return begin(ctx, o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	s.seen = func(context.Context, runtime.Object, source) {}
	go func() {
		s.run(ctx)
		close(ended)
	}()
	<-opened
	nextWatch(t, c.watches).Stop()
	require.ErrorIs(t, <-told, away)
	<-opened
	cancel()
	<-ended
	require.Empty(t, told)
}

func TestPermanentRefusalIsCountedAndTheWatchGoesOn(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	settings := receivertest.NewNopSettings(metadata.Type)
	settings.TelemetrySettings = telemetry.NewTelemetrySettings()
	c := newCluster()
	r, err := newReceiver(settings, createDefaultConfig().(*Config), consumertest.NewErr(consumererror.NewPermanent(errors.New("no"))),
		func(*Config) (api, error) { return c, nil })
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	w := nextWatch(t, c.watches)
	w.Add(podEvent("Evicted", "", time.Now()))
	w.Add(podEvent("Evicted", "", time.Now()))
	require.Eventually(t, func() bool {
		m, err := telemetry.GetMetric("otelcol_receiver_k8sevents_records_dropped")
		return err == nil && sum(m) == 2
	}, testPatience, time.Millisecond)
	require.NoError(t, r.Shutdown(context.Background()))
	require.NoError(t, r.Shutdown(context.Background()))
}

func TestShutdownBeforeStart(t *testing.T) {
	r, err := newReceiver(receivertest.NewNopSettings(metadata.Type), createDefaultConfig().(*Config), consumertest.NewNop(), (*Config).client)
	require.NoError(t, err)
	require.NoError(t, r.Shutdown(context.Background()))
}

func TestMissingStorageExtensionIsSaid(t *testing.T) {
	config := createDefaultConfig().(*Config)
	config.Storage = &storageID
	r, err := newReceiver(receivertest.NewNopSettings(metadata.Type), config, consumertest.NewNop(), func(*Config) (api, error) { return newCluster(), nil })
	require.NoError(t, err)
	require.ErrorContains(t, r.Start(t.Context(), componenttest.NewNopHost()), "name it under service::extensions")
	require.NoError(t, r.Shutdown(context.Background()))
}

// A node is short of disk and told so, falls silent (all conditions Unknown), and the receiver starts again meanwhile.
func TestAPressureOfASilentNodeIsKnownAfterARestart(t *testing.T) {
	turned := func(c *conditions, status corev1.ConditionStatus) bool {
		o := ofCondition("gpu-17", corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: status})
		return c.turned(&o)
	}
	restart := func() *conditions {
		before := newConditions()
		require.True(t, turned(before, corev1.ConditionTrue))
		require.False(t, turned(before, corev1.ConditionUnknown))
		after := newConditions()
		after.before = before.known()
		require.False(t, turned(after, corev1.ConditionUnknown)) // the list
		require.Empty(t, after.listed(map[string]bool{"gpu-17": true}))
		return after
	}
	t.Run("it is kept", func(t *testing.T) {
		require.Equal(t, map[string][]string{"gpu-17": {"DiskPressure"}}, restart().known())
	})
	t.Run("its node is removed", func(t *testing.T) {
		require.Equal(t, []string{"DiskPressure"}, restart().forget("gpu-17"))
	})
	t.Run("it is over", func(t *testing.T) {
		require.True(t, turned(restart(), corev1.ConditionFalse))
	})
}
