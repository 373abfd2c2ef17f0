package k8snodeexporter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What became of a verdict, as metadata.yaml lists it.
const (
	outcomeApplied   = "applied"
	outcomeHeldBack  = "held_back"
	outcomeNoNode    = "no_node"
	outcomeNotProven = "not_proven"
	outcomeObserved  = "observed"
	outcomeOtherBoot = "other_boot"
	outcomeRefused   = "refused"
	outcomeRepeated  = "repeated"
	outcomeSymptom   = "symptom"
	outcomeUnchanged = "unchanged"
)

// nodes applies verdicts to the nodes of a cluster.
type nodes struct {
	config    *Config
	connect   func(*Config) (api, error)
	client    api
	breaker   *breaker
	now       func() time.Time
	telemetry *metadata.TelemetryBuilder
	id        component.ID
	logger    *zap.Logger
	end       context.CancelFunc
	rounds    sync.WaitGroup

	mu     sync.Mutex // verdicts and rounds take turns
	turns  verdicts.Turns
	known  *nodeguard.Memory
	crowd  verdicts.Crowd
	kept   map[string]bool // nodes that had a condition of ours at the last round
	warned map[string]bool // one log line for each outcome; metrics count the rest
}

func newNodes(config *Config, set exporter.Settings, connect func(*Config) (api, error), now func() time.Time) (*nodes, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	n := &nodes{
		config: config, connect: connect, now: now, telemetry: telemetry, id: set.ID, logger: set.Logger,
		known: nodeguard.NewMemory(nodeguard.MostKnown), kept: map[string]bool{}, warned: map[string]bool{}, end: func() {},
	}
	n.turns.Apply, n.turns.Count, n.turns.Now = n.settle, n.countVerdict, now
	n.turns.Wait = func(err error) { n.logger.Warn("verdicts wait until the API server takes them", zap.Error(err)) }
	n.turns.Refuse = func(err error) { n.warn(verdicts.OutcomeAside, err) }
	return n, nil
}

func (n *nodes) start(ctx context.Context, host component.Host) (err error) {
	if n.client, err = n.connect(n.config); err != nil {
		return err
	}
	if err = n.turns.Start(ctx, host, n.id, n.config.QueueConfig); err != nil {
		return err
	}
	n.breaker = &breaker{Breaker: n.config.Breaker, client: n.client, now: n.now}
	running, end := context.WithCancel(context.Background())
	n.end = end
	n.rounds.Go(func() { n.keep(running) })
	return nil
}

func (n *nodes) shutdown(ctx context.Context) error {
	n.end()
	n.rounds.Wait()
	n.telemetry.Shutdown()
	return n.turns.Close(ctx)
}

// consume applies the verdicts in their order. What could not be applied now is
// the error's, for the next attempt. The queue has one consumer.
func (n *nodes) consume(ctx context.Context, ld plog.Logs) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.turns.Consume(ctx, ld)
}

// settle applies a verdict and counts what became of it.
func (n *nodes) settle(ctx context.Context, f *verdicts.Found) error {
	outcome, err := n.apply(ctx, *f)
	if err == nil {
		n.countVerdict(ctx, outcome)
	}
	return err
}

// apply does what one verdict asks for. An error is worth another attempt.
func (n *nodes) apply(ctx context.Context, f verdicts.Found) (outcome string, err error) {
	step := n.config.plan(f)
	switch {
	case !n.config.mine(step.Node):
		n.warn(outcomeNoNode, fmt.Errorf("verdict %s names no node, two nodes, or a node that this process may not speak of", nodeguard.IDOf(f.Verdict)))
		return outcomeNoNode, nil
	case f.Repeated && !n.known.Has(f.ID, outcomeOtherBoot):
		outcome, err = n.confirm(ctx, step, f.Verdict)
	case n.known.Has(f.ID, step.Says):
		return outcomeUnchanged, nil
	default:
		outcome, err = n.act(ctx, step, f.Verdict)
	}
	switch {
	case apierrors.IsNotFound(err):
		outcome = outcomeNoNode
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		outcome = outcomeRefused
	case apierrors.IsForbidden(err):
		return "", verdicts.Alone(fmt.Errorf("node %s: %w; the service account needs the right to get and list nodes and to patch nodes/status, and no admission policy may refuse it", step.Node, err))
	case ofOneNode(err):
		return "", verdicts.Alone(fmt.Errorf("node %s: %w", step.Node, err))
	case err != nil:
		return "", fmt.Errorf("node %s: %w", step.Node, err)
	}
	if err != nil {
		n.warn(outcome, err)
	}
	switch {
	case outcome == outcomeOtherBoot: // a kubelet may be slow to say that its node has booted
		n.known.Put(f.ID, outcomeOtherBoot)
	case !f.Repeated || outcome != outcomeRepeated:
		n.known.Put(f.ID, step.Says)
	}
	return outcome, nil
}

// ofOneNode reports whether an API server that is there has answered, for what it may take of
// other nodes: a webhook that fails, a conflict that lasts.
func ofOneNode(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsUnauthorized(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err)
}

// act sets or clears the condition and writes the Events of a verdict that says
// something new.
func (n *nodes) act(ctx context.Context, step plan, v verdict.Verdict) (outcome string, err error) {
	outcome, aside := outcomeSymptom, ""
	switch {
	case step.Decides:
		outcome, aside, err = n.setCondition(ctx, step, v)
	case step.condition != "":
		outcome = outcomeNotProven
	case step.tell:
		outcome = outcomeApplied
	}
	if err != nil || !step.tell {
		return outcome, err
	}
	about := verdicts.Found{Verdict: v, On: step.Node}
	if n.crowd.Full(&about, n.now()) {
		n.countEvent(ctx, "node", "crowded")
		return outcome, nil
	}
	if step.condition == "" { // nothing was asked of the node yet
		if _, err = n.client.node(ctx, step.Node); err != nil {
			return outcome, err
		}
	}
	if err = n.tell(ctx, step.Node, aside, v); err == nil {
		n.crowd.Note(&about)
	}
	return outcome, err
}

// tell writes the Events of a verdict. Aside is what became of its condition.
func (n *nodes) tell(ctx context.Context, node, aside string, v verdict.Verdict) error {
	if err := n.createEvent(ctx, "node", newEvent(v, node, aside, aboutNode(node))); err != nil {
		return err
	}
	if !n.config.PodEvents || v.Culprit["pod"] == "" && v.Culprit["pod_name"] == "" {
		return nil
	}
	pod, ok := aboutPod(v.Culprit)
	if !ok {
		n.countEvent(ctx, "pod", "no_pod")
		return nil
	}
	return n.createEvent(ctx, "pod", newEvent(v, node, aside, pod))
}

// createEvent counts what the API server does not take: a condition is not held
// up for the sake of its Event.
func (n *nodes) createEvent(ctx context.Context, object string, event *corev1.Event) error {
	err := n.client.createEvent(ctx, event)
	var status apierrors.APIStatus
	switch {
	case err == nil:
		n.countEvent(ctx, object, "created")
	case apierrors.IsAlreadyExists(err):
		n.countEvent(ctx, object, "repeated")
	case errors.As(err, &status) && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err):
		n.countEvent(ctx, object, "refused")
		n.warn("event", fmt.Errorf("event about %s %s: %w", object, event.InvolvedObject.Name, err))
	default:
		return fmt.Errorf("event about %s: %w", event.InvolvedObject.Name, err)
	}
	return nil
}

func (n *nodes) warn(what string, err error) {
	if !n.warned[what] {
		n.warned[what] = true
		n.logger.Warn("not written to Kubernetes; otelcol_exporter_k8snode_verdicts and _events count the rest", zap.String("outcome", what), zap.Error(err))
	}
}

func (n *nodes) countVerdict(ctx context.Context, outcome string) {
	n.telemetry.ExporterK8snodeVerdicts.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

func (n *nodes) countEvent(ctx context.Context, object, result string) {
	n.telemetry.ExporterK8snodeEvents.Add(ctx, 1, metric.WithAttributes(attribute.String("object", object), attribute.String("result", result)))
}
