package incidenttracesconnector

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"

	"github.com/tracecoreai/tracecore/connectors/incidenttracesconnector/internal/metadata"
)

// NewFactory returns the factory of the connector.
func NewFactory() connector.Factory {
	return connector.NewFactory(metadata.Type, createDefaultConfig,
		connector.WithLogsToTraces(createLogsToTraces, metadata.LogsToTracesStability))
}

func createLogsToTraces(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Traces) (connector.Logs, error) {
	return newTracer(cfg.(*Config), set, next, clock{now: time.Now, ticks: everySecond})
}

// clock is the time that the connector lives in.
type clock struct {
	now   func() time.Time
	ticks func() (ticks <-chan time.Time, stop func())
}

func everySecond() (<-chan time.Time, func()) {
	ticker := time.NewTicker(time.Second)
	return ticker.C, ticker.Stop
}
