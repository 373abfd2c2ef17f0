package k8snodeexporter

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter/internal/metadata"
)

// NewFactory makes the factory of the k8snode exporter.
func NewFactory() exporter.Factory { return newFactory((*Config).client) }

// newFactory lets a test bring its own cluster.
func newFactory(connect func(*Config) (api, error)) exporter.Factory {
	create := func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
		config := cfg.(*Config)
		n, err := newNodes(config, set, connect, time.Now)
		if err != nil {
			return nil, err
		}
		return n.turns.Exporter(ctx, set, cfg, n.consume,
			exporterhelper.WithTimeout(config.TimeoutConfig), exporterhelper.WithQueue(config.QueueConfig), exporterhelper.WithRetry(config.RetryConfig),
			exporterhelper.WithStart(n.start), exporterhelper.WithShutdown(n.shutdown),
		)
	}
	return exporter.NewFactory(metadata.Type, createDefaultConfig, exporter.WithLogs(create, metadata.LogsStability))
}
