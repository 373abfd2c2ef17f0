package ncclsockreceiver

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
)

// opener opens the probe for at most so many sockets and processes.
type opener func(maxSockets, maxProcesses uint32) (source, error)

// NewFactory makes the factory of the ncclsock receiver.
func NewFactory() receiver.Factory { return newFactory(openSource) }

// newFactory lets a test bring its own source.
func newFactory(open opener) receiver.Factory {
	r := &registry{open: open, watchers: map[component.ID]*watcher{}}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(r.createLogs, metadata.LogsStability),
		receiver.WithMetrics(r.createMetrics, metadata.MetricsStability),
	)
}

// registry finds the one watcher of a component id: the service makes an
// instance for each signal. An entry lives from the first creation to the last
// Shutdown of its instances.
type registry struct {
	open opener

	mu       sync.Mutex // guards watchers and their instances
	watchers map[component.ID]*watcher
}

func (r *registry) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return r.join(settings, config.(*Config), func(w *watcher) { w.out.logs = next })
}

func (r *registry) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return r.join(settings, config.(*Config), func(w *watcher) { w.out.metrics = next })
}

// join makes an instance of the watcher of a component id.
func (r *registry) join(settings receiver.Settings, config *Config, connect func(*watcher)) (*instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watchers[settings.ID]
	if w == nil {
		var err error
		if w, err = newWatcher(settings, config, r.open); err != nil {
			return nil, err
		}
		r.watchers[settings.ID] = w
	}
	w.instances++
	connect(w)
	return &instance{watcher: w, registry: r}, nil
}

// leave drops one instance and with the last of them the watcher.
func (r *registry) leave(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.instances--; w.instances == 0 && r.watchers[w.settings.ID] == w {
		delete(r.watchers, w.settings.ID)
	}
}

// instance is what the service has of a watcher for one signal.
type instance struct {
	watcher  *watcher
	registry *registry
	once     sync.Once
}

// Start starts the watcher, if it is the first.
func (i *instance) Start(_ context.Context, host component.Host) error { return i.watcher.start(host) }

// Shutdown stops the watcher: all instances of a component stop together, and no
// record may come out of one that has.
func (i *instance) Shutdown(ctx context.Context) error {
	var err error
	i.once.Do(func() {
		err = i.watcher.shutdown(ctx)
		i.registry.leave(i.watcher)
	})
	return err
}
