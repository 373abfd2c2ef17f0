// Package kafkareceiver is contrib's Kafka receiver: who writes to a topic is for its brokers to say.
// What it hands on is marked.
package kafkareceiver

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kafkareceiver"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// NewFactory returns the receiver's factory.
func NewFactory() receiver.Factory { return ingress.Wrap(kafkareceiver.NewFactory(), ingress.Network) }
