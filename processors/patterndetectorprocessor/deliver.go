package patterndetectorprocessor

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
)

const (
	mostOutboxBytes = 64 << 20 // beside outbox_size: verdicts can be long
	mostAtOnce      = 100      // verdicts in one call of the next consumer
	firstBackoff    = time.Second
	lastBackoff     = 30 * time.Second
)

// delivery hands the outbox to the next consumer, one call at a time and in
// order. Data never waits for it: who finds it busy leaves its verdicts to the
// one who is at it.
type delivery struct {
	busy chan struct{} // holds one token while someone delivers

	// detector.mu holds these.
	up      bool // the next consumer has started
	retryAt time.Time
	backoff time.Duration
	calls   context.Context // of calls of the next consumer
	abort   context.CancelFunc

	repeatAt time.Time // when open verdicts are told again
}

func newDelivery() delivery { return delivery{busy: make(chan struct{}, 1)} }

func (d *detector) openDelivery() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.abort = context.WithCancel(context.Background())
	d.up, d.repeatAt = true, d.clock.now().Add(d.config.Repeat)
}

// closeDelivery tries everything once more, as long as ctx allows.
func (d *detector) closeDelivery(ctx context.Context) {
	d.mu.Lock()
	d.up = false
	d.mu.Unlock()
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		d.abort()
		d.busy <- struct{}{}
	}
	d.drain(ctx)
	d.abort()
	<-d.busy
}

// deliver sends what waits, unless someone is at it or the next consumer just
// refused. A verdict that is added while another is about to finish is seen by
// the second look at due.
func (d *detector) deliver() {
	for {
		ctx, due := d.due()
		if !due {
			return
		}
		select {
		case d.busy <- struct{}{}:
			d.drain(ctx)
			<-d.busy
		default:
			return
		}
	}
}

func (d *detector) due() (context.Context, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls, d.up && d.outbox.Len() > 0 && !d.clock.now().Before(d.retryAt)
}

// drain sends until the outbox is empty or the next consumer refuses.
func (d *detector) drain(ctx context.Context) {
	for {
		d.mu.Lock()
		items, last := d.outbox.First(mostAtOnce)
		d.mu.Unlock()
		if len(items) == 0 {
			return
		}
		err := d.next.ConsumeLogs(ctx, d.verdictLogs(items))
		if !d.settle(ctx, last, len(items), err) {
			return
		}
	}
}

// settle takes delivered verdicts out of the outbox and reports whether to go
// on. A crash between the next consumer's taking and this mark is the only way
// to deliver twice; verdict id and revision are the same then.
func (d *detector) settle(ctx context.Context, last uint64, n int, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if worthAgain(err) {
		d.telemetry.ProcessorPatterndetectorDeliveryFailures.Add(ctx, 1)
		if d.backoff == 0 {
			d.logger.Warn("next consumer refuses verdicts; they wait and are tried again", zap.Error(err))
		}
		d.backoff = min(max(2*d.backoff, firstBackoff), lastBackoff)
		d.retryAt = d.clock.now().Add(d.backoff)
		return false
	}
	switch {
	case err == nil:
	case errors.Is(err, exporterhelper.ErrQueueIsFull):
		d.countDropped(ctx, n, droppedQueueFull)
		d.logger.Error("the queue of an exporter is full; it gets these verdicts no more, the others have them", zap.Int("verdicts", n), zap.Error(err))
	default:
		d.countDropped(ctx, n, droppedRefused)
		d.logger.Error("next consumer refuses verdicts for good; they are dropped", zap.Int("verdicts", n), zap.Error(err))
	}
	d.backoff, d.retryAt = 0, time.Time{}
	d.forgetThrough(ctx, last)
	return true
}

// worthAgain reports whether some consumer would take verdicts at another attempt. The next
// consumer gives them to several, and its error is all of theirs: who has a queue that is
// full, or refuses for good, does not hold up the others.
func worthAgain(err error) bool {
	switch wrapper := any(err).(type) {
	case nil:
		return false
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(wrapper.Unwrap(), worthAgain)
	case interface{ Unwrap() error }:
		if inner := wrapper.Unwrap(); inner != nil && consumererror.IsPermanent(inner) == consumererror.IsPermanent(err) {
			return worthAgain(inner)
		}
	}
	return !consumererror.IsPermanent(err) && !errors.Is(err, exporterhelper.ErrQueueIsFull)
}

// forgetThrough takes verdicts out of outbox and storage. mu is held.
func (d *detector) forgetThrough(ctx context.Context, last uint64) {
	d.outbox.DropThrough(last)
	d.storeOutboxes(ctx)
}

// storeOutboxes writes what has left them. mu is held.
func (d *detector) storeOutboxes(ctx context.Context) {
	if d.journal == nil || d.stale {
		return // a stale storage learns of it with its snapshot
	}
	if err := d.journal.Write(ctx, &d.outbox); err != nil {
		d.storageFailed(ctx, err)
	}
}

// verdictLogs makes the records, each under the resource of the host it names.
func (d *detector) verdictLogs(items [][]byte) plog.Logs {
	ld := plog.NewLogs()
	byHost := map[string]plog.LogRecordSlice{}
	observed := pcommon.NewTimestampFromTime(d.clock.now())
	for _, item := range items {
		v, err := verdict.FromJSON(item)
		if err != nil {
			continue // enqueue and restoreOutbox let in none
		}
		host, node := d.place(v)
		records, ok := byHost[host+"\x00"+node]
		if !ok {
			records = d.scope(ld, host, node)
			byHost[host+"\x00"+node] = records
		}
		record := records.AppendEmpty()
		verdict.ToRecord(v, record)
		record.SetObservedTimestamp(observed)
	}
	return ld
}

// place is the host and the Kubernetes node a verdict is about: what it names,
// else this host.
func (d *detector) place(v verdict.Verdict) (host, node string) {
	host, node = v.Culprit["host"], v.Culprit["node"]
	if host == "" {
		host = d.hostname
	}
	if node == "" && host == d.hostname {
		node = os.Getenv("K8S_NODE_NAME")
	}
	return host, node
}

func (d *detector) scope(ld plog.Logs, host, node string) plog.LogRecordSlice {
	resource := ld.ResourceLogs().AppendEmpty()
	if host != "" {
		resource.Resource().Attributes().PutStr("host.name", host)
	}
	if node != "" {
		resource.Resource().Attributes().PutStr("k8s.node.name", node)
	}
	scope := resource.ScopeLogs().AppendEmpty()
	scope.Scope().SetName(metadata.ScopeName)
	scope.Scope().SetVersion(d.version)
	return scope.LogRecords()
}
