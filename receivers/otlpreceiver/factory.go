package otlpreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/tracecoreai/tracecore/internal/ingress"
	"github.com/tracecoreai/tracecore/internal/shared"
	"github.com/tracecoreai/tracecore/receivers/otlpreceiver/internal/metadata"
)

// NewFactory makes the factory of the otlp receiver. What others send is marked.
func NewFactory() receiver.Factory { return ingress.Wrap(newFactory(), ingress.Network) }

func newFactory() receiver.Factory {
	f := &servers{}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithLogs(f.createLogs, metadata.LogsStability),
		receiver.WithMetrics(f.createMetrics, metadata.MetricsStability),
		receiver.WithTraces(f.createTraces, metadata.TracesStability),
	)
}

// servers finds the one receiver of a component id: the service makes an instance for
// each signal.
type servers struct{ byID shared.ByID[*otlpReceiver] }

func (f *servers) createLogs(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
	return f.join(settings, config, logsExporter(next))
}

func (f *servers) createMetrics(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return f.join(settings, config, metricsExporter(next))
}

func (f *servers) createTraces(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Traces) (receiver.Traces, error) {
	return f.join(settings, config, tracesExporter(next))
}

func (f *servers) join(settings receiver.Settings, config component.Config, x exporter) (*instance, error) {
	share, err := f.byID.Join(settings.ID, func() (*otlpReceiver, error) {
		return newReceiver(settings, config.(*otlpreceiver.Config))
	})
	if err != nil {
		return nil, err
	}
	share.Value.exporters = append(share.Value.exporters, x)
	return &instance{share}, nil
}

// instance is the receiver as a component of one signal. The first to start starts the
// servers, with the exporters of all signals; the last to stop stops them.
type instance struct{ share *shared.Share[*otlpReceiver] }

// Start serves, if no other signal did already.
func (i *instance) Start(ctx context.Context, host component.Host) error {
	r := i.share.Value
	var err error
	r.once.Do(func() { err = r.start(ctx, host) })
	return err
}

// Shutdown stops serving after the last signal; before Start it does nothing.
func (i *instance) Shutdown(ctx context.Context) error {
	return i.share.Leave(func() error { return i.share.Value.shutdown(ctx) })
}
