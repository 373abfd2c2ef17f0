package ncclfrreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/metadata"
)

// NewFactory makes the factory of the ncclfr receiver.
func NewFactory() receiver.Factory { return newFactory(realClock) }

// clock is the time the receiver lives in: when it is, and when to look again.
type clock struct {
	now   func() time.Time
	ticks func(every time.Duration) (ticks <-chan time.Time, stop func())
	since func(begin time.Time) time.Duration // what work cost that began then, by time.Now
}

var realClock = clock{now: time.Now, since: time.Since, ticks: func(every time.Duration) (<-chan time.Time, func()) {
	ticker := time.NewTicker(every)
	return ticker.C, ticker.Stop
}}

func newFactory(c clock) receiver.Factory {
	create := func(_ context.Context, settings receiver.Settings, config component.Config, next consumer.Logs) (receiver.Logs, error) {
		return newReceiver(settings, config.(*Config), next, c)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig, receiver.WithLogs(create, metadata.LogsStability))
}
