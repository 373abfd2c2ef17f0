package ncclsockreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receiverhelper"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
)

// patience is how long a consumer that refuses is asked again before its records
// are dropped and counted; outboxSize is how many batches wait meanwhile, so that
// snapshots go on.
const (
	patience   = 10 * time.Second
	outboxSize = 64
)

// outbox hands records on beside the snapshots.
type outbox struct {
	logs    consumer.Logs    // nil without that signal
	metrics consumer.Metrics // nil without that signal

	batches   chan batch
	telemetry *metadata.TelemetryBuilder
	report    *receiverhelper.ObsReport
}

// batch is what one snapshot has to say.
type batch struct {
	logs    *plog.Logs
	metrics *pmetric.Metrics
}

// put leaves a batch; where there is no room it is lost and counted.
func (o *outbox) put(b batch) {
	select {
	case o.batches <- b:
	default:
		if b.logs != nil {
			o.dropped(b.logs.LogRecordCount())
		}
	}
}

// dropped counts lost log records. Metrics are cumulative: the next report has
// what this one had.
func (o *outbox) dropped(records int) {
	o.telemetry.ReceiverNcclsockRecordsDropped.Add(context.Background(), int64(records))
}

// deliver hands batches on until the outbox is closed. The end of ctx ends only
// the waiting for consumers that refuse.
func (o *outbox) deliver(ctx context.Context) {
	for b := range o.batches {
		if b.logs != nil {
			o.deliverLogs(ctx, *b.logs)
		}
		if b.metrics != nil {
			o.deliverMetrics(context.WithoutCancel(ctx), *b.metrics)
		}
	}
}

func (o *outbox) deliverLogs(ctx context.Context, logs plog.Logs) {
	ctx = o.report.StartLogsOp(ctx)
	records := logs.LogRecordCount() // the consumer may take them out
	err := record.Deliver(ctx, o.logs, logs, patience)
	o.report.EndLogsOp(ctx, metadata.Type.String(), records, err)
	if err != nil {
		o.dropped(records)
	}
}

func (o *outbox) deliverMetrics(ctx context.Context, metrics pmetric.Metrics) {
	ctx = o.report.StartMetricsOp(ctx)
	points := metrics.DataPointCount()
	err := o.metrics.ConsumeMetrics(ctx, metrics)
	o.report.EndMetricsOp(ctx, metadata.Type.String(), points, err)
}
