package fusefaultreceiver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/consumer"

	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// patience is how long a consumer that refuses is asked again before its data are
// dropped and counted. Meanwhile no scan is made; the next one sees what lasts.
const patience = 10 * time.Second

// outlet is how one signal leaves.
type outlet interface {
	// scanned tells of a scan.
	scanned(context.Context, []report)
	// collect hands over metrics.
	collect(context.Context)
}

// exit is an outlet that can be closed while the other signal's stays open.
type exit struct {
	outlet

	mu     sync.Mutex // held while data are handed over
	ctx    context.Context
	giveUp context.CancelFunc
}

func (e *exit) open() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx, e.giveUp = context.WithCancel(context.Background())
}

// use hands data over, unless the exit is closed.
func (e *exit) use(hand func(context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx != nil && e.ctx.Err() == nil {
		hand(e.ctx)
	}
}

// close lets nothing through any more. It waits, no longer than ctx, for what is
// on its way.
func (e *exit) close(ctx context.Context) error {
	if e.giveUp == nil {
		return nil
	}
	e.giveUp()
	passed := make(chan struct{})
	go func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(passed)
	}()
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the next consumer holds the last data: %w", ctx.Err())
	}
}

// logsOutlet hands over records, those of one scan at a time.
type logsOutlet struct {
	watcher *watcher
	next    consumer.Logs
}

func (*logsOutlet) collect(context.Context) {}

func (o *logsOutlet) scanned(ctx context.Context, reports []report) {
	w, records, now := o.watcher, 0, time.Now()
	for i := range reports {
		if reports[i].end == "" && !w.config.Events.FuseStall.Enabled || reports[i].end != "" && !w.config.Events.FuseStallEnd.Enabled {
			continue
		}
		w.convert.add(&reports[i], now)
		records++
	}
	if records == 0 {
		return
	}
	ctx = w.report.StartLogsOp(ctx)
	err := record.Deliver(ctx, o.next, w.convert.emit(), patience)
	w.report.EndLogsOp(ctx, metadata.Type.String(), records, err)
	if err != nil {
		w.telemetry.ReceiverFusefaultRecordsDropped.Add(ctx, int64(records))
	}
}

// metricsOutlet hands over the metrics of all mounts.
type metricsOutlet struct {
	watcher *watcher
	next    consumer.Metrics
}

func (*metricsOutlet) scanned(context.Context, []report) {}

func (o *metricsOutlet) collect(ctx context.Context) {
	w := o.watcher
	metrics := w.measure.measure(w.tracker.mounts, w.tracker.before)
	points := metrics.DataPointCount()
	if points == 0 {
		return
	}
	ctx = w.report.StartMetricsOp(ctx)
	err := record.DeliverMetrics(ctx, o.next, metrics, patience)
	w.report.EndMetricsOp(ctx, metadata.Type.String(), points, err)
	if err != nil {
		w.telemetry.ReceiverFusefaultMetricPointsDropped.Add(ctx, int64(points))
	}
}
