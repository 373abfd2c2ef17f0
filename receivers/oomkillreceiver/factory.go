package oomkillreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// NewFactory makes the factory of the oomkill receiver.
func NewFactory() receiver.Factory { return newFactory(openSource) }

// newFactory lets a test bring its own source.
func newFactory(open func() (source, error)) receiver.Factory {
	create := func(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		return newReceiver(settings, config.(*Config), next, open)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability))
}
