package nvmlreceiver

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

// NewFactory makes the factory of the nvml receiver.
func NewFactory() receiver.Factory { return newFactory(startHelper) }

// newFactory lets a test bring its own helper.
func newFactory(start starter) receiver.Factory {
	r := &registry{start: start, monitors: map[component.ID]*monitor{}}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(r.createLogs, metadata.LogsStability),
		receiver.WithMetrics(r.createMetrics, metadata.MetricsStability),
	)
}

// registry finds the one monitor of a component id: the service makes an
// instance for each signal. An entry lives from the first creation to the last
// Shutdown of its instances.
type registry struct {
	start starter

	mu       sync.Mutex // guards monitors and their instances
	monitors map[component.ID]*monitor
}

func (r *registry) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return r.join(settings, config.(*Config), func(m *monitor) { m.out.logs = next })
}

func (r *registry) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return r.join(settings, config.(*Config), func(m *monitor) { m.out.metrics = next })
}

// join makes an instance of the monitor of a component id.
func (r *registry) join(settings receiver.Settings, config *Config, connect func(*monitor)) (*instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.monitors[settings.ID]
	if m == nil {
		var err error
		if m, err = newMonitor(settings, config, r.start); err != nil {
			return nil, err
		}
		r.monitors[settings.ID] = m
	}
	m.instances++
	connect(m)
	return &instance{monitor: m, registry: r}, nil
}

// leave drops one instance and with the last of them the monitor.
func (r *registry) leave(m *monitor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.instances--; m.instances == 0 && r.monitors[m.settings.ID] == m {
		delete(r.monitors, m.settings.ID)
	}
}

// instance is what the service has of a monitor for one signal.
type instance struct {
	monitor  *monitor
	registry *registry
	once     sync.Once
}

// Start starts the monitor, if it is the first.
func (i *instance) Start(ctx context.Context, host component.Host) error {
	return i.monitor.start(ctx, host)
}

// Shutdown stops the monitor: all instances of a component stop together, and no
// record may come out of one that has.
func (i *instance) Shutdown(ctx context.Context) error {
	var err error
	i.once.Do(func() {
		err = i.monitor.shutdown(ctx)
		i.registry.leave(i.monitor)
	})
	return err
}
