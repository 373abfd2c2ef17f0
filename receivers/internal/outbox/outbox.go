// Package outbox hands the records and data points of a receiver to the next
// consumer, in a goroutine beside the one that makes them.
//
// Every receiver that follows the kernel or a GPU behaves the same way under
// back-pressure:
//
//   - The receiver never waits for the next consumer. A scan that came late would
//     measure wrong ages, and a ring that filled up meanwhile would drop events the
//     kernel had already delivered.
//   - What the next consumer has not taken waits here, Capacity records at most.
//     Beyond that, the newest records of the owner that holds most are dropped
//     (share.go): a flood costs others nothing, and the first records of a failure,
//     which say what caused it, stay.
//   - A consumer that refuses is asked again for up to ten seconds. Then the batch is
//     dropped and the next one is tried: one bad batch does not hold up all others.
//     A permanent refusal is final at once.
//   - Each dropped record is counted in the metric the receiver gives.
//   - A receiver that stops offers each waiting batch once more.
//
// There is one outbox for each signal, so that a metrics pipeline that hangs does
// not hold up logs, and each signal can stop alone.
package outbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Capacity is how many records, or data points, may wait for the next consumer,
// some 10 MB of them. A batch that is larger is taken when nothing waits.
const Capacity = 4096

// patience is how long a consumer that refuses a batch is asked again.
const patience = 10 * time.Second

// Settings of an outbox.
type Settings struct {
	Receiver  receiver.Settings
	Transport string // where the data come from, for the collector's own metrics: "kernel"
	// Dropped counts records, or data points, that never reached the next consumer.
	Dropped metric.Int64Counter
}

// Outbox takes batches of one signal. Its methods may be called at the same time;
// on a nil Outbox, a signal that no pipeline has, they do nothing.
type Outbox[T plog.Logs | pmetric.Metrics] struct {
	way      way[T]
	format   string
	dropped  metric.Int64Counter
	lost     atomic.Uint64
	ctx      context.Context // ends the waiting for a consumer that refuses
	giveUp   context.CancelFunc
	delivery sync.WaitGroup

	mu      sync.Mutex // guards what follows
	changed sync.Cond
	open    bool
	waiting []entry[T]
	held    map[owner]int // by whom, of what waits
	size    int           // of what waits and of the batch that is being delivered
}

// way is how one signal leaves.
type way[T any] struct {
	size    func(T) int
	owner   func(T) owner
	consume func(context.Context, T) error
	begin   func(context.Context) context.Context
	end     func(ctx context.Context, format string, size int, err error)
}

// NewLogs makes an outbox of log records. It takes them from Start on.
func NewLogs(next consumer.Logs, settings Settings) (*Outbox[plog.Logs], error) {
	return build(settings, func(report *receiverhelper.ObsReport) way[plog.Logs] {
		return way[plog.Logs]{plog.Logs.LogRecordCount, ownerOf, next.ConsumeLogs, report.StartLogsOp, report.EndLogsOp}
	})
}

// NewMetrics makes an outbox of metrics. It takes them from Start on.
func NewMetrics(next consumer.Metrics, settings Settings) (*Outbox[pmetric.Metrics], error) {
	return build(settings, func(report *receiverhelper.ObsReport) way[pmetric.Metrics] {
		return way[pmetric.Metrics]{pmetric.Metrics.DataPointCount, nobody, next.ConsumeMetrics, report.StartMetricsOp, report.EndMetricsOp}
	})
}

func build[T plog.Logs | pmetric.Metrics](s Settings, leave func(*receiverhelper.ObsReport) way[T]) (*Outbox[T], error) {
	report, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: s.Receiver.ID, Transport: s.Transport, LongLivedCtx: true, ReceiverCreateSettings: s.Receiver,
	})
	if err != nil {
		return nil, err
	}
	o := &Outbox[T]{way: leave(report), format: s.Receiver.ID.Type().String(), dropped: s.Dropped, held: map[owner]int{}}
	o.changed.L = &o.mu
	o.ctx, o.giveUp = context.WithCancel(context.Background())
	return o, nil
}

// Start begins to deliver.
func (o *Outbox[T]) Start() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open && o.ctx.Err() == nil {
		o.open = true
		o.delivery.Go(o.deliver)
	}
}

// Open reports whether a batch would be taken, so that nobody makes one in vain.
func (o *Outbox[T]) Open() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}

// Empty reports whether the next consumer has taken all that it was given, or that was dropped.
func (o *Outbox[T]) Empty() bool {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size == 0
}

// Put leaves a batch and returns at once. Where there is no room for all, what gives way
// is dropped and counted; before Start and after Close a batch is forgotten.
func (o *Outbox[T]) Put(batch T) { o.PutThen(batch, nil) }

// PutThen is Put, and calls taken once the next consumer has taken the batch: until then it is lost with this process. Of what is
// dropped or forgotten nothing is heard. taken must not wait, nor use the outbox.
func (o *Outbox[T]) PutThen(batch T, taken func()) {
	if o == nil {
		return
	}
	one := entry[T]{batch: batch, size: o.way.size(batch), taken: taken}
	if one.size > 0 {
		one.owner = o.way.owner(batch)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.open || one.size == 0:
	case !o.room(&one):
		o.count(one.size)
	default:
		o.waiting = append(o.waiting, one)
		o.held[one.owner] += one.size
		o.size += one.size
		o.changed.Signal()
	}
}

func (o *Outbox[T]) count(size int) {
	o.lost.Add(uint64(size)) //nolint:gosec // never below zero
	o.dropped.Add(context.Background(), int64(size))
}

// Lost is how many records, or data points, never reached the next consumer so far.
func (o *Outbox[T]) Lost() uint64 {
	if o == nil {
		return 0
	}
	return o.lost.Load()
}

func (o *Outbox[T]) deliver() {
	for {
		one, ok := o.next()
		if !ok {
			return
		}
		batch, size := one.batch, one.size // the consumer may take the records out
		op := o.way.begin(o.ctx)
		err := record.Insist(op, patience, func(ctx context.Context) error { return o.way.consume(ctx, batch) })
		o.way.end(op, o.format, size, err)
		if err != nil {
			o.count(size)
		} else if one.taken != nil {
			one.taken()
		}
		o.mu.Lock()
		o.size -= size
		o.mu.Unlock()
	}
}

// next waits for a batch; there is none any more once the outbox is closed and empty.
func (o *Outbox[T]) next() (one entry[T], ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.waiting) == 0 && o.open {
		o.changed.Wait()
	}
	if len(o.waiting) == 0 {
		return one, false
	}
	one = o.waiting[0]
	o.release(&one)
	o.waiting = o.waiting[1:]
	return one, true
}

// Close takes no more batches, offers each that waits once more, and returns when
// the next consumer has them. When ctx ends first, the consumer keeps the batch it
// holds, and the rest is dropped and counted. Closing twice is fine.
func (o *Outbox[T]) Close(ctx context.Context) error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	o.open = false
	o.mu.Unlock()
	o.giveUp()
	o.changed.Broadcast()
	err := record.Wait(ctx, "the next consumer holds the last data", o.delivery.Wait)
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.waiting {
		o.count(o.waiting[i].size)
	}
	o.waiting = nil
	return err
}
