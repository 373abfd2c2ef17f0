package ncclsockreceiver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// stallGenerator makes ranks stall whose pids are the ids of the contract checker.
type stallGenerator struct {
	mu      sync.Mutex
	watcher *watcher
	last    atomic.Uint32
}

func (*stallGenerator) Start() {}
func (*stallGenerator) Stop()  {}

func (g *stallGenerator) Generate() []receivertest.UniqueIDAttrVal {
	g.mu.Lock()
	defer g.mu.Unlock()
	pid := g.last.Add(1)
	g.watcher.tell([]stall.Event{{
		ID: "s", Time: start, Cause: socketstall.NotReading, Direction: socketstall.Receive, Kind: socketstall.Data, Process: identity.Process{PID: pid}, Socket: unread(),
	}})
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

func TestConsumeContract(t *testing.T) {
	generator := &stallGenerator{}
	inner := newFactory(func(uint32, uint32) (source, error) { return newFakeSource(), nil })
	create := func(ctx context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		next, err := identifying(next)
		require.NoError(t, err)
		config.(*Config).ErrorMode = record.Ignore
		r, err := inner.CreateLogs(ctx, settings, config, next)
		require.NoError(t, err)
		w := r.(*instance).share.Value
		w.out.batches = make(chan batch, 1000) // the generator does not wait for seconds to pass
		w.ticks = func(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }
		generator.mu.Lock()
		generator.watcher = w
		generator.mu.Unlock()
		return r, err
	}
	receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
		T:             t,
		Factory:       receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability)),
		Signal:        pipeline.SignalLogs,
		Config:        createDefaultConfig(),
		Generator:     generator,
		GenerateCount: 200,
	})
}
