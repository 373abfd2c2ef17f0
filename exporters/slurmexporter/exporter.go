package slurmexporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/exporters/slurmexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What became of a verdict, as metadata.yaml lists it.
const (
	outcomeApplied      = "applied"
	outcomeHeldBack     = "held_back"
	outcomeNoNode       = "no_node"
	outcomeNotProven    = "not_proven"
	outcomeObserved     = "observed"
	outcomeOtherBoot    = "other_boot"
	outcomeOtherPattern = "other_pattern"
	outcomeOthers       = "others"
	outcomeRepeated     = "repeated"
	outcomeUnchanged    = "unchanged"
)

// drains applies verdicts to the nodes of a cluster.
type drains struct {
	config    *Config
	set       exporter.Settings
	slurm     *scontrol
	now       func() time.Time
	telemetry *metadata.TelemetryBuilder
	logger    *zap.Logger
	end       context.CancelFunc
	rounds    sync.WaitGroup

	mu     sync.Mutex // verdicts and rounds take turns
	turns  verdicts.Turns
	book   *book
	known  *nodeguard.Memory
	warned map[string]bool // one log line for each outcome; metrics count the rest
}

func newDrains(config *Config, set exporter.Settings, now func() time.Time) (*drains, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	d := &drains{
		config: config, set: set, slurm: &scontrol{config.Scontrol, config.Timeout}, now: now, telemetry: telemetry, logger: set.Logger,
		book: newBook(), known: nodeguard.NewMemory(nodeguard.MostKnown), warned: map[string]bool{}, end: func() {},
	}
	d.turns.Apply, d.turns.Count, d.turns.Now = d.settle, d.count, now
	d.turns.Wait = func(err error) { d.logger.Warn("verdicts wait until Slurm takes them", zap.Error(err)) }
	d.turns.Refuse = func(err error) { d.warn(verdicts.OutcomeAside, err) }
	return d, nil
}

func (d *drains) start(ctx context.Context, host component.Host) error {
	client, err := verdicts.Storage(ctx, host, d.set.ID, d.config.QueueConfig, "drains")
	if err != nil {
		return err
	}
	if err := d.prepare(ctx, client); err != nil {
		return err
	}
	if err := d.turns.Start(ctx, host, d.set.ID, d.config.QueueConfig); err != nil {
		return err
	}
	running, end := context.WithCancel(context.Background())
	d.end = end
	d.rounds.Go(func() {
		nodeguard.Keep(running, d.config.Refresh, d.logger, "nodes of Slurm are not looked after until this passes", d.round)
	})
	return nil
}

// prepare reads what an earlier process knew.
func (d *drains) prepare(ctx context.Context, client storage.Client) error {
	return d.book.load(ctx, client)
}

func (d *drains) shutdown(ctx context.Context) error {
	d.end()
	d.rounds.Wait()
	d.telemetry.Shutdown()
	return errors.Join(d.turns.Close(ctx), d.book.close(ctx))
}

// consume applies the verdicts in their order. What could not be applied now is
// the error's, for the next attempt. The queue has one consumer.
func (d *drains) consume(ctx context.Context, ld plog.Logs) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.turns.Consume(ctx, ld)
}

// settle applies a verdict and counts what became of it.
func (d *drains) settle(ctx context.Context, f *verdicts.Found) error {
	outcome, err := d.apply(ctx, *f)
	if err == nil {
		d.count(ctx, outcome)
	}
	return err
}

// apply does what one verdict asks for. An error is worth another attempt.
func (d *drains) apply(ctx context.Context, f verdicts.Found) (outcome string, err error) {
	ours := slices.Contains(d.config.Patterns, f.Pattern)
	step := nodeguard.Judge(f, cmp.Or(f.Culprit["host"], f.Culprit["node"]), ours, verdict.Severity(d.config.MinSeverity))
	switch {
	case !ours:
		return outcomeOtherPattern, nil
	case !step.Decides:
		return outcomeNotProven, nil
	case f.Repeated:
		return outcomeRepeated, d.confirm(ctx, step, f.Verdict)
	case d.known.Has(f.ID, step.Says):
		return outcomeUnchanged, nil
	}
	nodes, err := d.slurm.nodes(ctx)
	if err != nil {
		return "", err
	}
	n := find(nodes, step.Node)
	if n == nil {
		d.warn(outcomeNoNode, fmt.Errorf("verdict %s names %q, which is no node of the cluster, or two", nodeguard.IDOf(f.Verdict), step.Node))
		return outcomeNoNode, nil
	}
	outcome, err = d.enter(ctx, nodes, n, step, f.Verdict)
	if err == nil {
		d.known.Put(f.ID, step.Says)
	}
	return outcome, err
}

// enter enters a verdict into what its node is drained for, or takes it out.
func (d *drains) enter(ctx context.Context, nodes []node, n *node, step nodeguard.Plan, v verdict.Verdict) (outcome string, err error) {
	id := nodeguard.IDOf(v)
	// Slurm knows when a node booted: evidence of before is of another boot.
	late := step.Holds && d.rebootEnds(id) && !n.boot.IsZero() && v.Updated.Before(n.boot)
	outcome, err = d.revise(ctx, nodes, n, func(said *nodeguard.Said) {
		if step.Holds && !late {
			said.Add(room, room.LineOf(v), d.rebootEnds(id))
		} else {
			said.Remove(id, d.rebootEnds(id))
		}
	})
	if late && err == nil {
		outcome = outcomeOtherBoot
	}
	if err == nil && step.Holds && !late {
		d.book.Confirmed[n.name] = d.now()
		err = d.book.save(ctx)
	}
	return outcome, err
}

// confirm notes that an open verdict was told again. It drains nothing: a reboot or somebody
// may have ended what it stood for.
func (d *drains) confirm(ctx context.Context, step nodeguard.Plan, v verdict.Verdict) error {
	name := d.book.drained[nodeguard.IDOf(v)]
	if !step.Holds || name == "" || d.now().Sub(d.book.Confirmed[name]) < d.config.Stale/4 {
		return nil
	}
	d.book.Confirmed[name] = d.now()
	return d.book.save(ctx)
}

// revise changes what a node is drained for, and does what follows.
func (d *drains) revise(ctx context.Context, nodes []node, n *node, change func(*nodeguard.Said)) (outcome string, err error) {
	said := n.said()
	if held, ok := d.book.Held[n.name]; ok && !n.ours() {
		said = nodeguard.Read(held)
	}
	said.Booted(n.bootID(), d.rebootEnds)
	change(&said)
	switch {
	case said.Empty():
		return outcomeApplied, d.release(ctx, n)
	case d.config.Mode == modeObserve:
		d.logger.Info("observe: the node would be drained", zap.String("node", n.name), zap.String("reason", reasonOf(&said, "")))
		return outcomeObserved, nil
	case n.ours():
		return outcomeApplied, d.reword(ctx, n, reasonOf(&said, ""))
	case n.others():
		d.warn(outcomeOthers, fmt.Errorf("node %s has somebody else's reason: it is left to them", n.name))
		return outcomeOthers, d.unhold(ctx, n.name)
	}
	if why := d.tooMany(nodes, n); why != "" {
		d.warn(outcomeHeldBack, fmt.Errorf("node %s is not drained: %s; drain it yourself, or raise the limits: %s", n.name, why, said.Write("")))
		d.book.Held[n.name] = said.Write("")
		return outcomeHeldBack, d.book.save(ctx)
	}
	return outcomeApplied, d.drain(ctx, n, &said)
}

// drain enters the node into the ledger, on disk, before Slurm is told: a process that ends
// between the two costs one place. A node that Slurm does not drain takes none.
func (d *drains) drain(ctx context.Context, n *node, said *nodeguard.Said) error {
	before, counted := d.book.Ledger[n.name]
	d.book.Ledger[n.name] = d.now().UTC().Format(time.RFC3339)
	delete(d.book.Held, n.name)
	if err := d.book.save(ctx); err != nil {
		return err
	}
	reason := reasonOf(said, "")
	if err := d.slurm.drain(ctx, n.name, reason); err != nil {
		d.book.Held[n.name] = said.Write("")
		if delete(d.book.Ledger, n.name); counted {
			d.book.Ledger[n.name] = before
		}
		return errors.Join(err, d.book.save(ctx))
	}
	n.states, n.reason, n.since = append(n.states, "DRAIN"), reason, d.now()
	d.changed(ctx, n, "drain")
	return nil
}

func (d *drains) reword(ctx context.Context, n *node, reason string) error {
	if n.reason == reason {
		return nil
	}
	if err := d.slurm.reword(ctx, n.name, reason); err != nil {
		return err
	}
	n.reason = reason
	d.changed(ctx, n, "reason")
	return nil
}

// release brings back a node that tracecore drained, and no other: the reason must be ours
// in a look of just now.
func (d *drains) release(ctx context.Context, n *node) error {
	if !n.ours() {
		return d.unhold(ctx, n.name)
	}
	was := n.reason
	nodes, err := d.slurm.nodes(ctx)
	if err != nil {
		return err
	}
	now := find(nodes, n.name)
	if now == nil || !now.ours() || now.reason != was {
		return nil // somebody took it over
	}
	if err := d.slurm.undrain(ctx, n.name); err != nil {
		// Slurm answers an error also where it did so: to a node whose state it does not know.
		after, again := d.slurm.nodes(ctx)
		if now = find(after, n.name); again != nil || now != nil && now.drained() {
			return err
		}
	}
	n.states = slices.DeleteFunc(n.states, func(state string) bool { return state == "DRAIN" })
	d.changed(ctx, n, "resume")
	return nil
}

func (d *drains) unhold(ctx context.Context, name string) error {
	if _, held := d.book.Held[name]; !held {
		return nil
	}
	delete(d.book.Held, name)
	return d.book.save(ctx)
}

// tooMany says why the breaker lets no more nodes be drained, "" where it does.
func (d *drains) tooMany(nodes []node, n *node) string {
	const done = "were drained"
	recent := d.config.Breaker.Recent(d.book.Ledger, d.now())
	if slices.Contains(recent, n.name) {
		return ""
	}
	counted := nodeguard.NewCluster(recent)
	counted.All = len(nodes)
	for i := range nodes {
		if other := &nodes[i]; other.ours() && other.name != n.name {
			d.config.Breaker.Out(counted, other.name, other.since, d.now())
		}
	}
	return d.config.Breaker.Crowded(counted, done, "are drained")
}

// changed tells of a change that Slurm took.
func (d *drains) changed(ctx context.Context, n *node, change string) {
	d.turns.Took()
	d.telemetry.ExporterSlurmUpdates.Add(ctx, 1, metric.WithAttributes(attribute.String("change", change)))
	d.logger.Warn("a node of Slurm was changed", zap.String("node", n.name), zap.String("change", change), zap.String("reason", n.reason))
	d.book.note(n)
}

// rebootEnds reports whether a reboot of its node ends a verdict.
func (d *drains) rebootEnds(id string) bool {
	return slices.Contains(d.config.RebootEnds, nodeguard.PatternOf(id))
}

func (d *drains) count(ctx context.Context, outcome string) {
	d.telemetry.ExporterSlurmVerdicts.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

// warn logs the first of each kind of trouble; metrics count them all.
func (d *drains) warn(outcome string, err error) {
	if !d.warned[outcome] {
		d.warned[outcome] = true
		d.logger.Warn("a verdict drains no node; more are counted and not logged", zap.String("outcome", outcome), zap.Error(err))
	}
}
