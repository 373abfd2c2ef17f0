package slurmexporter

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
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
	queued, err := exporterhelper.NewLogs(ctx, set, cfg, d.consume,
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithTimeout(config.TimeoutConfig), exporterhelper.WithQueue(config.QueueConfig), exporterhelper.WithRetry(config.RetryConfig),
		exporterhelper.WithStart(d.start), exporterhelper.WithShutdown(d.shutdown),
	)
	if err != nil {
		return nil, err
	}
	return &verdicts.Only{Logs: queued, Invalid: func(ctx context.Context) { d.count(ctx, outcomeInvalid) }, Waits: d.turns.Waits}, nil
}
