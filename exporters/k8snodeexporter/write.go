package k8snodeexporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// conflicts is how often something is tried at once when others write to it, too;
// after that it is tried with the next attempt of the queue.
const conflicts = 5

// changed is what became of a condition.
type changed struct {
	outcome string
	aside   string // for the Event
}

// setCondition reads the condition and writes it anew where the verdict changes it.
func (n *nodes) setCondition(ctx context.Context, step plan, v verdict.Verdict) (outcome, aside string, err error) {
	var done changed
	late := false
	for range conflicts {
		var node *corev1.Node
		if node, err = n.client.node(ctx, step.Node); err != nil {
			return "", "", err
		}
		late = step.Holds && n.ofAnotherBoot(v, node)
		done, err = n.revise(ctx, node, step.condition, func(a *nodeguard.Said) {
			if step.Holds && !late {
				a.Add(room, room.LineOf(v), n.rebootEnds(nodeguard.IDOf(v)))
			} else {
				a.Remove(nodeguard.IDOf(v), n.rebootEnds(nodeguard.IDOf(v)))
			}
		})
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if apierrors.IsConflict(err) {
		err = errors.Join(err, n.breaker.leave(ctx, step.Node))
	}
	if late && err == nil {
		done = changed{outcomeOtherBoot, " [seen in another boot of the node: it sets no condition]"}
	}
	return done.outcome, done.aside, err
}

// ofAnotherBoot reports whether the node has booted since the evidence of a verdict was
// seen, and that cures it. A verdict that does not say in which boot is of this one.
func (n *nodes) ofAnotherBoot(v verdict.Verdict, node *corev1.Node) bool {
	now := node.Status.NodeInfo.BootID
	return v.Boot != "" && now != "" && !strings.EqualFold(v.Boot, now) && n.rebootEnds(nodeguard.IDOf(v))
}

// confirm keeps what an open verdict that is told again has set. It sets nothing: a
// reboot or somebody may have ended it.
func (n *nodes) confirm(ctx context.Context, step plan, v verdict.Verdict) (outcome string, err error) {
	if !step.Holds || !n.kept[step.Node] {
		return outcomeRepeated, nil
	}
	for range conflicts {
		var node *corev1.Node
		if node, err = n.client.node(ctx, step.Node); err != nil {
			return "", err
		}
		old := find(node, step.condition)
		said := read(old)
		if said.Booted(node.Status.NodeInfo.BootID, n.rebootEnds); !said.Has(nodeguard.IDOf(v), n.rebootEnds(nodeguard.IDOf(v))) {
			return outcomeRepeated, nil
		}
		status, reason, note := corev1.ConditionTrue, reasonOf(&said), ""
		if old.Reason == reasonHeldBack {
			status, reason, note = old.Status, old.Reason, n.heldNote(node.Name, &said)
		}
		if n.now().Sub(old.LastHeartbeatTime.Time) < n.config.Stale/4 && old.Status == status {
			return outcomeRepeated, nil
		}
		if err = n.put(ctx, node, next(old, step.condition, status, reason, said.Write(note), n.time())); !apierrors.IsConflict(err) {
			break
		}
	}
	return outcomeRepeated, err
}

// revise changes what a condition says, and gives it the status that follows.
func (n *nodes) revise(ctx context.Context, node *corev1.Node, kind corev1.NodeConditionType, change func(*nodeguard.Said)) (changed, error) {
	old := find(node, kind)
	said := read(old)
	before := said.Write("")
	said.Booted(node.Status.NodeInfo.BootID, n.rebootEnds)
	change(&said)
	switch {
	case said.Empty():
		return changed{outcome: outcomeApplied}, n.release(ctx, node, old, kind, before)
	case n.config.Mode == modeObserve:
		return changed{outcomeObserved, fmt.Sprintf(" [observe: %s would be True]", kind)}, nil
	case old != nil && stands(old):
		return changed{outcome: outcomeApplied}, n.write(ctx, node, next(old, kind, corev1.ConditionTrue, reasonOf(&said), said.Write(""), n.time()))
	}
	why := ""
	agreement := agreed(node, &said)
	if agreement == "" {
		var err error
		if why, err = n.breaker.admit(ctx, node.Name); err != nil {
			return changed{}, err
		}
	}
	if why != "" {
		n.warn(outcomeHeldBack, fmt.Errorf("the condition of node %s: %s; the Event of the node says how to agree", node.Name, why))
		note := n.heldNote(node.Name, &said)
		return changed{outcomeHeldBack, " [held back: " + why + ". " + note + "]"},
			n.write(ctx, node, next(old, kind, corev1.ConditionUnknown, reasonHeldBack, said.Write(note), n.time()))
	}
	done := changed{outcome: outcomeApplied}
	if agreement != "" {
		n.logger.Warn("an operator agreed to a node condition", zap.String("node", node.Name), zap.String("condition", string(kind)), zap.String("verdict", agreement))
		done.aside = " [agreed: annotation " + AnnotationAgree + "]"
	}
	err := n.write(ctx, node, next(old, kind, corev1.ConditionTrue, reasonOf(&said), said.Write(""), n.time()))
	switch {
	case err == nil:
		n.breaker.entered = ""
	case ofOneNode(err) && !apierrors.IsConflict(err):
		err = errors.Join(err, n.breaker.leave(ctx, node.Name))
	}
	return done, err
}

// heldNote says how an operator lets a condition through.
func (n *nodes) heldNote(node string, said *nodeguard.Said) string {
	if len(said.Lines) == 0 {
		return "held back by the breaker"
	}
	return fmt.Sprintf("to agree: kubectl annotate --overwrite node %s %s=%s", node, AnnotationAgree, said.Lines[0].ID)
}

// release ends a condition that says nothing any more. One that was never True goes
// without a trace.
func (n *nodes) release(ctx context.Context, node *corev1.Node, old *corev1.NodeCondition, kind corev1.NodeConditionType, before string) error {
	switch {
	case old == nil || !ours(old) || old.Status == corev1.ConditionFalse:
		return nil
	case old.Reason == reasonHeldBack:
		return n.remove(ctx, node, kind)
	}
	if before == "" {
		before = old.Message
	}
	return n.write(ctx, node, next(old, kind, corev1.ConditionFalse, reasonNone, "no longer holds: "+before, n.time()))
}

// write gives a node a condition, unless it has it.
func (n *nodes) write(ctx context.Context, node *corev1.Node, c corev1.NodeCondition) error {
	if old := find(node, c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		return nil
	}
	return n.put(ctx, node, c)
}

// put gives a node a condition, with its heartbeat.
func (n *nodes) put(ctx context.Context, node *corev1.Node, c corev1.NodeCondition) error {
	text, err := patch(node.ResourceVersion, c)
	if err != nil {
		return err
	}
	return n.send(ctx, node, text, string(c.Status))
}

// remove takes conditions off a node.
func (n *nodes) remove(ctx context.Context, node *corev1.Node, kinds ...corev1.NodeConditionType) error {
	text, err := removal(node.ResourceVersion, kinds...)
	if err != nil {
		return err
	}
	return n.send(ctx, node, text, "removed")
}

// send changes the node, and what is known of it.
func (n *nodes) send(ctx context.Context, node *corev1.Node, text []byte, status string) error {
	after, err := n.client.patchStatus(ctx, node.Name, text)
	if err == nil {
		n.turns.Took()
		*node = *after
		n.telemetry.ExporterK8snodeConditions.Add(ctx, 1, metric.WithAttributes(attribute.String("status", status)))
	}
	return err
}

// rebootEnds reports whether a reboot of its node ends a verdict.
func (n *nodes) rebootEnds(id string) bool {
	return slices.Contains(n.config.RebootEnds, nodeguard.PatternOf(id))
}

func (n *nodes) time() metav1.Time { return metav1.NewTime(n.now()) }
