package probereceivertest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// Generator is what makes a receiver emit one record after the other: Make causes
// the record with that number and returns the text of the attribute that tells it
// from the others.
type Generator struct {
	Attribute string // "process.pid"
	Make      func(number uint32) string

	mu   sync.Mutex // the collector's test calls at the same time
	last uint32
}

// Start is receivertest.Generator's.
func (*Generator) Start() {}

// Stop is receivertest.Generator's.
func (*Generator) Stop() {}

// Generate is receivertest.Generator's.
func (g *Generator) Generate() []receivertest.UniqueIDAttrVal {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	return []receivertest.UniqueIDAttrVal{receivertest.UniqueIDAttrVal(g.Make(g.last))}
}

// onBench starts a receiver on the host of a bench, which has extensions.
type onBench struct {
	receiver.Logs
	host component.Host
}

func (r onBench) Start(ctx context.Context, _ component.Host) error { return r.Logs.Start(ctx, r.host) }

// Contract holds a receiver of logs to what the collector demands of one whose
// consumers refuse now and then: no record is lost or told twice. A factory is made
// for each of the collector's tests.
func Contract(t *testing.T, b *Bench, g *Generator, config component.Config, factory func() receiver.Factory) {
	create := func(ctx context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		identifying, err := consumer.NewLogs(func(ctx context.Context, logs plog.Logs) error {
			EachRecord(logs, func(r plog.LogRecord) {
				id, _ := r.Attributes().Get(g.Attribute)
				r.Attributes().PutStr(receivertest.UniqueIDAttrName, id.AsString())
			})
			return next.ConsumeLogs(ctx, logs)
		})
		require.NoError(t, err)
		created, err := factory().CreateLogs(ctx, settings, config, identifying)
		return onBench{created, b.Host}, err
	}
	of := factory()
	receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
		T:             t,
		Factory:       receiver.NewFactory(of.Type(), of.CreateDefaultConfig, receiver.WithLogs(create, of.LogsStability())),
		Signal:        pipeline.SignalLogs,
		Config:        config,
		Generator:     g,
		GenerateCount: 40, // the checker waits 5 s at most for the last
	})
}
