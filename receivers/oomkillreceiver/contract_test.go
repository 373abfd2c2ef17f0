package oomkillreceiver

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

	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// killGenerator kills processes whose pids are the ids of the contract checker.
type killGenerator struct {
	source *fakeSource
	last   atomic.Uint32
}

func (*killGenerator) Start() {}
func (*killGenerator) Stop()  {}

func (g *killGenerator) Generate() []receivertest.UniqueIDAttrVal {
	pid := g.last.Add(1)
	g.source.kills <- oomkill.Event{Time: start, PID: pid, Comm: "python"}
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
	generator := &killGenerator{}
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
