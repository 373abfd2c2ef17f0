package k8snodeexporter

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// room is what the message of a condition may say. The condition itself holds which
// verdicts it is about.
var room = nodeguard.Room{Listed: 32, Tracked: 1024, LineBytes: 256}

// Reasons of conditions. All of ours begin with own.
const (
	own               = verdicts.Own
	reasonNone        = own + "NoOpenVerdict"
	reasonMany        = own + "OpenVerdicts"
	reasonHeldBack    = own + "HeldBack"     // Unknown: the breaker waits for an operator
	reasonUnconfirmed = own + "NotConfirmed" // Unknown: it was True, nobody says so any more
)

// ours reports whether tracecore wrote a condition.
func ours(c *corev1.NodeCondition) bool { return strings.HasPrefix(c.Reason, own) }

// stands reports whether a condition of ours counts for the breaker: it is True, or
// was and may be again.
func stands(c *corev1.NodeCondition) bool {
	return ours(c) && (c.Status == corev1.ConditionTrue || c.Reason == reasonUnconfirmed)
}

// asVerdict is as much of a verdict as an Event needs.
func asVerdict(l nodeguard.Line, now time.Time) verdict.Verdict {
	pattern, id, _ := strings.Cut(l.ID, "/")
	return verdict.Verdict{
		ID: id, Pattern: pattern, Status: verdict.Open, Confidence: verdict.Full, Headline: l.Headline, Onset: now, Updated: now,
	}
}

// read is what a condition of ours says; nothing where it holds no verdict.
func read(c *corev1.NodeCondition) nodeguard.Said {
	if c == nil || !ours(c) || c.Status == corev1.ConditionFalse {
		return nodeguard.Said{}
	}
	return nodeguard.Read(c.Message)
}

// reasonOf is the reason of a condition that is True.
func reasonOf(said *nodeguard.Said) string {
	if len(said.Lines) == 0 {
		return reasonMany
	}
	return verdicts.Name(nodeguard.PatternOf(said.Lines[0].ID))
}

// find returns a condition of a node; nil when it was never set.
func find(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// removal is the patch that takes conditions off a node.
func removal(version string, kinds ...corev1.NodeConditionType) ([]byte, error) {
	gone := make([]any, len(kinds))
	for i, kind := range kinds {
		gone[i] = map[string]any{"type": kind, "$patch": "delete"}
	}
	return patch(version, gone...)
}

// patch sets conditions and leaves all others alone. The version makes it fail when
// another writer was faster.
func patch(version string, conditions ...any) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"status":   map[string]any{"conditions": conditions},
	})
}

// next is a condition as it is to be written. Its transition is now, unless its
// status stays.
func next(old *corev1.NodeCondition, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, now metav1.Time) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if old != nil && old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}
