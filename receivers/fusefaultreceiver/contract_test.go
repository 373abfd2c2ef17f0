package fusefaultreceiver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
)

// stallGenerator makes one mount stall with each call, and then scans and
// collects. The ids of the contract checker are the mounts'.
type stallGenerator struct {
	signal pipeline.Signal

	mu                 sync.Mutex
	source             *fakeSource
	scans, collections chan time.Time
	last               uint32
}

func (*stallGenerator) Start() {}
func (*stallGenerator) Stop()  {}

// open makes the surroundings of a new receiver.
func (g *stallGenerator) open() surroundings {
	return surroundings{
		open: func(*Config) (source, machine, error) {
			g.source = &fakeSource{}
			return g.source, newFakeMachine(), nil
		},
		ticks: func(interval time.Duration) (<-chan time.Time, func()) {
			ticks := make(chan time.Time)
			if interval == collectionInterval {
				g.collections = ticks
			} else {
				g.scans = ticks
			}
			return ticks, func() {}
		},
	}
}

const collectionInterval = 7 * time.Second

func (g *stallGenerator) Generate() []receivertest.UniqueIDAttrVal {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	device := fusefault.Device{Minor: g.last}
	snapshot := fusefault.Snapshot{Time: start.Add(time.Duration(g.last) * time.Second), Mounts: []fusefault.Mount{{Device: device}}}
	if g.signal == pipeline.SignalLogs {
		snapshot.Mounts = nil // nothing on it was ever answered
		snapshot.InFlight = []fusefault.InFlight{{ID: 1, Device: device, Opcode: opRead, Start: start.Add(-time.Minute), PID: 1, TID: 1}}
	}
	g.source.show(snapshot)
	g.scans <- start
	if g.signal == pipeline.SignalMetrics {
		g.collections <- start
	}
	return []receivertest.UniqueIDAttrVal{receivertest.UniqueIDAttrVal(deviceName(device))}
}

func (g *stallGenerator) create(ctx context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	identifying, err := consumer.NewLogs(func(ctx context.Context, logs plog.Logs) error {
		for _, r := range logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			device, _ := r.Attributes().Get("fuse.device")
			r.Attributes().PutStr(receivertest.UniqueIDAttrName, device.Str())
		}
		return next.ConsumeLogs(ctx, logs)
	})
	if err != nil {
		return nil, err
	}
	return newFactory(g.open()).CreateLogs(ctx, settings, config, identifying)
}

func (g *stallGenerator) createMetrics(ctx context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	identifying, err := consumer.NewMetrics(func(ctx context.Context, metrics pmetric.Metrics) error {
		all := metrics.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		all.RemoveIf(func(m pmetric.Metric) bool { return m.Name() != "fuse.in_flight" })
		point := all.At(0).Sum().DataPoints().At(0)
		device, _ := point.Attributes().Get("fuse.device")
		point.Attributes().PutStr(receivertest.UniqueIDAttrName, device.Str())
		return next.ConsumeMetrics(ctx, metrics)
	})
	if err != nil {
		return nil, err
	}
	return newFactory(g.open()).CreateMetrics(ctx, settings, config, identifying)
}

func TestConsumeContract(t *testing.T) {
	for _, signal := range []pipeline.Signal{pipeline.SignalLogs, pipeline.SignalMetrics} {
		t.Run(fmt.Sprint(signal), func(t *testing.T) {
			generator := &stallGenerator{signal: signal}
			config := createDefaultConfig().(*Config)
			config.CollectionInterval = collectionInterval
			config.Events.FuseStallEnd.Enabled = false // it has the id of its stall
			require.NoError(t, config.Validate())
			receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
				T: t,
				Factory: receiver.NewFactory(metadata.Type, createDefaultConfig,
					receiver.WithLogs(generator.create, metadata.LogsStability), receiver.WithMetrics(generator.createMetrics, metadata.MetricsStability)),
				Signal: signal, Config: config, Generator: generator, GenerateCount: 200,
			})
		})
	}
}
