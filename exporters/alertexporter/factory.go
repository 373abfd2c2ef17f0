package alertexporter

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/tracecoreai/tracecore/exporters/alertexporter/internal/metadata"
)

// NewFactory makes the factory of the alert exporter.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(metadata.Type, createDefaultConfig, exporter.WithLogs(createLogs, metadata.LogsStability))
}

func createLogs(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
	config := cfg.(*Config)
	a, err := newAlerts(config, set, time.Now)
	if err != nil {
		return nil, err
	}
	return a.turns.Exporter(ctx, set, cfg, a.consume,
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{Timeout: 0}), // the client has one for each request
		exporterhelper.WithQueue(config.QueueConfig), exporterhelper.WithRetry(config.RetryConfig),
		exporterhelper.WithStart(a.start), exporterhelper.WithShutdown(a.shutdown),
	)
}
