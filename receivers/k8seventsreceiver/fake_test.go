package k8seventsreceiver

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

// testPatience bounds every wait; only a test that fails comes to its end.
const testPatience = hosttest.Patience

// cluster is an API server that lists what it is told and whose watches the test
// writes to.
type cluster struct {
	*fake.Clientset

	mu      sync.Mutex
	listed  []corev1.Event
	nodeNow []corev1.Node
	version int
	asked   []string // resource versions that event watches began at
	watches chan *watch.FakeWatcher
	nodesAt chan *watch.FakeWatcher
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{
		Clientset: fake.NewClientset(objects...), version: 100,
		watches: make(chan *watch.FakeWatcher, 16), nodesAt: make(chan *watch.FakeWatcher, 16),
	}
	c.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return true, &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}, Items: c.listed}, nil
	})
	c.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return true, &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}, Items: c.nodeNow}, nil
	})
	c.PrependWatchReactor("events", func(action clienttesting.Action) (bool, watch.Interface, error) {
		c.mu.Lock()
		c.asked = append(c.asked, action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		c.mu.Unlock()
		w := watch.NewFakeWithChanSize(64, false)
		c.watches <- w
		return true, w, nil
	})
	c.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFakeWithChanSize(64, false)
		c.nodesAt <- w
		return true, w, nil
	})
	return c
}

// has says which nodes there are now.
func (c *cluster) has(nodes ...*corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodeNow = nil
	for _, one := range nodes {
		c.nodeNow = append(c.nodeNow, *one)
	}
}

func (c *cluster) askedAt() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.asked...)
}

// nextWatch waits until the receiver watches.
func nextWatch(t *testing.T, watches chan *watch.FakeWatcher) *watch.FakeWatcher {
	t.Helper()
	select {
	case w := <-watches:
		return w
	case <-time.After(testPatience):
		require.FailNow(t, "the receiver does not watch")
		return nil
	}
}

var lastVersion = 1000

// podEvent is an event of a pod, newer than every one before it.
func podEvent(reason, message string, at time.Time) *corev1.Event {
	lastVersion++
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e" + strconv.Itoa(lastVersion), Namespace: "ml", UID: types.UID("uid-" + strconv.Itoa(lastVersion)), ResourceVersion: strconv.Itoa(lastVersion)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ml", Name: "train-3", UID: "0f0e"},
		Reason:         reason, Message: message, Count: 1,
		FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
	}
}

func node(name string, conditions ...corev1.NodeCondition) *corev1.Node {
	lastVersion++
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(lastVersion)}, Status: corev1.NodeStatus{Conditions: conditions}}
}

func trainingPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "train-3", Namespace: "ml", UID: "0f0e", Labels: map[string]string{"training.kubeflow.org/job-name": "llm-7"}},
		Spec:       corev1.PodSpec{NodeName: "gpu-17"},
	}
}

// memory is a storage extension that outlives its receivers.
type memory struct {
	component.StartFunc
	component.ShutdownFunc
	mu   sync.Mutex
	data map[string][]byte
}

func (m *memory) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return m, nil
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[key], nil
}

func (m *memory) Set(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data[key] = value
	return nil
}

func (m *memory) Delete(context.Context, string) error               { return nil }
func (m *memory) Batch(context.Context, ...*storage.Operation) error { return nil }
func (m *memory) Close(context.Context) error                        { return nil }

type extensions map[component.ID]component.Component

func (e extensions) GetExtensions() map[component.ID]component.Component { return e }

var storageID = component.MustNewID("memory")

// start runs a receiver over a cluster until the test ends.
func start(t *testing.T, c *cluster, store *memory, sink *consumertest.LogsSink) *k8sEvents {
	t.Helper()
	config := createDefaultConfig().(*Config)
	if store != nil {
		config.Storage = &storageID
	}
	r, err := newReceiver(receivertest.NewNopSettings(metadata.Type), config, sink, func(*Config) (api, error) { return c, nil })
	require.NoError(t, err)
	r.pause = time.Millisecond
	require.NoError(t, r.Start(t.Context(), extensions{storageID: store}))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	return r
}

// awaitRecords waits for so many records and returns them all.
func awaitRecords(t *testing.T, sink *consumertest.LogsSink, n int) []plog.LogRecord {
	t.Helper()
	require.Eventually(t, func() bool { return sink.LogRecordCount() >= n }, testPatience, time.Millisecond, "records: %d of %d", sink.LogRecordCount(), n)
	var all []plog.LogRecord
	for _, ld := range sink.AllLogs() {
		all = append(all, ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0))
	}
	require.Len(t, all, n)
	return all
}

// The cluster as the receiver sees it: client-go's fake clientset.

func (c *cluster) events(namespace string) *cache.ListWatch {
	events := c.CoreV1().Events(namespace)
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return events.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return events.Watch(ctx, o) },
	}
}

func (c *cluster) nodes() *cache.ListWatch {
	nodes := c.CoreV1().Nodes()
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return nodes.Watch(ctx, o) },
	}
}

func (c *cluster) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// eventsOf lists and watches the events of a cluster after asking allowed.
func eventsOf(c *cluster, allowed func() error) *cache.ListWatch {
	events := c.events("")
	list := events.ListWithContextFunc
	events.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		if err := allowed(); err != nil {
			return nil, err
		}
		return list(ctx, o)
	}
	return events
}

// sum adds up the data points of a counter.
func sum(m metricdata.Metrics) int64 {
	total := int64(0)
	for _, dp := range m.Data.(metricdata.Sum[int64]).DataPoints {
		total += dp.Value
	}
	return total
}
