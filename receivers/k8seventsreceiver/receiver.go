package k8seventsreceiver

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

// patience is how long a consumer that refuses is asked again before its record
// is dropped and counted. Meanwhile the watch stands still, and goes on where it
// stood.
const patience = 10 * time.Second

// k8sEvents is the receiver: one stream for each namespace's events and one for
// the nodes.
type k8sEvents struct {
	config    *Config
	settings  receiver.Settings
	next      consumer.Logs
	connect   func(*Config) (api, error)
	telemetry *metadata.TelemetryBuilder
	report    *receiverhelper.ObsReport
	pause     time.Duration

	mu      sync.Mutex // the streams share what follows
	builder *metadata.LogsBuilder

	pods       *pods
	conditions *conditions
	evicted    evicted
	failing    failing
	positions  *positions
	since      time.Time // events of a list are reported from here on, where nothing else says which are new
	giveUp     context.CancelFunc
	streams    sync.WaitGroup
	stop       sync.Once
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, connect func(*Config) (api, error)) (*k8sEvents, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	report, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: settings.ID, Transport: "http", LongLivedCtx: true, ReceiverCreateSettings: settings,
	})
	if err != nil {
		return nil, err
	}
	return &k8sEvents{
		config: config, settings: settings, next: next, connect: connect, telemetry: telemetry, report: report, pause: firstPause,
		builder: metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), conditions: newConditions(), giveUp: func() {},
	}, nil
}

// Start connects and begins to watch. An API server that cannot be reached yet is
// tried again for as long as it takes.
func (k *k8sEvents) Start(ctx context.Context, host component.Host) error {
	client, err := k.connect(k.config)
	if err != nil {
		return err
	}
	if k.positions, err = openPositions(ctx, host, k.config.Storage, k.settings.ID); err != nil {
		return err
	}
	k.pods = newPods(client, k.config.JobLabels)
	k.since = time.Now().Add(-k.config.StartupAge)
	if last := k.positions.lastTime(); !last.IsZero() {
		k.since = last.Truncate(time.Second) // the API server tells whole seconds
		k.conditions.since = k.since
	}
	k.evicted.add(k.positions.state.Evicted...)
	k.failing.add(k.positions.state.Failing...)
	k.positions.evicted, k.positions.failing = k.evicted.known, k.failing.known
	if k.config.NodeConditions {
		k.conditions.before, k.positions.bad = k.positions.state.Bad, k.conditions.known
	}
	running, giveUp := context.WithCancel(context.Background())
	k.giveUp = giveUp
	for _, s := range k.allStreams(client, host) {
		k.streams.Go(func() { s.run(running) })
	}
	return nil
}

func (k *k8sEvents) allStreams(client api, host component.Host) []*stream {
	namespaces := k.config.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all []*stream
	for _, namespace := range namespaces {
		all = append(all, k.stream(host, "events/"+namespace, client.events(namespace), k.event, func(context.Context, runtime.Object) {}))
	}
	if k.config.NodeConditions {
		s := k.stream(host, "nodes", client.nodes(), k.node, k.nodeGone)
		s.position = "" // what the conditions are must be known before a change can be seen
		s.listed = func(ctx context.Context, nodes map[string]bool) {
			for _, node := range k.conditions.listed(nodes) {
				k.removed(ctx, node)
			}
		}
		all = append(all, s)
	}
	return all
}

func (k *k8sEvents) stream(host component.Host, name string, client *cache.ListWatch, seen func(context.Context, runtime.Object, source), gone func(context.Context, runtime.Object)) *stream {
	of := metric.WithAttributes(attribute.String("resource", name))
	var unhealthy atomic.Bool // told by the stream and by the watch under it
	works := func() {
		if unhealthy.CompareAndSwap(true, false) {
			componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
		}
	}
	return &stream{
		name: name, client: client, pause: k.pause, position: k.positions.get(name),
		seen: seen, gone: gone, opened: works,
		moved: func(position string) {
			k.positions.set(name, position)
			works()
		},
		failed: func(err error) {
			if errors.Is(err, errGap) {
				k.telemetry.ReceiverK8seventsWatchGaps.Add(context.Background(), 1, of)
				return
			}
			k.telemetry.ReceiverK8seventsWatchFailures.Add(context.Background(), 1, of)
			if unhealthy.CompareAndSwap(false, true) {
				k.settings.Logger.Warn("Kubernetes events are not seen until this passes", zap.Error(err))
				componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
			}
		},
	}
}

func (k *k8sEvents) event(ctx context.Context, object runtime.Object, from source) {
	event, ok := object.(*corev1.Event)
	if !ok {
		return
	}
	if about := event.InvolvedObject.Namespace; about != "" && about != event.Namespace { // the API server lets it through, of an event with an eventTime
		k.count(ctx, "ignored")
		return
	}
	o := ofEvent(event)
	k.pods.scheduled(&o)
	old := from == seen || from == listed && o.time.Before(k.since)
	var ends []occurrence
	if o.kind == "Pod" && !old {
		ends = append(k.replaces(ctx, &o), k.begins(ctx, &o)...)
	}
	switch {
	case len(ends) > 0:
		for i := range ends {
			k.emit(ctx, &ends[i])
		}
	case o.meaning.Hint == hint.None:
		k.count(ctx, "ignored")
	case old:
		k.count(ctx, "old")
	default:
		k.emit(ctx, &o)
	}
}

// node reports the conditions of a node that turned bad, or good again.
func (k *k8sEvents) node(ctx context.Context, object runtime.Object, _ source) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	for _, condition := range node.Status.Conditions {
		if o := ofCondition(node.Name, condition); k.conditions.turned(&o) {
			o.standing(time.Now())
			k.emit(ctx, &o)
		}
	}
}

// nodeGone reports that what was bad of a node that was deleted is over.
func (k *k8sEvents) nodeGone(ctx context.Context, object runtime.Object) {
	if node, ok := object.(*corev1.Node); ok {
		k.removed(ctx, node.Name)
	}
}

func (k *k8sEvents) removed(ctx context.Context, node string) {
	for _, condition := range k.conditions.forget(node) {
		o := ofCondition(node, corev1.NodeCondition{
			Type: corev1.NodeConditionType(condition), Status: corev1.ConditionStatus(hint.Good(condition)),
			LastTransitionTime: metav1.Now(), Message: "the node was removed from the cluster",
		})
		k.emit(ctx, &o)
	}
}

func (k *k8sEvents) count(ctx context.Context, outcome string) {
	k.telemetry.ReceiverK8seventsEvents.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

// emit delivers one occurrence.
func (k *k8sEvents) emit(ctx context.Context, o *occurrence) {
	if !k.config.Events.K8sEvent.Enabled {
		return
	}
	k.count(ctx, "reported")
	if o.kind == "Pod" && !o.meaning.Ends() {
		at := k.pods.where(ctx, o)
		o.objectUID = cmp.Or(o.objectUID, at.uid)
		o.job = cmp.Or(at.job, o.job)
		o.node = cmp.Or(at.node, o.node) // the text of an event is the word of its maker
		k.evicted.note(o, at, time.Now())
		k.failing.note(o, at, time.Now())
	}
	k.mu.Lock()
	records := logs(k.builder, o, time.Now())
	k.mu.Unlock()
	ctx = k.report.StartLogsOp(ctx)
	err := record.Deliver(ctx, k.next, records, patience)
	k.report.EndLogsOp(ctx, metadata.Type.String(), 1, err)
	if err != nil {
		k.telemetry.ReceiverK8seventsRecordsDropped.Add(ctx, 1)
	}
}

// Shutdown ends the watches, and waits no longer than ctx for the record that is
// under way.
func (k *k8sEvents) Shutdown(ctx context.Context) error {
	var err error
	k.stop.Do(func() {
		defer k.telemetry.Shutdown()
		k.giveUp()
		err = record.Wait(ctx, "the next consumer holds the last record", k.streams.Wait)
		err = errors.Join(err, k.positions.close(ctx))
	})
	return err
}
