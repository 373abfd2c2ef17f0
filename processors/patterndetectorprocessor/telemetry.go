package patterndetectorprocessor

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/steps"
)

// Why verdicts were dropped, as metadata.yaml lists it.
const (
	droppedCorrupt   = "corrupt"
	droppedFull      = "full"
	droppedInvalid   = "invalid"
	droppedQueueFull = "queue_full"
	droppedRefused   = "refused"
)

func (d *detector) countVerdict(ctx context.Context, v verdict.Verdict) {
	d.telemetry.ProcessorPatterndetectorVerdicts.Add(inIncident(ctx, v.IncidentID), 1, metric.WithAttributes(
		attribute.Bool("pages", v.Pages(verdict.Warning)), attribute.String("pattern", v.Pattern), attribute.String("status", string(v.Status)),
		attribute.String("verdict_severity", string(v.Severity))))
}

func (d *detector) countDropped(ctx context.Context, n int, reason string) {
	if n > 0 {
		d.telemetry.ProcessorPatterndetectorOutboxDropped.Add(ctx, int64(n), metric.WithAttributes(attribute.String("reason", reason)))
	}
}

// reset says and counts that stored state was given up.
func (d *detector) reset(ctx context.Context, reason, message string, err error) {
	d.telemetry.ProcessorPatterndetectorStateResets.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason)))
	d.logger.Error(message, zap.String("reason", reason), zap.Error(err))
}

// figure is one number of the engine under one attribute value.
type figure struct {
	label string
	of    func(engine.Stats) uint64
}

var (
	recordFigures = []figure{
		{"matched", func(s engine.Stats) uint64 { return s.Matched }},
		{"unmatched", func(s engine.Stats) uint64 { return s.Unmatched }},
	}
	irregularFigures = []figure{
		{"ahead", func(s engine.Stats) uint64 { return s.Ahead }},
		{"cut", func(s engine.Stats) uint64 { return s.Cut }},
		{"evaluation", func(s engine.Stats) uint64 { return s.EvalErrors }},
		{"fan_out", func(s engine.Stats) uint64 { return s.FanOutLimited }},
		{"late", func(s engine.Stats) uint64 { return s.Late }},
		{"overdue", func(s engine.Stats) uint64 { return s.Overdue }},
		{"unkeyed", func(s engine.Stats) uint64 { return s.Unkeyed }},
	}
	evictedFigures = []figure{
		{"findings", func(s engine.Stats) uint64 { return s.EvictedFindings }},
		{"runs", func(s engine.Stats) uint64 { return s.EvictedRuns }},
		{"marks", func(s engine.Stats) uint64 { return s.EvictedMarks }},
		{"points", func(s engine.Stats) uint64 { return s.EvictedPoints }},
		{"recent", func(s engine.Stats) uint64 { return s.EvictedRecent }},
		{"series", func(s engine.Stats) uint64 { return s.EvictedSeries }},
		{"verdicts", func(s engine.Stats) uint64 { return s.EvictedVerdicts }},
		{"waiting", func(s engine.Stats) uint64 { return s.EvictedWaiting }},
	}
	heldFigures = []figure{
		{"recent", func(s engine.Stats) uint64 { return uint64(s.Recent) }},
		{"series", func(s engine.Stats) uint64 { return uint64(s.Series) }},
		{"verdicts", func(s engine.Stats) uint64 { return uint64(s.OpenVerdicts) }},
		{"waiting", func(s engine.Stats) uint64 { return uint64(s.Waiting) }},
	}
)

// stepFigure is one number of the book of steps under one attribute value.
type stepFigure struct {
	label string
	of    func(steps.Stats) uint64
}

// stepFigures observes some of its numbers. Without a traces pipeline there is no book.
func (d *detector) stepFigures(key string, figures ...stepFigure) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		d.mu.Lock()
		book := d.steps
		d.mu.Unlock()
		if book == nil {
			return nil
		}
		now := book.Stats()
		for _, f := range figures {
			o.Observe(int64(f.of(now)), metric.WithAttributes(attribute.String(key, f.label)))
		}
		return nil
	}
}

// observe registers the metrics that are read from the engine on demand.
func (d *detector) observe() error {
	return errors.Join(
		d.telemetry.RegisterProcessorPatterndetectorRecordsCallback(d.figures("result", recordFigures, true)),
		d.telemetry.RegisterProcessorPatterndetectorRecordsIrregularCallback(d.figures("problem", irregularFigures, true)),
		d.telemetry.RegisterProcessorPatterndetectorEvictedCallback(d.figures("state", evictedFigures, true)),
		d.telemetry.RegisterProcessorPatterndetectorHeldCallback(d.figures("state", heldFigures, false)),
		d.telemetry.RegisterProcessorPatterndetectorEvidenceLastSeenCallback(d.heard),
		d.telemetry.RegisterProcessorPatterndetectorIncidentBeganCallback(d.incidents),
		d.telemetry.RegisterProcessorPatterndetectorRanksCallback(d.rankStates),
		d.telemetry.RegisterProcessorPatterndetectorStepsCallback(d.stepFigures("step",
			stepFigure{"taken", func(s steps.Stats) uint64 { return s.Taken }}, stepFigure{"unplaced", func(s steps.Stats) uint64 { return s.Unplaced }})),
		d.telemetry.RegisterProcessorPatterndetectorEvictedCallback(d.stepFigures("state", stepFigure{"steps", func(s steps.Stats) uint64 { return s.Evicted }})),
		d.telemetry.RegisterProcessorPatterndetectorHeldCallback(d.stepFigures("state", stepFigure{"steps", func(s steps.Stats) uint64 { return uint64(s.Ranks) }})),
		d.telemetry.RegisterProcessorPatterndetectorEvictedCallback(func(_ context.Context, o metric.Int64Observer) error {
			d.mu.Lock()
			book := d.keeping.gathering.book
			d.mu.Unlock()
			if book != nil {
				o.Observe(int64(book.Gone()), metric.WithAttributes(attribute.String("state", "evidence")))
			}
			return nil
		}),
		d.telemetry.RegisterProcessorPatterndetectorNearCrowdedCallback(func(_ context.Context, o metric.Int64Observer) error {
			d.mu.Lock()
			book, left := d.keeping.gathering.book, d.keeping.gathering.nearby.left
			d.mu.Unlock()
			if book != nil {
				o.Observe(int64(book.GoneNear() + left))
			}
			return nil
		}),
		d.telemetry.RegisterProcessorPatterndetectorMutedCallback(func(_ context.Context, o metric.Int64Observer) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			o.Observe(int64(len(d.muted.items)))
			return nil
		}),
		d.telemetry.RegisterProcessorPatterndetectorOutboxSizeCallback(func(_ context.Context, o metric.Int64Observer) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			o.Observe(int64(d.outbox.Len()))
			return nil
		}),
	)
}

// heard observes when each piece of evidence was last fed.
func (d *detector) heard(_ context.Context, o metric.Int64Observer) error {
	d.mu.Lock()
	heard := d.engine.Heard()
	d.mu.Unlock()
	for _, h := range heard {
		if h.At > 0 {
			o.Observe(h.At/int64(time.Second), metric.WithAttributes(attribute.String("pattern", h.Pattern), attribute.String("evidence", h.Evidence)))
		}
	}
	return nil
}

// figures observes some of the engine's numbers; of counters without what
// replay added, since an earlier process counted that.
func (d *detector) figures(key string, figures []figure, counter bool) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		d.mu.Lock()
		now, replayed := d.engine.Stats(), d.counted
		d.mu.Unlock()
		now.Cut += uint64(d.cut.Load()) //nolint:gosec // never below zero
		for _, f := range figures {
			value := f.of(now)
			if counter {
				value -= min(value, f.of(replayed))
			}
			o.Observe(int64(value), metric.WithAttributes(attribute.String(key, f.label)))
		}
		return nil
	}
}
