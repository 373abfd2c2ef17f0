// Package kafkareceiver is contrib's Kafka receiver: who writes to a topic is for its brokers to say.
// What it hands on is marked. It takes OTLP alone, and a message is bounded in depth and in
// what it costs before it is decoded.
package kafkareceiver

import (
	"context"

	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kafkareceiver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// NewFactory returns the receiver's factory.
func NewFactory() receiver.Factory { return ingress.Wrap(bounded(), ingress.Network) }

// bounded is contrib's factory, with decoders of our own.
func bounded() receiver.Factory {
	f := kafkareceiver.NewFactory()
	logs := func(ctx context.Context, s receiver.Settings, c component.Config, next consumer.Logs) (receiver.Logs, error) {
		inner, err := f.CreateLogs(ctx, s, c, next)
		return decode(inner, c.(*kafkareceiver.Config).Logs.Encoding, err)
	}
	metrics := func(ctx context.Context, s receiver.Settings, c component.Config, next consumer.Metrics) (receiver.Metrics, error) {
		inner, err := f.CreateMetrics(ctx, s, c, next)
		return decode(inner, c.(*kafkareceiver.Config).Metrics.Encoding, err)
	}
	traces := func(ctx context.Context, s receiver.Settings, c component.Config, next consumer.Traces) (receiver.Traces, error) {
		inner, err := f.CreateTraces(ctx, s, c, next)
		return decode(inner, c.(*kafkareceiver.Config).Traces.Encoding, err)
	}
	return receiver.NewFactory(f.Type(), f.CreateDefaultConfig,
		receiver.WithLogs(logs, f.LogsStability()),
		receiver.WithMetrics(metrics, f.MetricsStability()),
		receiver.WithTraces(traces, f.TracesStability()))
}
