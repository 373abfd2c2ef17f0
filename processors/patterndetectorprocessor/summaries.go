package patterndetectorprocessor

import (
	"context"
	"os"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/history"
)

// tellSummaries sends a record about each run that ended and reports whether to go on at
// once. The history knows which those are, and remembers that they were told: what the next
// consumer refuses is given out again. Verdicts and ranks that wait for the history come
// first, for they may be of such a run.
func (d *detector) tellSummaries(ctx context.Context) bool {
	k := &d.keeping
	d.mu.Lock()
	calls, up := d.calls, d.up && d.next != nil
	behind := len(k.seen) > 0 || k.unkept.Len() > 0
	d.mu.Unlock()
	if !up || behind || ctx.Err() != nil {
		return false
	}
	runs, err := k.keeper.Ended(ctx)
	if err != nil || len(runs) == 0 {
		return false // what ails the history shows where verdicts are kept
	}
	refused := d.next.ConsumeLogs(calls, d.summaryLogs(runs))
	left := !worthAgain(refused)
	if err := k.keeper.Told(ctx, runs, left); err != nil {
		d.telemetry.ProcessorPatterndetectorHistoryFailures.Add(context.Background(), 1)
		return false
	}
	if refused != nil {
		d.telemetry.ProcessorPatterndetectorDeliveryFailures.Add(context.Background(), 1)
		d.logger.Debug("the next consumer refuses summaries of runs", zap.Error(refused))
		return false
	}
	for i := range runs {
		d.countRun(&runs[i])
	}
	return true
}

// summaryLogs makes the records. They are about what was seen from here, so their resource
// is this host.
func (d *detector) summaryLogs(runs []history.Run) plog.Logs {
	ld := plog.NewLogs()
	records := d.scope(ld, d.hostname, os.Getenv("K8S_NODE_NAME"))
	observed := pcommon.NewTimestampFromTime(d.clock.now())
	for i := range runs {
		record := records.AppendEmpty()
		history.ToRecord(&runs[i], record)
		record.SetObservedTimestamp(observed)
	}
	return ld
}

func (d *detector) countRun(run *history.Run) {
	ctx, s := inRun(context.Background(), run.ID), run.Summary
	d.telemetry.ProcessorPatterndetectorRunsEnded.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", run.Outcome)))
	if s.Moving != nil {
		d.telemetry.ProcessorPatterndetectorRunsMoving.Add(ctx, *s.Moving)
	}
	for _, c := range s.Causes {
		cause := metric.WithAttributes(attribute.String("pattern", c.Pattern))
		d.telemetry.ProcessorPatterndetectorRunsStanding.Add(ctx, c.Seconds, cause)
		d.telemetry.ProcessorPatterndetectorRunsLost.Add(ctx, c.Seconds*float64(run.RanksCount), cause)
	}
}
