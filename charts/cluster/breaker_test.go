package cluster_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// drainer runs the exporter that the chart configures, with the token of its gateway.
func (s *server) drainer(t *testing.T, change map[string]any, args ...string) exporter.Logs {
	t.Helper()
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(tierConfig(t, "gateway", append(args, conditions...)...)), &config))
	section := config["exporters"].(map[string]any)["k8snode"].(map[string]any)
	delete(section, "sending_queue") // no storage here
	merged := confmap.NewFromStringMap(section)
	require.NoError(t, merged.Merge(confmap.NewFromStringMap(change)))
	require.NoError(t, merged.Merge(confmap.NewFromStringMap(map[string]any{
		"kubeconfig": s.kubeconfig(t, "test-tracecore-gateway"), "refresh": "1s", "requests_per_second": 1000,
	})))
	factory := k8snodeexporter.NewFactory()
	cfg := factory.CreateDefaultConfig()
	require.NoError(t, merged.Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	e, err := factory.CreateLogs(t.Context(), exportertest.NewNopSettings(factory.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e
}

// registered makes nodes that no kubelet looks after.
func (s *server) registered(t *testing.T, count int) {
	t.Helper()
	for i := range count {
		_, err := s.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// lost is a proven verdict, or its end.
func lost(node, id string, status verdict.Status) plog.Logs {
	at := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	v := verdict.Verdict{
		ID: id, IncidentID: id, PatternID: 18, Pattern: "gpu_lost", Role: verdict.RootCause, Status: status, Confidence: verdict.Full,
		Severity: verdict.Critical, Revision: 1, Onset: at, Updated: at, Headline: "GPU has fallen off the bus", Culprit: map[string]string{"node": node},
	}
	if status == verdict.Resolved {
		v.Revision, v.Resolved = 2, &at
	}
	ld := plog.NewLogs()
	record := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	verdict.ToRecord(v, record)
	record.Attributes().PutStr("pattern.trust", "proven")
	return ld
}

// counted waits until so many nodes have the condition with each status.
func (s *server) counted(t *testing.T, want map[corev1.ConditionStatus]int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := s.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if !assert.NoError(c, err) {
			return
		}
		got := map[corev1.ConditionStatus]int{}
		for i := range list.Items {
			if found := conditionOf(&list.Items[i], unhealthy); found.Status != "" {
				got[found.Status]++
			}
		}
		assert.Equal(c, want, got)
	}, patience, 50*time.Millisecond)
}

// TestDrainingHasABreaker floods two replicas at once.
func TestDrainingHasABreaker(t *testing.T) {
	s := serverWithRights(t, conditions...)
	s.registered(t, 60)
	replicas := []exporter.Logs{s.drainer(t, nil), s.drainer(t, nil)}
	for i := range 60 {
		require.NoError(t, replicas[i%2].ConsumeLogs(t.Context(), lost(fmt.Sprint("node-", i), fmt.Sprint(i), verdict.Open)))
	}
	require.NoError(t, replicas[0].ConsumeLogs(t.Context(), lost("invented", "x", verdict.Open)))
	// 5 % of 60 nodes are fewer than the 5 of an hour.
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 3, corev1.ConditionUnknown: 57})

	// A replica that has just started, and another limit: 5 of an hour.
	wide := s.drainer(t, map[string]any{"breaker": map[string]any{"percent": 100}})
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 5, corev1.ConditionUnknown: 55})

	// An operator agrees to one of those that are held back.
	list, err := s.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		if node := &list.Items[i]; conditionOf(node, unhealthy).Status == corev1.ConditionUnknown {
			require.Contains(t, conditionOf(node, unhealthy).Message, "kubectl annotate --overwrite node "+node.Name+" tracecore.ai/agree=gpu_lost/"+node.Name[len("node-"):])
			patch(t, s.CoreV1().Nodes().Patch, node.Name, fmt.Sprintf(`{"metadata":{"annotations":{"tracecore.ai/agree":"gpu_lost/%s"}}}`, node.Name[len("node-"):]))
			break
		}
	}
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 6, corev1.ConditionUnknown: 54})

	for i := range 60 {
		require.NoError(t, wide.ConsumeLogs(t.Context(), lost(fmt.Sprint("node-", i), fmt.Sprint(i), verdict.Resolved)))
	}
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionFalse: 6})
	events, err := s.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=invented"})
	require.NoError(t, err)
	require.Empty(t, events.Items, "an invented node has no Event")
}

// TestConditionsEnd: with a reboot, with another mode, and after an uninstall.
func TestConditionsEnd(t *testing.T) {
	s := serverWithRights(t, conditions...)
	s.registered(t, 60)
	wide := map[string]any{"breaker": map[string]any{"percent": 100}}
	boots := func(boot string) {
		patch(t, s.CoreV1().Nodes().Patch, "node-0", `{"status":{"nodeInfo":{"bootID":"`+boot+`"}}}`, "status")
	}
	boots("11111111-2222")
	e := s.drainer(t, wide)
	for i := range 3 {
		require.NoError(t, e.ConsumeLogs(t.Context(), lost(fmt.Sprint("node-", i), fmt.Sprint(i), verdict.Open)))
	}
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 3})
	boots("33333333-4444")
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 2, corev1.ConditionFalse: 1})

	// 40 verdicts of one node, and a restart, end one by one.
	for i := range 40 {
		require.NoError(t, e.ConsumeLogs(t.Context(), lost("node-3", fmt.Sprint("many-", i), verdict.Open)))
	}
	require.Eventually(t, func() bool {
		node, err := s.CoreV1().Nodes().Get(t.Context(), "node-3", metav1.GetOptions{})
		return err == nil && strings.Contains(conditionOf(node, unhealthy).Message, "(and 8 more: ")
	}, patience, 50*time.Millisecond)
	after := s.drainer(t, wide)
	for i := range 39 {
		require.NoError(t, after.ConsumeLogs(t.Context(), lost("node-3", fmt.Sprint("many-", i), verdict.Resolved)))
	}
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 3, corev1.ConditionFalse: 1})
	require.NoError(t, after.ConsumeLogs(t.Context(), lost("node-3", "many-39", verdict.Resolved)))
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 2, corev1.ConditionFalse: 2})

	s.drainer(t, map[string]any{"mode": "observe"})
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionFalse: 2})

	require.Equal(t, []string{"get nodes", "list nodes", "patch nodes/status"}, s.rights(t, s.kubeconfig(t, "test-tracecore-uninstall"), release))
	out, err := exec.Command(need(t, "../../bin/tracecore"), "conditions", "remove", "--kubeconfig", s.kubeconfig(t, "test-tracecore-uninstall")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "2 nodes had conditions of tracecore")
	s.counted(t, map[corev1.ConditionStatus]int{})
}
