package gpureceiver

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/shared"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
)

// NewFactory makes the factory of the gpu receiver.
func NewFactory() receiver.Factory { return newFactory(startHelper) }

// newFactory lets a test bring its own helper.
func newFactory(start starter) receiver.Factory {
	f := &monitors{start: start}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(f.createLogs, metadata.LogsStability),
		receiver.WithMetrics(f.createMetrics, metadata.MetricsStability),
	)
}

// monitors finds the one monitor of a component id: the service makes an instance
// for each signal.
type monitors struct {
	start starter
	byID  shared.ByID[*monitor]
}

func (f *monitors) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return f.join(settings, config, func(m *monitor) (err error) {
		m.logs, err = outbox.NewLogs(next, m.outbox())
		return err
	})
}

func (f *monitors) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return f.join(settings, config, func(m *monitor) (err error) {
		m.metrics, err = outbox.NewMetrics(next, m.outbox())
		return err
	})
}

// join makes an instance of the monitor of a component id.
func (f *monitors) join(settings receiver.Settings, config component.Config, connect func(*monitor) error) (*instance, error) {
	share, err := f.byID.Join(settings.ID, func() (*monitor, error) { return newMonitor(settings, config.(*Config), f.start) })
	if err != nil {
		return nil, err
	}
	if err := connect(share.Value); err != nil {
		return nil, errors.Join(err, share.Leave(nil))
	}
	return &instance{monitor: share.Value, share: share}, nil
}

// instance is what the service has of a monitor for one signal.
type instance struct {
	monitor *monitor
	share   *shared.Share[*monitor]
}

// Start starts the monitor, if it is the first.
func (i *instance) Start(ctx context.Context, host component.Host) error {
	return i.monitor.Start(ctx, host)
}

// Shutdown stops the monitor: all instances of a component stop together, and no
// record may come out of one that has.
func (i *instance) Shutdown(ctx context.Context) error {
	return errors.Join(i.monitor.Shutdown(ctx), i.share.Leave(nil))
}
