package cudaoomreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
)

// NewFactory makes the factory of the cudaoom receiver.
func NewFactory() receiver.Factory { return newFactory(openSource) }

// opener opens a source that watches so many libraries.
type opener func(maxLibraries int) (source, error)

// newFactory lets a test bring its own source.
func newFactory(open opener) receiver.Factory {
	create := func(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		return newReceiver(settings, config.(*Config), next, open)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability))
}
