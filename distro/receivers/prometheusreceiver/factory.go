// Package prometheusreceiver is contrib's Prometheus receiver: it asks the exporters that its configuration names.
// What it hands on is marked.
package prometheusreceiver

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/prometheusreceiver"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// NewFactory returns the receiver's factory.
func NewFactory() receiver.Factory {
	return ingress.Wrap(prometheusreceiver.NewFactory(), ingress.Node)
}
