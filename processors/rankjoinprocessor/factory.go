package rankjoinprocessor

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"

	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/metadata"
)

// NewFactory makes the factory of the rankjoin processor.
func NewFactory() processor.Factory {
	return newFactory(clock{now: time.Now, ticks: often})
}

// clock is the time the processor lives in.
type clock struct {
	now   func() time.Time
	ticks func() (ticks <-chan time.Time, stop func())
}

// often is what a round is late at most.
func often() (<-chan time.Time, func()) {
	ticker := time.NewTicker(250 * time.Millisecond)
	return ticker.C, ticker.Stop
}

func newFactory(c clock) processor.Factory {
	create := func(_ context.Context, set processor.Settings, config component.Config, next consumer.Logs) (processor.Logs, error) {
		return newProcessor(set, config.(*Config), next, c)
	}
	return processor.NewFactory(metadata.Type, createDefaultConfig, processor.WithLogs(create, metadata.LogsStability))
}
