package k8snodeexporter

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
)

// States of conditions, as metadata.yaml lists them.
const (
	stateCleared     = "" // by this round
	stateHeldBack    = "held_back"
	stateTrue        = "true"
	stateUnconfirmed = "unconfirmed"
)

// keep makes a round now and then.
func (n *nodes) keep(ctx context.Context) {
	nodeguard.Keep(ctx, n.config.Refresh, n.logger, "conditions of nodes are not looked after until this passes", n.round)
}

// round looks after every condition of ours: what a reboot ended, what is held back
// and may pass, what nobody confirms, and, where this process only observes, all that
// stands; last after verdicts that were refused alone.
func (n *nodes) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var some []*corev1.Node
	keep := func(node *corev1.Node) {
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; ours(c) && c.Status != corev1.ConditionFalse {
				some = append(some, node.DeepCopy()) // the page it is of can go
				return
			}
		}
	}
	if err := n.all(ctx, keep); err != nil {
		return err
	}
	n.mu.Lock()
	n.kept = map[string]bool{}
	for _, node := range some {
		n.kept[node.Name] = true
	}
	n.mu.Unlock()
	count := map[string]int64{}
	var first error
	for _, node := range some {
		if err := n.look(ctx, node, count); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && first == nil {
			first = fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	for _, state := range []string{stateHeldBack, stateTrue, stateUnconfirmed} {
		n.telemetry.ExporterK8snodeConditionsStanding.Record(ctx, count[state], metric.WithAttributes(attribute.String("state", state)))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turns.Again(ctx)
	return first
}

// all shows the nodes that this process may speak of.
func (n *nodes) all(ctx context.Context, see func(*corev1.Node)) error {
	if n.config.Node == "" {
		return n.client.nodes(ctx, see)
	}
	node, err := n.client.node(ctx, n.config.Node)
	if err == nil {
		see(node)
	}
	return err
}

func (n *nodes) look(ctx context.Context, node *corev1.Node, count map[string]int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var kinds []corev1.NodeConditionType
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; ours(c) && c.Status != corev1.ConditionFalse {
			kinds = append(kinds, c.Type)
		}
	}
	if n.config.Mode == modeObserve {
		return n.remove(ctx, node, kinds...)
	}
	for _, kind := range kinds {
		if err := n.lookAt(ctx, node, kind); err != nil {
			return err
		}
		count[stateOf(find(node, kind))]++
	}
	return nil
}

func (n *nodes) lookAt(ctx context.Context, node *corev1.Node, kind corev1.NodeConditionType) error {
	old := *find(node, kind)
	if n.stale(&old) {
		return n.doubt(ctx, node, &old)
	}
	if old.Reason == reasonUnconfirmed {
		return nil
	}
	said := read(&old)
	done, err := n.revise(ctx, node, kind, func(*nodeguard.Said) {})
	if err != nil || old.Status != corev1.ConditionUnknown || done.outcome != outcomeApplied || len(said.Lines) == 0 {
		return err
	}
	return n.createEvent(ctx, "node", newEvent(asVerdict(said.Lines[0], n.now()), node.Name, " [was held back]"+done.aside, aboutNode(node.Name)))
}

// stale reports whether nobody has confirmed a condition for too long.
func (n *nodes) stale(c *corev1.NodeCondition) bool {
	return c.Reason != reasonUnconfirmed && nodeguard.Unconfirmed(n.turns.Heard(c.LastHeartbeatTime.Time), n.now(), n.config.Stale)
}

// doubt takes back what nobody confirms: the state of the patterns was lost, or who
// judged the node is gone.
func (n *nodes) doubt(ctx context.Context, node *corev1.Node, old *corev1.NodeCondition) error {
	if old.Reason == reasonHeldBack {
		return n.remove(ctx, node, old.Type)
	}
	said := read(old)
	n.warn("unconfirmed", fmt.Errorf("nobody has confirmed the condition %s of node %s for %s: it is Unknown now", old.Type, node.Name, n.config.Stale))
	note := "nobody has confirmed this since " + old.LastHeartbeatTime.UTC().Format(time.RFC3339)
	return n.write(ctx, node, next(old, old.Type, corev1.ConditionUnknown, reasonUnconfirmed, said.Write(note), n.time()))
}

func stateOf(c *corev1.NodeCondition) string {
	switch {
	case c == nil || c.Status == corev1.ConditionFalse:
		return stateCleared
	case c.Reason == reasonHeldBack:
		return stateHeldBack
	case c.Reason == reasonUnconfirmed:
		return stateUnconfirmed
	}
	return stateTrue
}
