package patterndetectorprocessor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"

	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
)

// NewFactory returns the factory of the pattern detector.
func NewFactory() processor.Factory {
	return newFactory(clock{now: time.Now, ticks: everySecond})
}

func newFactory(c clock) processor.Factory {
	r := &registry{clock: c, detectors: map[component.ID]*detector{}}
	return processor.NewFactory(metadata.Type, createDefaultConfig,
		processor.WithLogs(r.createLogs, metadata.LogsStability),
		processor.WithMetrics(r.createMetrics, metadata.MetricsStability),
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
// instance for each pipeline that names it. An entry lives from the first
// creation to the last Shutdown of its instances.
type registry struct {
	clock clock

	mu        sync.Mutex
	detectors map[component.ID]*detector
}

func (r *registry) createLogs(_ context.Context, set processor.Settings, cfg component.Config, next consumer.Logs) (processor.Logs, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.join(set, cfg)
	if err != nil {
		return nil, err
	}
	if d.next != nil {
		return nil, fmt.Errorf("%s is in two logs pipelines, verdicts can leave through one: bring the pipelines together with a forward connector, or give the second a processor of its own such as %s/2", set.ID, metadata.Type)
	}
	d.next = next
	d.instances++
	return &logsProcessor{instance: instance{detector: d, registry: r, carriesVerdicts: true}, next: next}, nil
}

func (r *registry) createMetrics(_ context.Context, set processor.Settings, cfg component.Config, next consumer.Metrics) (processor.Metrics, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.join(set, cfg)
	if err != nil {
		return nil, err
	}
	d.instances++
	return &metricsProcessor{instance: instance{detector: d, registry: r}, next: next}, nil
}

// join returns the detector of a component id. mu is held.
func (r *registry) join(set processor.Settings, cfg component.Config) (*detector, error) {
	if d := r.detectors[set.ID]; d != nil {
		return d, nil
	}
	d, err := newDetector(set, cfg.(*Config), r.clock)
	if err != nil {
		return nil, err
	}
	r.detectors[set.ID] = d
	return d, nil
}

// leave drops one instance and with the last of them the detector.
func (r *registry) leave(d *detector) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.instances--; d.instances == 0 {
		delete(r.detectors, d.id)
		d.telemetry.Shutdown()
	}
}
