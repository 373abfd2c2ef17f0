package kerneleventsreceiver

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

	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// xidGenerator writes Xids whose codes are the ids of the contract checker.
type xidGenerator struct {
	source *fakeSource
	last   atomic.Uint32
}

func (*xidGenerator) Start() {}
func (*xidGenerator) Stop()  {}

func (g *xidGenerator) Generate() []receivertest.UniqueIDAttrVal {
	code := 1000 + g.last.Add(1)
	g.source.write(fmt.Sprintf("NVRM: Xid (PCI:0000:65:00): %d, pid=42, name=python, unheard of", code))
	return []receivertest.UniqueIDAttrVal{receivertest.UniqueIDAttrVal(fmt.Sprint(code))}
}

// identifying names each record for the contract checker by its Xid.
func identifying(next consumer.Logs) (consumer.Logs, error) {
	return consumer.NewLogs(func(ctx context.Context, logs plog.Logs) error {
		for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			code, _ := r.Attributes().Get("kernelevents.xid")
			r.Attributes().PutStr(receivertest.UniqueIDAttrName, code.AsString())
		}
		return next.ConsumeLogs(ctx, logs)
	})
}

func TestConsumeContract(t *testing.T) {
	generator := &xidGenerator{}
	inner := newFactory(func() (source, error) {
		generator.source = newFakeSource()
		return generator.source, nil
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
		GenerateCount: 200,
	})
}
