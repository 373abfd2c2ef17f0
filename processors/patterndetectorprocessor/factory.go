package patterndetectorprocessor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"

	"github.com/tracecoreai/tracecore/internal/shared"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
)

// NewFactory returns the factory of the pattern detector.
func NewFactory() processor.Factory {
	return newFactory(clock{now: time.Now, ticks: everySecond})
}

func newFactory(c clock) processor.Factory {
	r := &registry{clock: c}
	return processor.NewFactory(metadata.Type, createDefaultConfig,
		processor.WithLogs(r.createLogs, metadata.LogsStability),
		processor.WithMetrics(r.createMetrics, metadata.MetricsStability),
		processor.WithTraces(r.createTraces, metadata.TracesStability),
	)
}

// clock is the time the detector lives in.
type clock struct {
	now   func() time.Time
	ticks func() (ticks <-chan time.Time, stop func())
}

func everySecond() (<-chan time.Time, func()) {
	ticker := time.NewTicker(time.Second)
	return ticker.C, ticker.Stop
}

// registry finds the one detector of a component id: the service makes an
// instance for each pipeline that names it.
type registry struct {
	clock     clock
	detectors shared.ByID[*detector]
}

func (r *registry) createLogs(_ context.Context, set processor.Settings, cfg component.Config, next consumer.Logs) (processor.Logs, error) {
	i, err := r.instance(set, cfg)
	if err != nil {
		return nil, err
	}
	if i.detector.next != nil {
		return nil, errors.Join(fmt.Errorf("%s is in two logs pipelines, verdicts can leave through one: bring the pipelines together with a forward connector, or give the second a processor of its own such as %s/2", set.ID, metadata.Type), i.leave())
	}
	i.detector.next = next
	i.carriesVerdicts = true
	return &logsProcessor{instance: i, next: next}, nil
}

func (r *registry) createMetrics(_ context.Context, set processor.Settings, cfg component.Config, next consumer.Metrics) (processor.Metrics, error) {
	i, err := r.instance(set, cfg)
	if err != nil {
		return nil, err
	}
	return &metricsProcessor{instance: i, next: next}, nil
}

func (r *registry) createTraces(_ context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces, error) {
	i, err := r.instance(set, cfg)
	if err != nil {
		return nil, err
	}
	i.detector.followSteps()
	return &tracesProcessor{instance: i, next: next}, nil
}

func (r *registry) instance(set processor.Settings, cfg component.Config) (*instance, error) {
	share, err := r.detectors.Join(set.ID, func() (*detector, error) { return newDetector(set, cfg.(*Config), r.clock) })
	if err != nil {
		return nil, err
	}
	return &instance{detector: share.Value, share: share}, nil
}
