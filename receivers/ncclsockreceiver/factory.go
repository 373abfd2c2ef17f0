package ncclsockreceiver

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/shared"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
)

// opener opens the probe for at most so many sockets and processes.
type opener func(maxSockets, maxProcesses uint32) (source, error)

// NewFactory makes the factory of the ncclsock receiver.
func NewFactory() receiver.Factory { return newFactory(openSource) }

// newFactory lets a test bring its own source.
func newFactory(open opener) receiver.Factory {
	r := &registry{open: open}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(r.createLogs, metadata.LogsStability),
		receiver.WithMetrics(r.createMetrics, metadata.MetricsStability),
	)
}

// registry finds the one watcher of a component id: the service makes an
// instance for each signal.
type registry struct {
	open     opener
	watchers shared.ByID[*watcher]
}

func (r *registry) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return r.join(settings, config.(*Config), func(w *watcher) { w.out.logs = next })
}

func (r *registry) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return r.join(settings, config.(*Config), func(w *watcher) { w.out.metrics = next })
}

// join makes an instance of the watcher of a component id.
func (r *registry) join(settings receiver.Settings, config *Config, connect func(*watcher)) (*instance, error) {
	share, err := r.watchers.Join(settings.ID, func() (*watcher, error) { return newWatcher(settings, config, r.open) })
	if err != nil {
		return nil, err
	}
	connect(share.Value)
	return &instance{share: share}, nil
}

// instance is what the service has of a watcher for one signal.
type instance struct {
	share *shared.Share[*watcher]
}

// Start starts the watcher, if it is the first.
func (i *instance) Start(_ context.Context, host component.Host) error {
	return i.share.Value.start(host)
}

// Shutdown stops the watcher: all instances of a component stop together, and no
// record may come out of one that has.
func (i *instance) Shutdown(ctx context.Context) error {
	return errors.Join(i.share.Value.shutdown(ctx), i.share.Leave(nil))
}
