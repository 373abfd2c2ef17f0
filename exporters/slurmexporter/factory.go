package slurmexporter

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/tracecoreai/tracecore/exporters/slurmexporter/internal/metadata"
)

// NewFactory makes the factory of the Slurm exporter.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(metadata.Type, createDefaultConfig, exporter.WithLogs(createLogs, metadata.LogsStability))
}

func createLogs(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
	config := cfg.(*Config)
	d, err := newDrains(config, set, time.Now)
	if err != nil {
		return nil, err
	}
	return d.turns.Exporter(ctx, set, cfg, d.consume,
		exporterhelper.WithTimeout(config.TimeoutConfig), exporterhelper.WithQueue(config.QueueConfig), exporterhelper.WithRetry(config.RetryConfig),
		exporterhelper.WithStart(d.start), exporterhelper.WithShutdown(d.shutdown),
	)
}
