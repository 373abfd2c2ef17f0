// Package filelogreceiver is contrib's file log receiver: it reads files of its node.
// What it hands on is marked.
package filelogreceiver

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/filelogreceiver"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// NewFactory returns the receiver's factory.
func NewFactory() receiver.Factory { return ingress.Wrap(filelogreceiver.NewFactory(), ingress.Node) }
