package k8seventsreceiver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

// evictions evicts pods whose event uids are the ids of the contract checker.
type evictions struct {
	t       *testing.T
	mu      sync.Mutex // the checker asks from several goroutines
	cluster *cluster
	watch   *watch.FakeWatcher
}

func (*evictions) Start() {}
func (*evictions) Stop()  {}

func (e *evictions) Generate() []receivertest.UniqueIDAttrVal {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watch == nil {
		e.watch = nextWatch(e.t, e.cluster.watches)
	}
	event := podEvent("Evicted", "", time.Now())
	e.watch.Add(event)
	return []receivertest.UniqueIDAttrVal{receivertest.UniqueIDAttrVal(event.UID)}
}

// identifying names each record for the contract checker by its event's uid.
func identifying(next consumer.Logs) (consumer.Logs, error) {
	return consumer.NewLogs(func(ctx context.Context, logs plog.Logs) error {
		for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			uid, _ := r.Attributes().Get("k8s.event.uid")
			r.Attributes().PutStr(receivertest.UniqueIDAttrName, uid.Str())
		}
		return next.ConsumeLogs(ctx, logs)
	})
}

func TestConsumeContract(t *testing.T) {
	generator := &evictions{t: t}
	inner := newFactory(func(*Config) (api, error) {
		generator.cluster, generator.watch = newCluster(trainingPod()), nil
		return generator.cluster, nil
	})
	create := func(ctx context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		next, err := identifying(next)
		require.NoError(t, err)
		return inner.CreateLogs(ctx, settings, config, next)
	}
	receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
		T:             t,
		Factory:       receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability)),
		Signal:        pipeline.SignalLogs,
		Config:        createDefaultConfig(),
		Generator:     generator,
		GenerateCount: 50,
	})
}
