package terminalexporter

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/tracecoreai/tracecore/exporters/terminalexporter/internal/metadata"
)

// NewFactory returns the factory of the terminal exporter.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(metadata.Type, createDefaultConfig, exporter.WithLogs(createLogs, metadata.LogsStability))
}

func createLogs(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Logs, error) {
	config := cfg.(*Config)
	stream := os.Stdout
	if config.Stream == streamStderr {
		stream = os.Stderr
	}
	t, err := newTerminal(config, set, stream, time.Now)
	if err != nil {
		return nil, err
	}
	// No queue and no timeout: a verdict is on the screen when the call returns. What the
	// screen does not take waits here.
	return exporterhelper.NewLogs(ctx, set, cfg, t.consume,
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{Timeout: 0}),
		exporterhelper.WithShutdown(t.shutdown),
	)
}
