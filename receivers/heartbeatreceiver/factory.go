package heartbeatreceiver

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/heartbeatreceiver/internal/metadata"
)

// NewFactory makes the factory of the heartbeat receiver. The process's own metrics, where
// they are given, say which probes work and what was lost.
func NewFactory(own ...prometheus.Gatherer) receiver.Factory {
	return newFactory(surroundings{now: time.Now, wait: time.After, own: prometheus.Gatherers(own)})
}

// surroundings are what a test brings its own of.
type surroundings struct {
	now  func() time.Time
	wait func(time.Duration) <-chan time.Time
	own  prometheus.Gatherer
}

func newFactory(around surroundings) receiver.Factory {
	create := func(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		return newReceiver(settings, config.(*Config), next, around)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability))
}
