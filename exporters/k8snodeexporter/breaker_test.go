package k8snodeexporter

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// many is a cluster of gpu-17, gpu-18 and as many nodes node-0, node-1, …
func many(count int) *cluster {
	var all []runtime.Object
	for i := range count {
		all = append(all, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	return newCluster(all...)
}

// with status are the nodes whose condition has it.
func (c *cluster) status(t *testing.T, status corev1.ConditionStatus) (names []string) {
	t.Helper()
	require.NoError(t, c.nodes(t.Context(), func(n *corev1.Node) {
		if condition := find(n, gpuUnhealthy); condition != nil && condition.Status == status {
			names = append(names, n.Name)
		}
	}))
	return names
}

// later moves the clock of all exporters on, until the test ends.
func later(t *testing.T, d time.Duration) {
	t.Helper()
	was := now
	now = now.Add(d)
	t.Cleanup(func() { now = was })
}

func limit(nodes, percent int) func(*Config) {
	return func(c *Config) { c.Breaker.Nodes, c.Breaker.Percent = nodes, percent }
}

func TestBreakerHoldsBackBeyondSoManyNodes(t *testing.T) {
	c := many(60)
	b := start(t, c, limit(3, 100))
	for i := range 60 {
		b.send(t, lost(fmt.Sprint("node-", i), fmt.Sprint(i)))
	}
	require.Equal(t, []string{"node-0", "node-1", "node-2"}, c.status(t, corev1.ConditionTrue))
	require.Len(t, c.status(t, corev1.ConditionUnknown), 57)
	require.Equal(t, map[string]int64{"applied": 3, "held_back": 57}, b.outcomes(t))
	held := c.condition(t, "node-3", gpuUnhealthy)
	require.Equal(t, reasonHeldBack, held.Reason)
	require.Equal(t, "gpu_lost/3: GPU 3 has fallen off the bus | (to agree: kubectl annotate --overwrite node node-3 tracecore.ai/agree=gpu_lost/3)", held.Message)
	require.Contains(t, c.events(t, "default"), "node-3: GPU 3 has fallen off the bus. Drain the node. (gpu_lost/3) [held back: 3 nodes got a condition within 1h0m0s, breaker.nodes allows no more. to agree: kubectl annotate --overwrite node node-3 tracecore.ai/agree=gpu_lost/3]")

	// A second fault of a node that has its condition is said at once.
	b.send(t, lost("node-0", "again"))
	require.Contains(t, c.condition(t, "node-0", gpuUnhealthy).Message, "gpu_lost/again")

	// Within the window nothing passes, also for who has just started; after it the next three do.
	require.NoError(t, start(t, c, limit(3, 100)).round(t.Context()))
	require.Len(t, c.status(t, corev1.ConditionTrue), 3)
	later(t, 61*time.Minute)
	require.NoError(t, start(t, c, limit(3, 100)).round(t.Context()))
	require.Len(t, c.status(t, corev1.ConditionTrue), 6)
	require.Contains(t, c.events(t, "default"), "node-10: GPU 10 has fallen off the bus (gpu_lost/10) [was held back]")
}

func TestBreakerHoldsBackBeyondAPartOfTheCluster(t *testing.T) {
	c := many(18) // and two
	b := start(t, c, limit(100, 10))
	for i := range 5 {
		b.send(t, lost(fmt.Sprint("node-", i), fmt.Sprint(i)))
		later(t, 2*time.Hour) // conditions that stand count however old they are
	}
	require.Equal(t, []string{"node-0", "node-1"}, c.status(t, corev1.ConditionTrue))
	b.send(t, resolved(lost("node-0", "0")))
	later(t, 2*time.Hour)
	require.NoError(t, b.round(t.Context()))
	require.Len(t, c.status(t, corev1.ConditionTrue), 2, "one went, one came")

	small := many(0)
	s := start(t, small, limit(100, 1))
	s.send(t, lost("gpu-17", "a"), lost("gpu-18", "b"))
	require.Equal(t, []string{"gpu-17"}, small.status(t, corev1.ConditionTrue), "one node always may")
}

func TestOperatorAgrees(t *testing.T) {
	c := many(3)
	b := start(t, c, limit(1, 100))
	b.send(t, lost("node-0", "0"), lost("node-1", "1"), lost("node-2", "2"))
	for node, verdict := range map[string]string{"node-1": "gpu_lost/1", "node-2": "gpu_lost/another"} {
		_, err := c.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, AnnotationAgree, verdict), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, start(t, c, limit(1, 100)).round(t.Context()), "another replica, after a restart")
	require.Equal(t, []string{"node-0", "node-1"}, c.status(t, corev1.ConditionTrue))
	require.Contains(t, c.events(t, "default"), "node-1: GPU 1 has fallen off the bus (gpu_lost/1) [was held back] [agreed: annotation tracecore.ai/agree]")
}

func TestReplicasShareOneBreaker(t *testing.T) {
	c := many(40)
	var all sync.WaitGroup
	for replica := range 2 {
		b := start(t, c, limit(4, 100))
		all.Go(func() {
			for i := range 20 {
				node := fmt.Sprint("node-", 2*i+replica)
				for b.consume(t.Context(), records(lost(node, node))) != nil { // a conflict is tried again, as the queue does
				}
			}
		})
	}
	all.Wait()
	require.Len(t, c.status(t, corev1.ConditionTrue), 4)
	require.Len(t, c.status(t, corev1.ConditionUnknown), 36)
}

func TestLostLedgerIsMadeUpForByConditions(t *testing.T) {
	c := many(4)
	start(t, c, limit(2, 100)).send(t, lost("node-0", "0"), lost("node-1", "1"))
	require.NoError(t, c.CoreV1().ConfigMaps("gpu").Delete(t.Context(), "breaker", metav1.DeleteOptions{}))
	b := start(t, c, limit(2, 100))
	b.send(t, lost("node-2", "2"), resolved(lost("node-0", "0")))
	require.Equal(t, []string{"node-1"}, c.status(t, corev1.ConditionTrue), "nothing is set without it, all is cleared")
	require.Contains(t, b.logs.All()[0].ContextMap()["error"], "make it, kubectl -n gpu create configmap breaker")

	_, err := c.CoreV1().ConfigMaps("gpu").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "breaker"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	b.send(t, lost("node-3", "3"), lost("gpu-17", "4"))
	require.ElementsMatch(t, []string{"node-1", "node-3"}, c.status(t, corev1.ConditionTrue))
}

func TestWhatIsHeldBackGoesWithItsCause(t *testing.T) {
	c := many(2)
	b := start(t, c, limit(1, 100))
	b.send(t, lost("node-0", "0"), lost("node-1", "1"), resolved(lost("node-1", "1")))
	require.Zero(t, c.condition(t, "node-1", gpuUnhealthy), "it was never said, so it is not taken back")
}

func TestObserveSetsNothingAndSaysWhatItWould(t *testing.T) {
	c := many(1)
	start(t, c, nil).send(t, lost("node-0", "0"))
	c.ClearActions()
	b := start(t, c, func(config *Config) { config.Mode = modeObserve })
	b.send(t, lost("gpu-17", "a"))
	require.Zero(t, b.requests("patch", "nodes"))
	require.Equal(t, map[string]int64{"observed": 1}, b.outcomes(t))
	require.Contains(t, c.events(t, "default"), "gpu-17: GPU a has fallen off the bus. Drain the node. (gpu_lost/a) [observe: TracecoreGPUUnhealthy would be True]")

	require.NoError(t, b.round(t.Context()))
	require.Zero(t, c.condition(t, "node-0", gpuUnhealthy), "what another mode had set does not stand")
}
