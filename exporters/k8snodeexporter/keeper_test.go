package k8snodeexporter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// reboot gives a node another boot id.
func (c *cluster) reboot(t *testing.T, node, boot string) {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	n.Status.NodeInfo.BootID = boot
	_, err = c.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestConditionOutlivesEveryVerdictItDoesNotList(t *testing.T) {
	const count = 40
	c := newCluster()
	b := start(t, c, nil)
	for i := range count {
		b.send(t, lost("gpu-17", fmt.Sprint(i)))
	}
	require.Contains(t, c.condition(t, "gpu-17", gpuUnhealthy).Message, fmt.Sprintf("(and %d more: ", count-room.Listed))
	after := start(t, c, nil) // a restart in the middle
	for i := range count {
		require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status, "%d are open", count-i)
		after.send(t, resolved(lost("gpu-17", fmt.Sprint(i))))
	}
	require.Equal(t, corev1.ConditionFalse, c.condition(t, "gpu-17", gpuUnhealthy).Status)
}

func TestConditionIsBoundedAndForgetsNobody(t *testing.T) {
	c := newCluster()
	c.reboot(t, "gpu-17", "boot-one")
	b := start(t, c, nil)
	flood := nodeguard.Said{Boot: "boot-one"}
	for i := range 5000 {
		flood.Add(room, nodeguard.Line{ID: fmt.Sprint("gpu_lost/", i), Headline: strings.Repeat("x", room.LineBytes)}, true)
	}
	require.Less(t, len(flood.Write("")), 32<<10)
	node, err := c.node(t.Context(), "gpu-17")
	require.NoError(t, err)
	require.NoError(t, b.write(t.Context(), node, next(nil, gpuUnhealthy, corev1.ConditionTrue, reasonOf(&flood), flood.Write(""), b.time())))
	set := c.condition(t, "gpu-17", gpuUnhealthy)
	require.Equal(t, flood, read(&set))
	for i := range 5000 {
		flood.Remove(fmt.Sprint("gpu_lost/", i), true)
	}
	require.Equal(t, 5000-room.Listed-room.Tracked, flood.Lost)
	require.False(t, flood.Empty(), "what it could not name may be open")
	flood.Booted("boot-two", func(string) bool { return true })
	require.True(t, flood.Empty())
}

func TestRebootEndsWhatItCures(t *testing.T) {
	c := newCluster()
	c.reboot(t, "gpu-17", "11111111-0000")
	b := start(t, c, nil)
	gpu, hot := lost("gpu-17", "a"), but(lost("gpu-17", "b"), func(v *verdict.Verdict) { v.Pattern = "thermal_throttle" })
	b.send(t, gpu, hot)
	require.Equal(t, "gpu_lost/a: GPU a has fallen off the bus | (boot 11111111)", c.condition(t, "gpu-17", gpuUnhealthy).Message)
	require.NoError(t, b.round(t.Context()))
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status)

	c.reboot(t, "gpu-17", "22222222-0000")
	after := start(t, c, nil)
	require.NoError(t, after.round(t.Context()))
	ended := c.condition(t, "gpu-17", gpuUnhealthy)
	require.Equal(t, corev1.ConditionFalse, ended.Status)
	require.Contains(t, ended.Message, "GPU a has fallen off the bus")
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", thermalThrottling).Status, "a reboot cools nothing")

	// The patterns have not heard of the reboot; only what is new counts.
	require.NoError(t, after.round(t.Context()))
	require.NoError(t, after.consume(t.Context(), with(records(gpu), verdict.AttrRepeated, true)))
	require.Equal(t, corev1.ConditionFalse, c.condition(t, "gpu-17", gpuUnhealthy).Status)
	after.send(t, gpu)
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status)
}

// A verdict of an earlier boot that comes late, as from an agent's disk, sets nothing; nor
// does it when it is told again. One that comes before the kubelet says that its node has
// booted does when it is told again.
func TestAVerdictOfAnotherBootSetsNothing(t *testing.T) {
	c := newCluster()
	c.reboot(t, "gpu-17", "22222222-0000")
	b := start(t, c, nil)
	in := func(v verdict.Verdict, boot string) verdict.Verdict {
		return but(v, func(v *verdict.Verdict) { v.Boot = boot })
	}
	again := func(v verdict.Verdict) {
		require.NoError(t, b.consume(t.Context(), with(records(v), verdict.AttrRepeated, true)))
	}
	late := in(lost("gpu-17", "a"), "11111111-0000")
	b.send(t, late)
	again(late)
	require.Zero(t, c.condition(t, "gpu-17", gpuUnhealthy))
	require.EqualValues(t, 2, b.outcomes(t)[outcomeOtherBoot])

	hot := in(but(lost("gpu-17", "b"), func(v *verdict.Verdict) { v.Pattern = "thermal_throttle" }), "11111111-0000")
	b.send(t, hot)
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", thermalThrottling).Status, "a reboot cools nothing")

	early := in(lost("gpu-17", "a"), "33333333-0000")
	b.send(t, early)
	require.Zero(t, c.condition(t, "gpu-17", gpuUnhealthy))
	c.reboot(t, "gpu-17", "33333333-0000")
	again(early)
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status)
	again(early)
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status)

	c.reboot(t, "gpu-17", "44444444-0000")
	b.send(t, early, in(lost("gpu-17", "a"), "33333333-0000"))
	b.send(t, but(early, func(v *verdict.Verdict) { v.Headline = "another headline" }))
	require.NotEqual(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status, "it ended with the boot that it was seen in")
}

func TestWhatNobodyConfirmsBecomesUnknown(t *testing.T) {
	c := newCluster()
	stale := func(config *Config) { config.Stale = 30 * time.Minute }
	start(t, c, stale).send(t, lost("gpu-17", "a"))
	later(t, 31*time.Minute)
	b := start(t, c, stale)
	require.NoError(t, b.round(t.Context()))
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status, "after a start all have time to speak")

	later(t, 29*time.Minute)
	require.NoError(t, b.consume(t.Context(), with(records(lost("gpu-17", "a")), verdict.AttrRepeated, true)))
	later(t, 2*time.Minute)
	require.NoError(t, b.round(t.Context()))
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status, "it was confirmed 2 minutes ago")

	later(t, 31*time.Minute)
	require.NoError(t, b.round(t.Context()))
	doubtful := c.condition(t, "gpu-17", gpuUnhealthy)
	require.Equal(t, corev1.ConditionUnknown, doubtful.Status)
	require.Equal(t, reasonUnconfirmed, doubtful.Reason)
	require.Equal(t, "gpu_lost/a: GPU a has fallen off the bus | (nobody has confirmed this since 2026-11-20T15:03:00Z)", doubtful.Message)

	require.NoError(t, b.round(t.Context()))
	require.NoError(t, b.consume(t.Context(), with(records(lost("gpu-17", "a")), verdict.AttrRepeated, true)))
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status)
	b.send(t, resolved(lost("gpu-17", "a")))
	require.Equal(t, corev1.ConditionFalse, c.condition(t, "gpu-17", gpuUnhealthy).Status)
}

func TestOnlyProvenVerdictsSetAndClear(t *testing.T) {
	for _, trust := range []any{"claimed", "foreign", "Proven", "", true, 1} {
		t.Run(fmt.Sprint(trust), func(t *testing.T) {
			c := newCluster()
			b := start(t, c, nil)
			require.NoError(t, b.consume(t.Context(), with(records(lost("gpu-17", "a")), verdict.AttrTrust, trust)))
			require.Zero(t, c.condition(t, "gpu-17", gpuUnhealthy))
			require.Equal(t, map[string]int64{"not_proven": 1}, b.outcomes(t))
			b.send(t, lost("gpu-17", "b"))
			require.NoError(t, b.consume(t.Context(), with(records(resolved(lost("gpu-17", "b"))), verdict.AttrTrust, trust)))
			require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status)
		})
	}
}

func TestDrillSetsNothing(t *testing.T) {
	c := newCluster()
	b := start(t, c, nil)
	require.NoError(t, b.consume(t.Context(), with(records(lost("gpu-17", "a")), verdict.AttrDrill, true)))
	require.Zero(t, c.condition(t, "gpu-17", gpuUnhealthy))
	events := c.events(t, "default")
	require.Len(t, events, 1)
	for said := range events {
		require.Contains(t, said, ": DRILL: ")
	}
}

func TestProcessSpeaksOfItsNodeAlone(t *testing.T) {
	c := newCluster()
	b := start(t, c, func(config *Config) { config.Node = "gpu-17" })
	b.send(t, lost("gpu-18", "a"), lost("gpu-17", "b"))
	require.Equal(t, []string{"gpu-17"}, c.status(t, corev1.ConditionTrue))
	require.Equal(t, map[string]int64{"no_node": 1, "applied": 1}, b.outcomes(t))
	c.reboot(t, "gpu-17", "x")
	require.NoError(t, b.round(t.Context()))
}

// An API server that was away for longer than stale: what confirms a condition waits in the
// queue, and the condition stays as it is.
func TestAnOutageIsNoSilence(t *testing.T) {
	c := newCluster()
	b := start(t, c, func(config *Config) { config.Stale = 30 * time.Minute })
	b.send(t, lost("gpu-17", "a"))
	require.NoError(t, b.round(t.Context()))
	later(t, time.Minute)
	since := c.condition(t, "gpu-17", gpuUnhealthy).LastTransitionTime
	again := with(records(lost("gpu-17", "a")), verdict.AttrRepeated, true)
	away := true
	c.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("connection refused")
	})
	for range 40 {
		later(t, time.Minute)
		require.Error(t, b.consume(t.Context(), records(lost("gpu-18", "b"))), "it is first in the queue")
		require.Error(t, b.round(t.Context()))
	}
	away = false
	require.NoError(t, b.round(t.Context()))
	require.Equal(t, corev1.ConditionTrue, c.condition(t, "gpu-17", gpuUnhealthy).Status)
	require.NoError(t, b.consume(t.Context(), records(lost("gpu-18", "b"))))
	require.NoError(t, b.consume(t.Context(), again))
	require.Equal(t, since, c.condition(t, "gpu-17", gpuUnhealthy).LastTransitionTime)
}
