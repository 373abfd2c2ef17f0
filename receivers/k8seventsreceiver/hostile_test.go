package k8seventsreceiver

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	corev1 "k8s.io/api/core/v1"

	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

// poison writes a text into every text field of an object, but for those that keep it in
// use: what is watched, and what makes it of interest.
func poison(v reflect.Value, text string, keep map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), text, keep)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && !keep[v.Type().Field(i).Name] {
				poison(v.Field(i), text, keep)
			}
		}
	case reflect.String:
		v.SetString(text)
	}
}

func requireBounded(t *testing.T, r plog.LogRecord) {
	t.Helper()
	texts := map[string]string{"body": r.Body().Str()}
	for key, value := range r.Attributes().All() {
		if value.Type() == pcommon.ValueTypeStr {
			texts[key] = value.Str()
		}
	}
	require.Greater(t, len(texts), 4)
	for key, text := range texts {
		require.True(t, utf8.ValidString(text), key)
		require.LessOrEqual(t, len(text), longestMessage, key)
		if key != "body" && key != "k8s.event.message" {
			require.LessOrEqual(t, len(text), longestName, key)
		}
	}
}

// TestHostileObjectsAreCutToText: a user who may create an Event writes what he likes into all
// of its fields, and an old API server lets any length through.
func TestHostileObjectsAreCutToText(t *testing.T) {
	for name, text := range map[string]string{
		"a megabyte":          strings.Repeat("x", 1<<20),
		"a megabyte of runes": strings.Repeat("\u00e9", 1<<19),
		"everything at once":  safetexttest.Hostile,
		"no text":             strings.Repeat("\xff\xfe", 1<<10),
		"a driver's line":     "NVRM: Xid (PCI:0000:65:00): 79\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, sink := newCluster(), &consumertest.LogsSink{}
			start(t, c, nil, sink)
			event := podEvent("Evicted", "", time.Now())
			version := event.ResourceVersion
			poison(reflect.ValueOf(event), text, map[string]bool{"Reason": true, "Kind": true, "Labels": true})
			event.ResourceVersion = version
			nextWatch(t, c.watches).Add(event)
			w := nextWatch(t, c.nodesAt)
			hostile := node("gpu-17", corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse})
			w.Modify(hostile)
			worse := node("gpu-17", corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, Reason: text, Message: text})
			w.Modify(worse)
			for _, r := range awaitRecords(t, sink, 2) {
				requireBounded(t, r)
				trust, _ := r.Attributes().Get("tracecore.trust")
				require.Equal(t, "claimed", trust.Str())
			}
		})
	}
}

// TestAnEventDoesNotSayWhereItsPodRuns: who creates one writes its source. The pod's own
// node counts, where the API server knows it.
func TestAnEventDoesNotSayWhereItsPodRuns(t *testing.T) {
	pod := trainingPod()
	c, sink := newCluster(pod), &consumertest.LogsSink{}
	start(t, c, nil, sink)
	event := podEvent("Evicted", "out of memory", time.Now())
	event.InvolvedObject.Namespace, event.InvolvedObject.Name, event.InvolvedObject.UID = pod.Namespace, pod.Name, pod.UID
	event.Source.Host = "a-healthy-node"
	nextWatch(t, c.watches).Add(event)
	at, _ := awaitRecords(t, sink, 1)[0].Attributes().Get("k8s.node.name")
	require.NotEmpty(t, pod.Spec.NodeName)
	require.Equal(t, pod.Spec.NodeName, at.Str())
}

// Who may create events in his namespace can name a node there, or say of his pod what is said of
// nodes. That makes no node unhealthy, and none well.
func TestOnlyTheClusterSpeaksOfNodes(t *testing.T) {
	reasons := []string{"NodeNotReady", "NodeReady", "Rebooted", "NodeHasDiskPressure", "NodeHasNoDiskPressure", "EvictionThresholdMet", "SystemOOM"}
	for namespace, believed := range map[string]bool{"ml": false, "": false, "default": true, "kube-system": true} {
		for _, kind := range []string{"Node", "Pod"} {
			for _, reason := range reasons {
				event := podEvent(reason, "", time.Now())
				event.Namespace, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Source.Host = namespace, kind, "gpu-17", "gpu-17"
				o := ofEvent(event)
				if reason == "SystemOOM" && kind == "Pod" {
					continue // is said of pods, too
				}
				require.Equal(t, believed, o.meaning.Hint != "", "%s %s %s", namespace, kind, reason)
			}
		}
	}
}

// Evictions without end in one namespace have nobody forget those in another.
func TestEvictionsOfOneNamespaceHideNoneOfAnother(t *testing.T) {
	var e evicted
	now := time.Now()
	evict := func(namespace string, n int) {
		name := fmt.Sprint(namespace, "-", n)
		e.note(&occurrence{meaning: hint.Meaning{Hint: hint.PodEvicted}, namespace: namespace, name: name, objectUID: name}, place{}, now)
	}
	evict("ml", 1)
	for n := range 3 * mostRemembered {
		evict("tenant", n)
	}
	require.Len(t, e.pods, mostRemembered)
	_, is := e.take(&occurrence{namespace: "ml", name: "ml-1", objectUID: "another"}, place{})
	require.True(t, is)
	require.False(t, e.any("ml", now))
	require.True(t, e.any("tenant", now))
}
