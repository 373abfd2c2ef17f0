package k8snodeexporter

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter/internal/metadatatest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var (
	onset = time.Date(2026, 11, 20, 14, 2, 11, 0, time.UTC)
	now   = time.Date(2026, 11, 20, 14, 3, 0, 0, time.UTC)
)

// lost says that a GPU of a node was lost.
func lost(node, id string) verdict.Verdict {
	return verdict.Verdict{
		ID: id, IncidentID: "inc-" + id, PatternID: 18, Pattern: "gpu_lost",
		Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Severity: verdict.Critical, Revision: 1,
		Onset: onset, Updated: onset, Headline: "GPU " + id + " has fallen off the bus", Remediation: "Drain the node.",
		Culprit: map[string]string{"node": node, "pod": "0f0e"},
	}
}

// but is v, changed.
func but(v verdict.Verdict, change func(*verdict.Verdict)) verdict.Verdict {
	v.Revision++
	change(&v)
	return v
}

func resolved(v verdict.Verdict) verdict.Verdict {
	return but(v, func(v *verdict.Verdict) {
		end := onset.Add(time.Minute)
		v.Status, v.Resolved = verdict.Resolved, &end
	})
}

func records(verdicts ...verdict.Verdict) plog.Logs {
	ld := plog.NewLogs()
	list := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	list.AppendEmpty().Body().SetStr("an ordinary line")
	for _, v := range verdicts {
		record := list.AppendEmpty()
		verdict.ToRecord(v, record)
		record.Attributes().PutStr(verdict.AttrTrust, verdict.Proven.String())
	}
	return ld
}

// with sets an attribute of every record.
func with(ld plog.Logs, attribute string, value any) plog.Logs {
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				_ = record.Attributes().PutEmpty(attribute).FromRaw(value)
			}
		}
	}
	return ld
}

// cluster is client-go's fake of an API server, which minds versions.
type cluster struct {
	*fake.Clientset
	before func(change string) error // of each patch, and of each read of a node with ""; may refuse it
	mu     sync.Mutex                // one change at a time, as in etcd
}

func (c *cluster) node(ctx context.Context, name string) (*corev1.Node, error) {
	if c.before != nil {
		if err := c.before(""); err != nil {
			return nil, err
		}
	}
	return c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (c *cluster) nodes(ctx context.Context, see func(*corev1.Node)) error {
	list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		see(&list.Items[i])
	}
	return nil
}

func (c *cluster) patchStatus(ctx context.Context, node string, change []byte) (*corev1.Node, error) {
	if c.before != nil {
		if err := c.before(string(change)); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var patch map[string]map[string]any
	if err := json.Unmarshal(change, &patch); err != nil {
		return nil, err
	}
	is, err := c.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if is.ResourceVersion != patch["metadata"]["resourceVersion"] {
		return nil, apierrors.NewConflict(nodesResource, node, errors.New("another version"))
	}
	patch["metadata"]["resourceVersion"] = rand.Text()
	if change, err = json.Marshal(patch); err != nil {
		return nil, err
	}
	return c.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, change, metav1.PatchOptions{}, "status")
}

func (c *cluster) createEvent(ctx context.Context, event *corev1.Event) error {
	_, err := c.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}

func (c *cluster) configMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return c.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c *cluster) updateConfigMap(ctx context.Context, changed *corev1.ConfigMap) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, err := c.configMap(ctx, changed.Namespace, changed.Name)
	if err != nil {
		return err
	}
	if is.ResourceVersion != changed.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, changed.Name, errors.New("another version"))
	}
	changed.ResourceVersion = rand.Text()
	_, err = c.CoreV1().ConfigMaps(changed.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	return err
}

func newCluster(objects ...runtime.Object) *cluster {
	for _, name := range []string{"gpu-17", "gpu-18"} {
		objects = append(objects, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu", Name: "breaker"}})
	return &cluster{Clientset: fake.NewClientset(objects...)}
}

// condition of a node; empty when it was never set.
func (c *cluster) condition(t *testing.T, node, kind string) corev1.NodeCondition {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ConditionTrue, find(n, corev1.NodeReady).Status, "what kubelets write is left alone")
	if condition := find(n, corev1.NodeConditionType(kind)); condition != nil {
		condition.LastTransitionTime.Time = condition.LastTransitionTime.UTC()
		condition.LastHeartbeatTime.Time = condition.LastHeartbeatTime.UTC()
		return *condition
	}
	return corev1.NodeCondition{}
}

// events of a namespace, by what they are about and say.
func (c *cluster) events(t *testing.T, namespace string) map[string]corev1.Event {
	t.Helper()
	list, err := c.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all := map[string]corev1.Event{}
	for _, event := range list.Items {
		all[event.InvolvedObject.Name+": "+event.Message] = event
	}
	require.Len(t, all, len(list.Items), "the same was said twice")
	return all
}

// acts lets the exporter write conditions, and the test have its rounds.
func acts(config *Config) {
	config.Mode, config.Refresh, config.RequestsPerSecond = modeAct, time.Hour, 1e6
	config.Breaker = Breaker{Breaker: nodeguard.Breaker{Nodes: 5, Percent: 100, Window: time.Hour}, Ledger: "gpu/breaker"}
}

// bench is an exporter that runs, and what it says of itself.
type bench struct {
	*nodes
	cluster   *cluster
	telemetry *componenttest.Telemetry
	logs      *observer.ObservedLogs
}

func start(t *testing.T, c *cluster, change func(*Config)) *bench {
	t.Helper()
	config := createDefaultConfig().(*Config)
	acts(config)
	if change != nil {
		change(config)
	}
	b := &bench{cluster: c, telemetry: componenttest.NewTelemetry()}
	set := metadatatest.NewSettings(b.telemetry)
	var core zapcore.Core
	core, b.logs = observer.New(zap.InfoLevel)
	set.Logger = zap.New(core)
	var err error
	b.nodes, err = newNodes(config, set, func(*Config) (api, error) { return c, nil }, func() time.Time { return now })
	require.NoError(t, err)
	require.NoError(t, b.start(t.Context(), componenttest.NewNopHost()))
	b.firstRound(t)
	t.Cleanup(func() {
		require.NoError(t, b.shutdown(context.Background()))
		require.NoError(t, b.telemetry.Shutdown(context.Background()))
	})
	return b
}

// firstRound waits until the round of the start is over.
func (b *bench) firstRound(t *testing.T) {
	t.Helper()
	b.end()
	b.rounds.Wait()
	b.cluster.ClearActions()
}

func (b *bench) send(t *testing.T, verdicts ...verdict.Verdict) {
	t.Helper()
	require.NoError(t, b.consume(t.Context(), records(verdicts...)))
}

// requests are how many of a verb and resource the API server got.
func (b *bench) requests(verb, resource string) int {
	count := 0
	for _, action := range b.cluster.Actions() {
		if action.Matches(verb, resource) || action.GetVerb() == verb && action.GetResource().Resource == resource {
			count++
		}
	}
	return count
}

func (b *bench) outcomes(t *testing.T) map[string]int64 {
	t.Helper()
	return b.counts(t, "otelcol_exporter_k8snode_verdicts", "outcome")
}

// counts are the values of a counter by one of its attributes.
func (b *bench) counts(t *testing.T, name, by string) map[string]int64 {
	t.Helper()
	metric, err := b.telemetry.GetMetric(name)
	require.NoError(t, err)
	all := map[string]int64{}
	for _, point := range metric.Data.(metricdata.Sum[int64]).DataPoints {
		value, _ := point.Attributes.Value(attribute.Key(by))
		all[value.AsString()] += point.Value
	}
	return all
}
