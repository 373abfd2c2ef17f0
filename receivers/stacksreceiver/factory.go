package stacksreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/stacksreceiver/internal/metadata"
)

// surroundings are what a test brings its own of.
type surroundings struct {
	open    func() (source, error)
	ticks   probereceiver.Ticks
	looked  func()        // a look at all ranks has ended
	longest time.Duration // that stacks are taken for in one look; those left have to wait for the next
}

// NewFactory makes the factory of the stacks receiver.
func NewFactory() receiver.Factory {
	return newFactory(surroundings{open: openSource, ticks: probereceiver.RealTime, looked: func() {}, longest: longestLook})
}

func newFactory(around surroundings) receiver.Factory {
	create := func(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		c := config.(*Config)
		if c.Stacks == Off {
			return switchedOff{}, nil
		}
		return newReceiver(settings, c, next, around)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability))
}

// switchedOff reads nothing.
type switchedOff struct {
	component.StartFunc
	component.ShutdownFunc
}
