package fusefaultreceiver

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
)

// NewFactory makes the factory of the fusefault receiver.
func NewFactory() receiver.Factory {
	return newFactory(surroundings{open: openSource, ticks: every})
}

// surroundings are what a test brings its own of.
type surroundings struct {
	open  func(*Config) (source, machine, error)
	ticks func(time.Duration) (ticks <-chan time.Time, stop func())
}

func every(interval time.Duration) (<-chan time.Time, func()) {
	ticker := time.NewTicker(interval)
	return ticker.C, ticker.Stop
}

func newFactory(around surroundings) receiver.Factory {
	r := &registry{around: around, watchers: map[component.ID]*watcher{}}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(r.createLogs, metadata.LogsStability),
		receiver.WithMetrics(r.createMetrics, metadata.MetricsStability),
	)
}

// registry finds the one watcher of a component id: the service makes an instance
// for each signal, and both look at one probe. An entry lives from the first
// creation to the last Shutdown of its instances.
type registry struct {
	around surroundings

	mu       sync.Mutex
	watchers map[component.ID]*watcher
}

func (r *registry) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return r.instance(settings, config.(*Config), func(w *watcher) outlet { return &logsOutlet{watcher: w, next: next} })
}

func (r *registry) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return r.instance(settings, config.(*Config), func(w *watcher) outlet { return &metricsOutlet{watcher: w, next: next} })
}

func (r *registry) instance(settings receiver.Settings, config *Config, way func(*watcher) outlet) (*instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watchers[settings.ID]
	if w == nil {
		var err error
		if w, err = newWatcher(settings, config, r.around); err != nil {
			return nil, err
		}
		r.watchers[settings.ID] = w
	}
	w.instances++
	return &instance{registry: r, watcher: w, exit: &exit{outlet: way(w)}}, nil
}

// leave drops one instance and with the last of them the watcher.
func (r *registry) leave(ctx context.Context, w *watcher) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.instances--; w.instances > 0 {
		return nil
	}
	delete(r.watchers, w.settings.ID)
	return w.shutdown(ctx)
}

// instance is the receiver of one signal.
type instance struct {
	registry *registry
	watcher  *watcher
	exit     *exit
	stop     sync.Once
}

// Start opens the probe, if no other signal has, and begins to receive.
func (i *instance) Start(_ context.Context, host component.Host) error {
	return i.watcher.start(host, i.exit)
}

// Shutdown ends this signal and with the last one the probe. It waits, no longer
// than ctx, until the next consumer has what it was given.
func (i *instance) Shutdown(ctx context.Context) error {
	var err error
	i.stop.Do(func() { err = i.watcher.leave(ctx, i.registry, i.exit) })
	return err
}
