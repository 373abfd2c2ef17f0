package patterndetectorprocessor

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// repeat tells the open verdicts again when that is due and nothing newer waits. They
// are no part of the outbox: one that is refused is told at the next time. Those behind it are
// told now: who refuses may be one consumer of several.
func (d *detector) repeat(now time.Time) {
	ctx, open := d.dueAgain(now)
	if len(open) == 0 {
		return
	}
	select {
	case d.busy <- struct{}{}:
		defer func() { <-d.busy }()
	default:
		return
	}
	for some := range slices.Chunk(open, mostAtOnce) {
		if err := d.next.ConsumeLogs(ctx, d.repeatedLogs(some)); err != nil {
			d.telemetry.ProcessorPatterndetectorDeliveryFailures.Add(context.Background(), 1)
		}
	}
}

// dueAgain returns the open verdicts that no mute keeps back.
func (d *detector) dueAgain(now time.Time) (context.Context, []verdict.Verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.config.Repeat == 0 || !d.up || d.outbox.Len() > 0 || now.Before(d.repeatAt) {
		return nil, nil
	}
	d.repeatAt = now.Add(d.config.Repeat)
	open := slices.DeleteFunc(d.engine.Open(), func(v verdict.Verdict) bool {
		_, muted := d.muted.items[v.ID]
		return muted || d.muted.incident(&v, now)
	})
	for i := range open {
		d.inStep(&open[i])
	}
	return d.calls, open
}

func (d *detector) repeatedLogs(verdicts []verdict.Verdict) plog.Logs {
	items := make([][]byte, len(verdicts))
	for i := range verdicts {
		items[i] = verdict.ToJSON(verdicts[i])
	}
	ld := d.verdictLogs(items)
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				record.Attributes().PutBool(verdict.AttrRepeated, true)
			}
		}
	}
	return ld
}
