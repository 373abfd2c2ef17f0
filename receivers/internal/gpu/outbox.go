package gpu

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receiverhelper"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// patience is how long a consumer that refuses is asked again before its records
// are dropped and counted; outboxSize is how many batches wait meanwhile, so that
// the GPUs are read on.
const (
	patience   = 10 * time.Second
	outboxSize = 64
)

// outbox hands records on beside the reading.
type outbox struct {
	logs    consumer.Logs    // nil without that signal
	metrics consumer.Metrics // nil without that signal

	batches   chan batch
	telemetry *Telemetry
	name      string // of the component type
	report    *receiverhelper.ObsReport
}

// batch is one reading, or one event.
type batch struct {
	logs    plog.Logs
	metrics pmetric.Metrics
}

func (b batch) size() int { return b.logs.LogRecordCount() + b.metrics.DataPointCount() }

func (o *outbox) putLogs(logs plog.Logs) {
	if o.logs != nil && logs.LogRecordCount() > 0 {
		o.put(batch{logs: logs, metrics: pmetric.NewMetrics()})
	}
}

func (o *outbox) putMetrics(metrics pmetric.Metrics) {
	if o.metrics != nil && metrics.DataPointCount() > 0 {
		o.put(batch{logs: plog.NewLogs(), metrics: metrics})
	}
}

// put leaves a batch; where there is no room it is lost and counted.
func (o *outbox) put(b batch) {
	select {
	case o.batches <- b:
	default:
		o.dropped(b.size())
	}
}

func (o *outbox) dropped(records int) {
	o.telemetry.RecordsDropped.Add(context.Background(), int64(records))
}

// deliver hands batches on until the outbox is closed. The end of ctx ends only
// the waiting for consumers that refuse.
func (o *outbox) deliver(ctx context.Context) {
	for b := range o.batches {
		size, err := b.size(), error(nil) // the consumer may take them out
		if b.logs.LogRecordCount() > 0 {
			op := o.report.StartLogsOp(ctx)
			err = record.Deliver(op, o.logs, b.logs, patience)
			o.report.EndLogsOp(op, o.name, size, err)
		} else {
			op := o.report.StartMetricsOp(ctx)
			err = record.DeliverMetrics(op, o.metrics, b.metrics, patience)
			o.report.EndMetricsOp(op, o.name, size, err)
		}
		if err != nil {
			o.dropped(size)
		}
	}
}
