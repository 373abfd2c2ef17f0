package k8snodeexporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What became of a verdict, as metadata.yaml lists it.
const (
	outcomeApplied   = "applied"
	outcomeInvalid   = "invalid"
	outcomeNoNode    = "no_node"
	outcomeRefused   = "refused"
	outcomeSymptom   = "symptom"
	outcomeUnchanged = "unchanged"
)

// conflicts is how often a condition is tried at once when others write to the
// node, too; after that it is tried with the next attempt of the queue.
const conflicts = 5

// nodes applies verdicts to the nodes of a cluster.
type nodes struct {
	config    *Config
	connect   func(*Config) (api, error)
	client    api
	now       func() time.Time
	telemetry *metadata.TelemetryBuilder
	logger    *zap.Logger
	known     *memory
	warned    map[string]bool // one log line for each outcome; metrics count the rest
	waiting   bool            // the last attempt failed; one log line for each outage
}

func newNodes(config *Config, set exporter.Settings, connect func(*Config) (api, error), now func() time.Time) (*nodes, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return &nodes{
		config: config, connect: connect, now: now, telemetry: telemetry, logger: set.Logger,
		known: newMemory(mostKnown), warned: map[string]bool{},
	}, nil
}

func (n *nodes) start(context.Context, component.Host) (err error) {
	n.client, err = n.connect(n.config)
	return err
}

func (n *nodes) shutdown(context.Context) error {
	n.telemetry.Shutdown()
	return nil
}

// consume applies the verdicts in their order. What could not be applied now is
// the error's, for the next attempt. The queue has one consumer.
func (n *nodes) consume(ctx context.Context, ld plog.Logs) error {
	all := readVerdicts(ld, func() { n.countVerdict(ctx, outcomeInvalid) })
	for i, f := range all {
		outcome, err := n.apply(ctx, f)
		if err != nil {
			n.await(err)
			return consumererror.NewLogs(err, writeVerdicts(all[i:]))
		}
		n.waiting = false
		n.countVerdict(ctx, outcome)
	}
	return nil
}

// apply does what one verdict asks for. An error is worth another attempt.
func (n *nodes) apply(ctx context.Context, f found) (outcome string, err error) {
	step, ok := n.config.plan(f)
	switch {
	case !ok:
		return outcomeNoNode, nil
	case n.known.has(f.ID, step.says):
		return outcomeUnchanged, nil
	}
	outcome = outcomeSymptom
	if step.condition != "" {
		err = n.setCondition(ctx, step, f.Verdict)
		outcome = outcomeApplied
	}
	if err == nil && step.tell {
		err = n.tell(ctx, step.node, f.Verdict)
		outcome = outcomeApplied
	}
	switch {
	case apierrors.IsNotFound(err):
		outcome = outcomeNoNode
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		outcome = outcomeRefused
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("node %s: %w; give the service account the right to patch nodes/status", step.node, err)
	case err != nil:
		return "", fmt.Errorf("node %s: %w", step.node, err)
	}
	if err != nil {
		n.warn(outcome, err)
	}
	n.known.put(f.ID, step.says)
	return outcome, nil
}

// setCondition reads the condition and writes it anew where the verdict changes
// it.
func (n *nodes) setCondition(ctx context.Context, step plan, v verdict.Verdict) error {
	var err error
	for range conflicts {
		var node *corev1.Node
		if node, err = n.client.patchStatus(ctx, step.node, []byte("{}")); err != nil {
			return err
		}
		kind := corev1.NodeConditionType(step.condition)
		next, changed := revise(find(node, kind), kind, v, step.holds, metav1.NewTime(n.now()))
		if !changed {
			return nil
		}
		var patch []byte
		if patch, err = change(node.ResourceVersion, next); err != nil {
			return err
		}
		if _, err = n.client.patchStatus(ctx, step.node, patch); err == nil {
			n.telemetry.ExporterK8snodeConditions.Add(ctx, 1, metric.WithAttributes(attribute.String("status", string(next.Status))))
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// tell writes the Events of a verdict.
func (n *nodes) tell(ctx context.Context, node string, v verdict.Verdict) error {
	if err := n.createEvent(ctx, "node", newEvent(v, node, aboutNode(node))); err != nil {
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
	return n.createEvent(ctx, "pod", newEvent(v, node, pod))
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

func (n *nodes) await(err error) {
	if !n.waiting {
		n.waiting = true
		n.logger.Warn("verdicts wait until the API server takes them", zap.Error(err))
	}
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
