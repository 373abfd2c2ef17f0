// Package hostmetricsreceiver is contrib's host metrics receiver: it reads /proc and /sys of its node.
// What it hands on is marked.
package hostmetricsreceiver

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/hostmetricsreceiver"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// NewFactory returns the receiver's factory.
func NewFactory() receiver.Factory {
	return ingress.Wrap(hostmetricsreceiver.NewFactory(), ingress.Node)
}
