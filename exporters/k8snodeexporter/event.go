package k8snodeexporter

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// longestNote is the 1 KiB that the API allows (events.k8s.io/v1, note).
const longestNote = 1024

// aboutNode refers to a node as kubelets do: with its name for a uid, by which
// `kubectl describe node` looks for Events. They are in the namespace default,
// as those of every object that has none.
func aboutNode(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}

// aboutPod refers to the pod that a verdict names; false when it does not know
// its name, or that cannot be one.
func aboutPod(culprit map[string]string) (corev1.ObjectReference, bool) {
	namespace, name := culprit["namespace"], culprit["pod_name"]
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return corev1.ObjectReference{}, false
	}
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name, UID: types.UID(culprit["pod"])}, true
}

// newEvent says what a verdict says, and aside what became of its condition. Its name
// is made of what it says, so that the API server itself refuses to take it twice.
func newEvent(v verdict.Verdict, node, aside string, about corev1.ObjectReference) *corev1.Event {
	key := sha256.Sum256([]byte(strings.Join([]string{v.ID, string(v.Status), string(v.Confidence), string(about.UID), aside}, "\x00")))
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	last := v.Updated
	if v.Resolved != nil {
		last = *v.Resolved
	}
	kind := corev1.EventTypeWarning
	if v.Status == verdict.Resolved {
		kind = corev1.EventTypeNormal
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "tracecore." + hex.EncodeToString(key[:16]), Namespace: namespace},
		InvolvedObject: about, Reason: verdicts.Name(v.Pattern), Message: note(v, aside), Type: kind, Count: 1,
		FirstTimestamp: metav1.NewTime(v.Onset), LastTimestamp: metav1.NewTime(last),
		Source: corev1.EventSource{Component: manager, Host: node}, ReportingController: manager,
	}
}

// note is a verdict in one line: what, how sure, what to do, which, and aside.
func note(v verdict.Verdict, aside string) string {
	end := " (" + nodeguard.IDOf(v) + ")" + aside
	text := safetext.Object(v.Headline)
	switch {
	case v.Status == verdict.Resolved:
		text = "resolved: " + text
	case v.Confidence == verdict.Partial:
		text = "likely: " + text
	}
	if v.Drill {
		text = "DRILL: " + text
	}
	if v.Status == verdict.Open && v.Remediation != "" {
		text += ". " + strings.Join(strings.Fields(safetext.Object(v.Remediation)), " ")
	}
	return safetext.Clip(text, longestNote-len(end)) + end
}
