package k8seventsreceiver

import (
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

// TestHostileObjectsAreCutToText: whoever may create an Event writes what he likes into all
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
