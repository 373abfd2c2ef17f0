package k8seventsreceiver

import (
	"cmp"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

// longestMessage is the 1 KiB that the API allows (events.k8s.io/v1, note); an
// older API server lets more through.
const longestMessage = 1024

// longestName is that of what an object is called: 253 bytes (RFC 1123 subdomain), of a
// reason 128. Who may create an Event writes into most of its fields what he likes.
const longestName = 256

// place is which pod an event is about, where it runs, for which job, and as which of its pods.
type place struct {
	uid   string
	node  string
	job   string
	index string
}

// occurrence is one thing to report: an event or a condition, in the same words.
type occurrence struct {
	meaning   hint.Meaning
	time      time.Time
	reason    string
	message   string
	uid       string
	count     int64
	kind      string
	namespace string
	name      string
	objectUID string
	part      string // the container of a pod, as the path of its field
	node      string
	job       string
}

// ofEvent reads an event of either API generation: core/v1 has first and last
// times and a count, events.k8s.io/v1 an event time and a series.
func ofEvent(e *corev1.Event) occurrence {
	o := occurrence{
		meaning: hint.OfEvent(e.Reason, e.Message), time: e.LastTimestamp.Time,
		reason: e.Reason, message: e.Message, uid: string(e.UID), count: max(1, int64(e.Count)),
		kind: e.InvolvedObject.Kind, namespace: short(e.InvolvedObject.Namespace, longestName), name: short(e.InvolvedObject.Name, longestName),
		objectUID: short(string(e.InvolvedObject.UID), longestName), part: short(e.InvolvedObject.FieldPath, longestName),
		node: e.Source.Host,
	}
	if e.Series != nil {
		o.time, o.count = e.Series.LastObservedTime.Time, int64(e.Series.Count)
	}
	for _, at := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time} {
		if o.time.IsZero() {
			o.time = at
		}
	}
	if o.node == "" && o.reason == "Preempted" { // "Preempted by pod 7f3c on node gpu-17" (pkg/scheduler/framework/preemption)
		_, o.node, _ = strings.Cut(o.message, " on node ")
	}
	if o.node = short(o.node, longestName); o.kind == "Node" {
		o.node, o.objectUID = o.name, ""
	}
	if (o.kind == "Node" || o.meaning.OfNode()) && !ofCluster(e.Namespace) {
		o.meaning = hint.Meaning{}
	}
	return o
}

// ofCluster reports whether events of a namespace can be about a node. Those of the kubelet and of
// controllers are in "default" (client-go, tools/record, makeEvent), some others in "kube-system".
// Who may create events in a namespace of his own names any object and any reason there. What the
// controller of nodes says again of each pod is left out with them: the node itself says it.
func ofCluster(namespace string) bool {
	return namespace == metav1.NamespaceDefault || namespace == metav1.NamespaceSystem
}

// ofCondition reads a condition of a node.
func ofCondition(node string, c corev1.NodeCondition) occurrence {
	return occurrence{
		meaning: hint.OfCondition(string(c.Type), string(c.Status)), time: c.LastTransitionTime.Time,
		reason: string(c.Type), message: cmp.Or(c.Message, c.Reason), count: 1, kind: "Node", name: node, node: node,
	}
}

// severities are how loud each hint is by itself; the patterns judge.
var severities = map[hint.Hint]record.Severity{
	hint.PodEvicted: record.Error, hint.PodPreempted: record.Error, hint.OOMKilled: record.Error, hint.NodeUnhealthy: record.Error,
	hint.MountFailure: record.Error, hint.SandboxFailed: record.Error, hint.DeviceUnavailable: record.Error,
	hint.NodeRecovered: record.Info, hint.PodReplaced: record.Info,
	hint.PodScheduled: record.Info, hint.PodStarted: record.Info,
}

// logs makes a record of an occurrence.
func logs(builder *metadata.LogsBuilder, o *occurrence, observed time.Time) plog.Logs {
	message := short(o.message, longestMessage)
	a := builder.K8sEvent(record.Head{
		Trust: record.Claimed, Time: o.time, Observed: observed, Severity: cmp.Or(severities[o.meaning.Hint], record.Warning), Text: message,
	})
	a.K8sEventHint(string(o.meaning.Hint))
	a.K8sEventReason(short(o.reason, longestName))
	a.K8sEventMessage(message)
	a.K8sEventCount(o.count)
	a.K8sObjectKind(short(o.kind, longestName))
	a.K8sObjectName(short(o.name, longestName))
	a.K8sEventUID(short(o.uid, longestName))
	a.K8sNamespaceName(short(o.namespace, longestName))
	a.K8sNodeName(short(o.node, longestName))
	a.K8sNodePressure(o.meaning.Pressure)
	a.GenAiTrainingJobID(short(o.job, longestName))
	if o.job != "" && o.namespace != "" { // a namespace may have a job of the name of another's
		a.GenAiTrainingJobDomain(identity.DomainOfNamespace(short(o.namespace, longestName)))
	}
	if o.kind == "Pod" {
		a.K8sPodName(short(o.name, longestName))
		a.K8sPodUID(short(o.objectUID, longestName))
	}
	return builder.Emit()
}

// short cuts a text, at a character.
func short(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.Clone(strings.ToValidUTF8(text, "")) // the rest is not held
}
