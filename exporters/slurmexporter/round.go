package slurmexporter

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
)

// States of nodes, as metadata.yaml lists them.
const (
	stateDrained     = "drained"
	stateHeldBack    = "held_back"
	stateUnconfirmed = "unconfirmed"
)

// round looks after every node that tracecore drained: what a reboot ended, what nobody
// confirms, and, where this process only observes, all that stands; then after those that
// are held back and may be drained now; last after verdicts that were refused alone.
func (d *drains) round(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	nodes, err := d.slurm.nodes(ctx)
	if err != nil {
		return err
	}
	d.book.forget(nodes, d.config.Breaker.Recent(d.book.Ledger, d.now()))
	var problems []error
	count := map[string]int64{}
	for i := range nodes {
		n := &nodes[i]
		_, held := d.book.Held[n.name]
		if !n.ours() && !held {
			continue
		}
		if err := d.look(ctx, nodes, n); err != nil {
			problems = append(problems, fmt.Errorf("node %s: %w", n.name, err))
		}
		d.book.note(n)
		if state := d.stateOf(n); state != "" {
			count[state]++
		}
	}
	for _, state := range []string{stateDrained, stateHeldBack, stateUnconfirmed} {
		d.telemetry.ExporterSlurmNodes.Record(ctx, count[state], metric.WithAttributes(attribute.String("state", state)))
	}
	err = d.book.save(ctx)
	d.turns.Again(ctx)
	return errors.Join(append(problems, err)...)
}

func (d *drains) look(ctx context.Context, nodes []node, n *node) error {
	switch {
	case d.config.Mode == modeObserve:
		return d.release(ctx, n)
	case n.ours() && d.unconfirmed(n):
		// Silence does not clear a cause: the node stays as it is, and says so.
		said := n.said()
		return d.reword(ctx, n, reasonOf(&said, "nobody has confirmed this for "+d.config.Stale.String()))
	}
	_, err := d.revise(ctx, nodes, n, func(*nodeguard.Said) {})
	return err
}

func (d *drains) unconfirmed(n *node) bool {
	said := n.said()
	if said.Booted(n.bootID(), d.rebootEnds); said.Empty() {
		return false // the boot ended it
	}
	return nodeguard.Unconfirmed(d.turns.Heard(d.book.Confirmed[n.name]), d.now(), d.config.Stale)
}

func (d *drains) stateOf(n *node) string {
	switch _, held := d.book.Held[n.name]; {
	case n.ours() && d.unconfirmed(n):
		return stateUnconfirmed
	case n.ours():
		return stateDrained
	case held:
		return stateHeldBack
	}
	return ""
}
