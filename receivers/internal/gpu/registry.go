package gpu

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/shared"
)

// Registry finds the one Monitor of a component id: the service makes an
// instance for each signal.
type Registry struct {
	bring    func(receiver.Settings, component.Config) (Parts, error)
	monitors shared.ByID[*Monitor]
}

// NewRegistry makes monitors of the parts that a receiver brings.
func NewRegistry(bring func(receiver.Settings, component.Config) (Parts, error)) *Registry {
	return &Registry{bring: bring}
}

// CreateLogs makes the instance for logs.
func (r *Registry) CreateLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return r.join(settings, config, func(m *Monitor) { m.out.logs = next })
}

// CreateMetrics makes the instance for metrics.
func (r *Registry) CreateMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return r.join(settings, config, func(m *Monitor) { m.out.metrics = next })
}

// join makes an instance of the monitor of a component id.
func (r *Registry) join(settings receiver.Settings, config component.Config, connect func(*Monitor)) (*Instance, error) {
	share, err := r.monitors.Join(settings.ID, func() (*Monitor, error) {
		parts, err := r.bring(settings, config)
		if err != nil {
			return nil, err
		}
		return newMonitor(settings, parts)
	})
	if err != nil {
		return nil, err
	}
	connect(share.Value)
	return &Instance{Monitor: share.Value, share: share}, nil
}

// Instance is what the service has of a monitor for one signal.
type Instance struct {
	Monitor *Monitor
	share   *shared.Share[*Monitor]
}

// Start starts the monitor, if it is the first.
func (i *Instance) Start(ctx context.Context, host component.Host) error {
	return i.Monitor.Start(ctx, host)
}

// Shutdown stops the monitor: all instances of a component stop together, and no
// record may come out of one that has.
func (i *Instance) Shutdown(ctx context.Context) error {
	return errors.Join(i.Monitor.Shutdown(ctx), i.share.Leave(nil))
}
