package ncclsockreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/shared"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
)

// surroundings are what a test brings its own of.
type surroundings struct {
	open       func(*Config) (source, error)
	ticks      probereceiver.Ticks
	collective func(pid uint32) bool // whether a process has a library of collectives
}

// NewFactory makes the factory of the ncclsock receiver.
func NewFactory() receiver.Factory {
	return newFactory(surroundings{open: openSource, ticks: probereceiver.RealTime, collective: hasCollectives})
}

func newFactory(around surroundings) receiver.Factory {
	r := &registry{around: around}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(r.createLogs, metadata.LogsStability),
		receiver.WithMetrics(r.createMetrics, metadata.MetricsStability),
	)
}

// registry finds the one watcher of a component id: the service makes an instance
// for each signal, and both look at one probe.
type registry struct {
	around   surroundings
	watchers shared.ByID[*watcher]
}

func (r *registry) join(settings receiver.Settings, config component.Config) (*shared.Share[*watcher], error) {
	return r.watchers.Join(settings.ID, func() (*watcher, error) { return newWatcher(settings, config.(*Config), r.around) })
}

func (r *registry) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	share, err := r.join(settings, config)
	if err != nil {
		return nil, err
	}
	w := share.Value
	w.logs, err = outbox.NewLogs(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: w.telemetry.ReceiverNcclsockRecordsDropped})
	return w.life.SharedReceiver(w.logs, share.Leave), err
}

func (r *registry) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	share, err := r.join(settings, config)
	if err != nil {
		return nil, err
	}
	w := share.Value
	w.metrics, err = outbox.NewMetrics(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: w.telemetry.ReceiverNcclsockMetricPointsDropped})
	return w.life.SharedReceiver(w.metrics, share.Leave), err
}
