package gpu

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
)

// Registry finds the one Monitor of a component id: the service makes an
// instance for each signal. An entry lives from the first creation to the last
// Shutdown of its instances.
type Registry struct {
	bring func(receiver.Settings, component.Config) (Parts, error)

	mu       sync.Mutex // guards monitors and their instances
	monitors map[component.ID]*Monitor
}

// NewRegistry makes monitors of the parts that a receiver brings.
func NewRegistry(bring func(receiver.Settings, component.Config) (Parts, error)) *Registry {
	return &Registry{bring: bring, monitors: map[component.ID]*Monitor{}}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.monitors[settings.ID]
	if m == nil {
		parts, err := r.bring(settings, config)
		if err != nil {
			return nil, err
		}
		if m, err = newMonitor(settings, parts); err != nil {
			return nil, err
		}
		r.monitors[settings.ID] = m
	}
	m.instances++
	connect(m)
	return &Instance{Monitor: m, registry: r}, nil
}

// leave drops one instance and with the last of them the monitor.
func (r *Registry) leave(m *Monitor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.instances--; m.instances == 0 && r.monitors[m.settings.ID] == m {
		delete(r.monitors, m.settings.ID)
	}
}

// Instance is what the service has of a monitor for one signal.
type Instance struct {
	Monitor  *Monitor
	registry *Registry
	once     sync.Once
}

// Start starts the monitor, if it is the first.
func (i *Instance) Start(ctx context.Context, host component.Host) error {
	return i.Monitor.Start(ctx, host)
}

// Shutdown stops the monitor: all instances of a component stop together, and no
// record may come out of one that has.
func (i *Instance) Shutdown(ctx context.Context) error {
	var err error
	i.once.Do(func() {
		err = i.Monitor.Shutdown(ctx)
		i.registry.leave(i.Monitor)
	})
	return err
}
