package k8snodeexporter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func TestConditionIsSetAndClearedWithItsVerdicts(t *testing.T) {
	b := start(t, newCluster(), nil)
	ecc := but(lost("gpu-17", "b"), func(v *verdict.Verdict) {
		v.Pattern, v.Headline = "hbm_ecc", "GPU b has uncorrectable memory errors"
	})
	b.send(t, lost("gpu-17", "a"))
	at := metav1.NewTime(now)
	require.Equal(t, corev1.NodeCondition{
		Type: gpuUnhealthy, Status: corev1.ConditionTrue, Reason: "TracecoreGpuLost", Message: "gpu_lost/a: GPU a has fallen off the bus",
		LastHeartbeatTime: at, LastTransitionTime: at,
	}, b.cluster.condition(t, "gpu-17", gpuUnhealthy))
	require.Zero(t, b.cluster.condition(t, "gpu-18", gpuUnhealthy))

	began := now
	defer func() { now = began }()
	now = now.Add(1e9)
	b.send(t, ecc)
	both := b.cluster.condition(t, "gpu-17", gpuUnhealthy)
	require.Equal(t, "gpu_lost/a: GPU a has fallen off the bus | hbm_ecc/b: GPU b has uncorrectable memory errors", both.Message)
	require.Equal(t, at, both.LastTransitionTime, "it was True before")

	b.send(t, resolved(lost("gpu-17", "a")))
	one := b.cluster.condition(t, "gpu-17", gpuUnhealthy)
	require.Equal(t, corev1.ConditionTrue, one.Status, "the other verdict is open")
	require.Equal(t, "TracecoreHbmEcc", one.Reason)

	b.send(t, resolved(ecc))
	none := b.cluster.condition(t, "gpu-17", gpuUnhealthy)
	require.Equal(t, corev1.ConditionFalse, none.Status)
	require.Equal(t, "TracecoreNoOpenVerdict", none.Reason)
	require.Equal(t, "no longer holds: hbm_ecc/b: GPU b has uncorrectable memory errors", none.Message)
	require.Equal(t, metav1.NewTime(now), none.LastTransitionTime)
	require.Equal(t, map[string]int64{"True": 3, "False": 1}, b.counts(t, "otelcol_exporter_k8snode_conditions", "status"))
	require.Equal(t, map[string]int64{"applied": 4}, b.outcomes(t))
}

func TestWhatDrainsANode(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*verdict.Verdict)
		holds  bool
		tells  bool
	}{
		"proven":                          {func(*verdict.Verdict) {}, true, true},
		"a warning":                       {func(v *verdict.Verdict) { v.Severity = verdict.Warning }, true, true},
		"not proven":                      {func(v *verdict.Verdict) { v.Confidence = verdict.Partial }, false, true},
		"of no consequence":               {func(v *verdict.Verdict) { v.Severity = verdict.Info }, false, true},
		"explained by another":            {func(v *verdict.Verdict) { v.Role, v.RootCause = verdict.Symptom, "gpu_lost/z" }, false, false},
		"a job that calls itself a drill": {func(v *verdict.Verdict) { v.Culprit["job"] = "tracecore-drill" }, true, true},
		"an Xid of the application":       {func(v *verdict.Verdict) { v.Pattern, v.Severity = "xid_impact", verdict.Warning }, false, true},
		"an Xid of the GPU":               {func(v *verdict.Verdict) { v.Pattern, v.Severity = "xid_impact", verdict.Error }, true, true},
		"not the machine's":               {func(v *verdict.Verdict) { v.Pattern = "nccl_hang" }, false, true},
		"resolved before it was heard of": {func(v *verdict.Verdict) { *v = resolved(*v) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, newCluster(), nil)
			b.send(t, but(lost("gpu-17", "a"), tc.change))
			require.Equal(t, tc.holds, b.cluster.condition(t, "gpu-17", gpuUnhealthy).Status == corev1.ConditionTrue)
			require.Equal(t, tc.tells, len(b.cluster.events(t, "default")) == 1)
		})
	}
}

func TestCauseThatTurnsOutASymptomIsTakenBack(t *testing.T) {
	b := start(t, newCluster(), nil)
	b.send(t, lost("gpu-17", "a"))
	b.send(t, but(lost("gpu-17", "a"), func(v *verdict.Verdict) { v.Role, v.RootCause = verdict.Symptom, "node_memory_error-b" }))
	require.Equal(t, corev1.ConditionFalse, b.cluster.condition(t, "gpu-17", gpuUnhealthy).Status)
}

func TestEventsSayWhatIsNewOnce(t *testing.T) {
	b := start(t, newCluster(), nil)
	likely := but(lost("gpu-17", "a"), func(v *verdict.Verdict) { v.Confidence = verdict.Partial })
	b.send(t, likely, likely)
	b.send(t, lost("gpu-17", "a"), but(lost("gpu-17", "a"), func(v *verdict.Verdict) { v.Headline += ", three times" }))
	b.send(t, resolved(lost("gpu-17", "a")))
	events := b.cluster.events(t, "default")
	require.Len(t, events, 3)
	require.Contains(t, events, "gpu-17: likely: GPU a has fallen off the bus. Drain the node. (gpu_lost/a)")
	require.Contains(t, events, "gpu-17: resolved: GPU a has fallen off the bus (gpu_lost/a)")
	event := events["gpu-17: GPU a has fallen off the bus. Drain the node. (gpu_lost/a)"]
	require.Equal(t, "TracecoreGpuLost", event.Reason)
	require.Equal(t, corev1.EventTypeWarning, event.Type)
	require.Equal(t, aboutNode("gpu-17"), event.InvolvedObject)
	require.True(t, event.FirstTimestamp.Time.Equal(onset))
	require.Equal(t, map[string]int64{"created": 3, "repeated": 1}, b.counts(t, "otelcol_exporter_k8snode_events", "result"))
	require.Equal(t, map[string]int64{"applied": 4, "unchanged": 1}, b.outcomes(t))
}

// A user whose jobs fail without end fills no API server with Events, and keeps no
// condition of a broken node waiting behind them.
func TestAFloodOfOneUserIsToldByAFew(t *testing.T) {
	b := start(t, newCluster(), nil)
	for i := range 500 {
		b.send(t, but(lost("gpu-17", fmt.Sprint("x", i)), func(v *verdict.Verdict) {
			v.Pattern, v.Culprit["job"], v.Culprit["job_domain"] = "rank_exit", fmt.Sprint(i), "user 1000"
		}))
	}
	b.send(t, lost("gpu-17", "a"))
	require.Equal(t, corev1.ConditionTrue, b.cluster.condition(t, "gpu-17", gpuUnhealthy).Status)
	require.Len(t, b.cluster.events(t, "default"), verdicts.MostTold+1)
	require.Equal(t, map[string]int64{"created": verdicts.MostTold + 1, "crowded": 500 - verdicts.MostTold}, b.counts(t, "otelcol_exporter_k8snode_events", "result"))
}

func TestPodThatAVerdictNamesGetsItsEvent(t *testing.T) {
	b := start(t, newCluster(), func(c *Config) { c.PodEvents = true })
	in := func(id string, culprit map[string]string) verdict.Verdict {
		return but(lost("gpu-17", id), func(v *verdict.Verdict) {
			v.Culprit = culprit
			v.Culprit["node"] = "gpu-17"
		})
	}
	b.send(t,
		in("a", map[string]string{"namespace": "ml", "pod_name": "train-3", "pod": "0f0e"}),
		in("b", map[string]string{"pod": "0f0e"}),
		in("c", map[string]string{"pod_name": "train-3", "pod": "0f0e"}),
		in("d", map[string]string{"namespace": "../default", "pod_name": "train-3", "pod": "0f0e"}),
		in("e", map[string]string{"namespace": "ml", "pod_name": "train 3", "pod": "0f0e"}),
		in("f", map[string]string{}))
	events := b.cluster.events(t, "ml")
	require.Len(t, events, 1)
	about := events["train-3: GPU a has fallen off the bus. Drain the node. (gpu_lost/a)"].InvolvedObject
	require.Equal(t, corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ml", Name: "train-3", UID: "0f0e"}, about)
	require.Equal(t, map[string]int64{"created": 7, "no_pod": 4}, b.counts(t, "otelcol_exporter_k8snode_events", "result"))
}

func TestRestartRepeatsNothingAndForgetsNothing(t *testing.T) {
	c := newCluster()
	before := start(t, c, nil)
	before.send(t, lost("gpu-17", "a"), lost("gpu-17", "b"))
	set := c.condition(t, "gpu-17", gpuUnhealthy)

	after := start(t, c, nil)
	c.ClearActions()
	after.send(t, lost("gpu-17", "a"), lost("gpu-17", "b"))
	require.Equal(t, set, c.condition(t, "gpu-17", gpuUnhealthy))
	require.Len(t, c.events(t, "default"), 2)
	require.Zero(t, after.requests("patch", "nodes"), "it was read, and not written")

	after.send(t, resolved(lost("gpu-17", "a")))
	require.Equal(t, "gpu_lost/b: GPU b has fallen off the bus", c.condition(t, "gpu-17", gpuUnhealthy).Message)
}

func TestRevisionThatSaysNothingNewCostsNoRequest(t *testing.T) {
	b := start(t, newCluster(), nil)
	b.send(t, lost("gpu-17", "a"))
	b.cluster.ClearActions()
	for range 100 {
		b.send(t, but(lost("gpu-17", "a"), func(v *verdict.Verdict) { v.Evidence = []verdict.Evidence{{Name: "xid", Time: onset}} }))
	}
	require.Empty(t, b.cluster.Actions())
	require.Equal(t, map[string]int64{"applied": 1, "unchanged": 100}, b.outcomes(t))
}

var nodesResource = schema.GroupResource{Resource: "nodes"}

// refuse lets patches fail so often; a read meets no other writer.
func (c *cluster) refuse(times int, err error) {
	c.before = func(change string) error {
		if change == "" && apierrors.IsConflict(err) {
			return nil
		}
		if times--; times < 0 {
			return nil
		}
		return err
	}
}

func TestTwoWritersOfOneConditionLoseNothing(t *testing.T) {
	c := newCluster()
	us, other := start(t, c, nil), start(t, c, nil)
	c.before = func(change string) error {
		if change == "" {
			return nil
		}
		c.before = nil
		other.send(t, lost("gpu-17", "theirs"))
		return apierrors.NewConflict(nodesResource, "gpu-17", errors.New("somebody was faster"))
	}
	us.send(t, lost("gpu-17", "ours"))
	require.Equal(t, "gpu_lost/theirs: GPU theirs has fallen off the bus | gpu_lost/ours: GPU ours has fallen off the bus", c.condition(t, "gpu-17", gpuUnhealthy).Message)
}

func TestWhatFailsIsTriedAgainAndNothingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"away":         {errors.New("connection refused"), "node gpu-18: connection refused"},
		"overloaded":   {apierrors.NewTooManyRequests("later", 1), "later"},
		"forbidden":    {apierrors.NewForbidden(nodesResource, "gpu-18", errors.New("no")), "the service account needs the right to get and list nodes and to patch nodes/status"},
		"contested":    {apierrors.NewConflict(nodesResource, "gpu-18", errors.New("always")), "always"},
		"out of order": {apierrors.NewInternalError(errors.New("etcd")), "etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, newCluster(), nil)
			first := lost("gpu-17", "a")
			b.send(t, first)
			b.cluster.refuse(conflicts, tc.err)
			err := b.consume(t.Context(), records(first, lost("gpu-18", "b"), lost("gpu-17", "c")))
			require.ErrorContains(t, err, tc.says)
			var rest consumererror.Logs
			require.ErrorAs(t, err, &rest)
			require.Equal(t, 2, rest.Data().LogRecordCount(), "what was done is not done again")
			require.Equal(t, 1, b.logs.FilterMessage("verdicts wait until the API server takes them").Len())
			for range conflicts {
				if err = b.consume(t.Context(), rest.Data()); err == nil {
					break
				}
			}
			require.NoError(t, err)
			for range conflicts {
				_ = b.round(t.Context()) // what was refused alone is tried there
			}
			require.Equal(t, corev1.ConditionTrue, b.cluster.condition(t, "gpu-18", gpuUnhealthy).Status)
			require.Contains(t, b.cluster.condition(t, "gpu-17", gpuUnhealthy).Message, "gpu_lost/c")
		})
	}
}

// A node whose conditions the API server refuses, by a policy or a webhook that fails, keeps
// no other from its condition, and gets its own when it may.
func TestANodeThatIsRefusedAloneHoldsUpNoOther(t *testing.T) {
	for name, refusal := range map[string]error{
		"by a policy":             apierrors.NewForbidden(nodesResource, "gpu-17", errors.New("ValidatingAdmissionPolicy 'only-ours' denied request")),
		"by a webhook that fails": apierrors.NewInternalError(errors.New("failed calling webhook")),
		"by a writer that lasts":  apierrors.NewConflict(nodesResource, "gpu-17", errors.New("always")),
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, newCluster(), limit(1, 100))
			refuses := true
			b.cluster.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return refuses && a.(clienttesting.PatchAction).GetName() == "gpu-17", nil, refusal
			})
			ld := records(lost("gpu-17", "a"), lost("gpu-18", "b"))
			var err error
			for range 3 {
				var rest consumererror.Logs
				if err = b.consume(t.Context(), ld); errors.As(err, &rest) {
					ld = rest.Data()
				}
			}
			require.NoError(t, err)
			require.Equal(t, corev1.ConditionTrue, b.cluster.condition(t, "gpu-18", gpuUnhealthy).Status)
			require.Equal(t, map[string]int64{"aside": 1, "applied": 1}, b.outcomes(t))
			require.NoError(t, b.round(t.Context()))
			require.Zero(t, b.cluster.condition(t, "gpu-17", gpuUnhealthy))
			refuses = false
			later(t, 2*time.Hour) // gpu-18 has the one place of the breaker
			require.NoError(t, b.round(t.Context()))
			require.Equal(t, corev1.ConditionTrue, b.cluster.condition(t, "gpu-17", gpuUnhealthy).Status)
		})
	}
}

// A right that is missing is no trouble of single nodes, until a node is changed.
func TestAServerThatForbidsAllIsAway(t *testing.T) {
	b := start(t, many(8), limit(8, 100))
	refuses := true
	b.cluster.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuses, nil, apierrors.NewForbidden(nodesResource, "", errors.New("no right"))
	})
	for i := range 8 {
		for range 3 {
			if node := fmt.Sprint("node-", i); b.consume(t.Context(), records(lost(node, node))) == nil {
				break
			}
		}
	}
	later(t, time.Hour)
	require.Equal(t, now, b.turns.Heard(onset))
	refuses = false
	require.NoError(t, b.round(t.Context()))
	back := now
	later(t, time.Hour)
	require.Equal(t, back, b.turns.Heard(onset))
}

func TestWhatCanNeverBeIsCountedAndHoldsNothingUp(t *testing.T) {
	b := start(t, newCluster(), nil)
	b.cluster.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
	})
	forged := lost("gpu-17", "forged")
	ld := records(lost("no-such-node", "a"), but(forged, func(v *verdict.Verdict) { v.Culprit = nil }), but(forged, func(v *verdict.Verdict) { v.Culprit["node"] = "../pods" }), lost("gpu-18", "b"))
	broken := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().AppendEmpty()
	broken.SetEventName(verdict.EventName)
	require.NoError(t, b.consume(t.Context(), ld))
	require.Equal(t, corev1.ConditionTrue, b.cluster.condition(t, "gpu-18", gpuUnhealthy).Status)
	require.Equal(t, map[string]int64{"no_node": 3, "applied": 1, "invalid": 1}, b.outcomes(t))
	require.Equal(t, map[string]int64{"refused": 1}, b.counts(t, "otelcol_exporter_k8snode_events", "result"))
	require.Equal(t, 2, b.logs.Len(), "one line for each kind of trouble")
}

func TestNodeIsThatOfTheEvidence(t *testing.T) {
	for name, tc := range map[string]struct {
		named, resource, want string
	}{
		"both":      {"gpu-17", "gpu-17", "gpu-17"},
		"verdict":   {"gpu-17", "", "gpu-17"},
		"resource":  {"", "GPU-17", "gpu-17"},
		"another":   {"gpu-17", "gpu-18", ""},
		"none":      {"", "", ""},
		"not a DNS": {"../gpu-17", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := createDefaultConfig().(*Config)
			f := verdicts.Found{Verdict: but(lost(tc.named, "a"), func(v *verdict.Verdict) { v.Culprit["host"] = "host" }), On: tc.resource}
			require.Equal(t, tc.want != "", config.mine(config.plan(f).Node))
			if tc.want != "" {
				require.Equal(t, tc.want, config.plan(f).Node)
			}
		})
	}
}

func TestForgedTextStaysOneVerdict(t *testing.T) {
	b := start(t, newCluster(), nil)
	b.send(t, but(lost("gpu-17", "a"), func(v *verdict.Verdict) {
		v.ID, v.Headline = "a: x | gpu_lost/b", "\x1b[2J | gpu_lost/c: forged\n"+strings.Repeat("é", 4000)
		v.Remediation = "\x1b[2J"
	}))
	condition := b.cluster.condition(t, "gpu-17", gpuUnhealthy)
	require.Len(t, read(&condition).Lines, 1)
	require.Less(t, len(condition.Message), 400)
	safetexttest.RequireSafe(t, condition.Message)
	for _, event := range b.cluster.events(t, "default") {
		safetexttest.RequireSafe(t, event.Message)
		require.LessOrEqual(t, len(event.Message), longestNote)
	}
}

// TestHostileVerdictComesThroughInNoObject puts hostile text wherever a verdict has any.
func TestHostileVerdictComesThroughInNoObject(t *testing.T) {
	b := start(t, newCluster(), func(c *Config) { c.PodEvents = true })
	const hostile = safetexttest.Hostile
	b.send(t, but(lost("gpu-17", "a"+hostile), func(v *verdict.Verdict) {
		v.IncidentID, v.Headline, v.Remediation = hostile, hostile, hostile
		v.Culprit["pod"], v.Culprit["pod_name"], v.Culprit["namespace"], v.Culprit["job"] = hostile, "train-3", "ml", hostile
	}))
	message := b.cluster.condition(t, "gpu-17", gpuUnhealthy).Message
	events := b.cluster.events(t, "default")
	for _, event := range b.cluster.events(t, "ml") {
		events["pod"] = event
	}
	require.Len(t, events, 2)
	for _, event := range events {
		safetexttest.RequireSafe(t, event.Message+event.Reason+event.Name+string(event.InvolvedObject.UID))
		require.NotContains(t, event.Message, "<")
	}
	safetexttest.RequireSafe(t, message)
	require.NotContains(t, message, "<")
	require.Len(t, read(&corev1.NodeCondition{Reason: reasonMany, Status: corev1.ConditionTrue, Message: message}).Lines, 1)
}

func TestAPIThatCannotBeFoundSaysWhatToDo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	n := &nodes{config: createDefaultConfig().(*Config), connect: (*Config).client}
	require.ErrorContains(t, n.start(context.Background(), nil), "run in a pod with a service account, or set kubeconfig")
}
