package cudaoomreceiver

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
)

// refusalGenerator refuses memory to processes whose pids are the ids of the contract checker.
type refusalGenerator struct {
	source *fakeSource
	last   atomic.Uint32
}

func (*refusalGenerator) Start() {}
func (*refusalGenerator) Stop()  {}

func (g *refusalGenerator) Generate() []receivertest.UniqueIDAttrVal {
	pid := g.last.Add(1)
	g.source.events <- cudaoom.Event{Time: start, PID: pid, Thread: pid, SizeBytes: 1} // long ago: it has settled
	return []receivertest.UniqueIDAttrVal{receivertest.UniqueIDAttrVal(fmt.Sprint(pid))}
}

// identifying names each record for the contract checker by its pid.
func identifying(next consumer.Logs) (consumer.Logs, error) {
	return consumer.NewLogs(func(ctx context.Context, logs plog.Logs) error {
		for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			pid, _ := r.Attributes().Get("process.pid")
			r.Attributes().PutStr(receivertest.UniqueIDAttrName, pid.AsString())
		}
		return next.ConsumeLogs(ctx, logs)
	})
}

// withRanks starts a receiver on a host that knows processes.
type withRanks struct{ receiver.Logs }

func (r withRanks) Start(ctx context.Context, _ component.Host) error {
	host := newFakeHost()
	host.extensions[identityID] = &fakeResolver{}
	return r.Logs.Start(ctx, host)
}

func TestConsumeContract(t *testing.T) {
	generator := &refusalGenerator{}
	config := *createDefaultConfig().(*Config)
	config.Identity, config.Settle = &identityID, minSettle
	inner := newFactory(func(int) (source, error) {
		generator.source = newFakeSource()
		return generator.source, nil
	})
	create := func(ctx context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		next, err := identifying(next)
		require.NoError(t, err)
		created, err := inner.CreateLogs(ctx, settings, config, next)
		return withRanks{created}, err
	}
	receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
		T:             t,
		Factory:       receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability)),
		Signal:        pipeline.SignalLogs,
		Config:        &config,
		Generator:     generator,
		GenerateCount: 200,
	})
}
