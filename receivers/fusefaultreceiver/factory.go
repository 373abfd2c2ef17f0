package fusefaultreceiver

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/shared"
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

func (r *registry) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return r.instance(settings, config.(*Config), func(w *watcher) outlet { return &logsOutlet{watcher: w, next: next} })
}

func (r *registry) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return r.instance(settings, config.(*Config), func(w *watcher) outlet { return &metricsOutlet{watcher: w, next: next} })
}

func (r *registry) instance(settings receiver.Settings, config *Config, way func(*watcher) outlet) (*instance, error) {
	share, err := r.watchers.Join(settings.ID, func() (*watcher, error) { return newWatcher(settings, config, r.around) })
	if err != nil {
		return nil, err
	}
	return &instance{share: share, exit: &exit{outlet: way(share.Value)}}, nil
}

// instance is the receiver of one signal.
type instance struct {
	share *shared.Share[*watcher]
	exit  *exit
	stop  sync.Once
}

// Start opens the probe, if no other signal has, and begins to receive.
func (i *instance) Start(_ context.Context, host component.Host) error {
	return i.share.Value.start(host, i.exit)
}

// Shutdown ends this signal and with the last one the probe. It waits, no longer
// than ctx, until the next consumer has what it was given.
func (i *instance) Shutdown(ctx context.Context) error {
	var err error
	i.stop.Do(func() {
		err = errors.Join(i.exit.close(ctx), i.share.Leave(func() error { return i.share.Value.shutdown(ctx) }))
	})
	return err
}
