package k8seventsreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

// NewFactory makes the factory of the k8sevents receiver.
func NewFactory() receiver.Factory {
	return newFactory((*Config).client)
}

// newFactory lets a test bring its own cluster.
func newFactory(connect func(*Config) (api, error)) receiver.Factory {
	create := func(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		return newReceiver(settings, config.(*Config), next, connect)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability))
}
