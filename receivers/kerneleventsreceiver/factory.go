package kerneleventsreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/ports"
)

// surroundings are what a test brings its own of.
type surroundings struct {
	open  func() (source, error)
	ticks probereceiver.Ticks
	// uptime is how long the machine has been up; nil: no boot is told.
	uptime func() (time.Duration, error)
	// ports reads the ports of RDMA adapters, so often; nil: none are told.
	ports      func() ([]ports.Port, error)
	portsEvery time.Duration
}

// NewFactory makes the factory of the kernelevents receiver.
func NewFactory() receiver.Factory {
	return newFactory(surroundings{open: openSource, ticks: probereceiver.RealTime, uptime: uptime, ports: readPorts, portsEvery: portsInterval})
}

func newFactory(around surroundings) receiver.Factory {
	create := func(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		return newReceiver(settings, config.(*Config), next, around)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability))
}
