package rankjoinprocessor

import (
	"context"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	ncclhang "github.com/tracecoreai/tracecore/patterns/nccl_hang"
)

// observe registers the metrics that are read from the join on demand.
func (p *rankJoin) observe() error {
	stat := func(read func(ncclhang.Stats) int64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			o.Observe(read(p.join.Stats()))
			return nil
		}
	}
	for _, register := range []struct {
		with func(metric.Int64Callback) error
		read func(ncclhang.Stats) int64
	}{
		{p.telemetry.RegisterProcessorRankjoinCallsCallback, func(s ncclhang.Stats) int64 { return s.Calls }},
		{p.telemetry.RegisterProcessorRankjoinCallsEvictedCallback, func(s ncclhang.Stats) int64 { return s.EvictedCalls }},
		{p.telemetry.RegisterProcessorRankjoinCallsHeldCallback, func(s ncclhang.Stats) int64 { return s.HeldCalls }},
		{p.telemetry.RegisterProcessorRankjoinCallsInvalidCallback, func(s ncclhang.Stats) int64 { return s.InvalidCalls }},
		{p.telemetry.RegisterProcessorRankjoinCallsUnidentifiedCallback, func(s ncclhang.Stats) int64 { return s.UnidentifiedCalls }},
		{p.telemetry.RegisterProcessorRankjoinDumpsCallback, func(s ncclhang.Stats) int64 { return s.Dumps }},
		{p.telemetry.RegisterProcessorRankjoinDumpsEvictedCallback, func(s ncclhang.Stats) int64 { return s.EvictedDumps }},
		{p.telemetry.RegisterProcessorRankjoinDumpsHeldCallback, func(s ncclhang.Stats) int64 { return s.Held }},
		{p.telemetry.RegisterProcessorRankjoinDumpsInvalidCallback, func(s ncclhang.Stats) int64 { return s.Invalid }},
		{p.telemetry.RegisterProcessorRankjoinGroupsSkippedCallback, func(s ncclhang.Stats) int64 { return s.SkippedGroups }},
		{p.telemetry.RegisterProcessorRankjoinStallsCallback, func(s ncclhang.Stats) int64 { return s.Stalls }},
		{p.telemetry.RegisterProcessorRankjoinStallsEvictedCallback, func(s ncclhang.Stats) int64 { return s.EvictedStalls }},
		{p.telemetry.RegisterProcessorRankjoinStallsHeldCallback, func(s ncclhang.Stats) int64 { return s.HeldStalls }},
		{p.telemetry.RegisterProcessorRankjoinStallsInvalidCallback, func(s ncclhang.Stats) int64 { return s.InvalidStalls }},
	} {
		if err := register.with(stat(register.read)); err != nil {
			return err
		}
	}
	return p.telemetry.RegisterProcessorRankjoinRecordsCutCallback(func(_ context.Context, o metric.Int64Observer) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		o.Observe(int64(p.host.Cut))
		return nil
	})
}

// countFinding counts a record that says what is incomplete.
func (p *rankJoin) countFinding(ctx context.Context, finding plog.ResourceLogs) {
	if kind := textOf(finding.ScopeLogs().At(0).LogRecords().At(0).Attributes(), "nccl.collective.finding"); kind != "" {
		p.telemetry.ProcessorRankjoinFindings.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", kind)))
	}
}

func (p *rankJoin) countDropped(ctx context.Context, findings int64) {
	if findings > 0 {
		p.telemetry.ProcessorRankjoinFindingsDropped.Add(ctx, findings)
	}
}
