package patterndetectorprocessor

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Bounds of the records that no rule wanted, and which may stand near a verdict to come. They
// cost what their copies cost: so many a second, and no large ones.
const (
	mostNear     = 200 // a second
	mostNearHost = 20  // of one machine
	mostNearSize = 8 << 10
)

// nearby holds records that no rule wanted. The engine calls it with mu held.
type nearby struct {
	second int64
	came   map[string]int // in this second, by machine
	all    int
	left   uint64
}

// unread takes a record that no rule wanted. Of what strangers tell only a warning is near, as
// logs of applications without a severity are most of what comes.
func (d *detector) unread(resource pcommon.Resource, record plog.LogRecord) {
	book := d.keeping.gathering.book
	severity := record.SeverityNumber()
	if book == nil || record.EventName() == verdict.EventName {
		return
	}
	trust := rule.TrustOf(resource.Attributes(), record.Attributes())
	if trust == verdict.Foreign && severity < plog.SeverityNumberWarn {
		return
	}
	host, now := incidentview.HostOf(resource.Attributes()), d.clock.now()
	if host == "" || !d.keeping.gathering.nearby.admits(host, now) {
		return
	}
	d.holdNear(resource, record, now)
}

// holdNear holds a record, unless it is large. mu is held.
func (d *detector) holdNear(resource pcommon.Resource, record plog.LogRecord, now time.Time) {
	ld := plog.NewLogs()
	to := ld.ResourceLogs().AppendEmpty()
	resource.CopyTo(to.Resource())
	record.CopyTo(to.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
	marshaler := plog.ProtoMarshaler{}
	if marshaler.LogsSize(ld) > mostNearSize {
		d.keeping.gathering.nearby.left++
		return
	}
	payload, _ := marshaler.MarshalLogs(ld) // data in memory always encodes
	d.keeping.gathering.book.AddNear(incidentview.HostOf(resource.Attributes()), rule.TrustOf(resource.Attributes(), record.Attributes()), payload, now)
}

// keyNear is where the storage has the records of the minute before a stop that no rule wanted.
const keyNear = "near"

// storeNear saves them at a stop, as an incident just after the next start may have them near
// it. After a kill the storage has those of the stop before, which are too old for any. mu is held.
func (d *detector) storeNear(ctx context.Context) {
	book := d.keeping.gathering.book
	if book == nil || d.stale {
		return
	}
	data, err := (&plog.ProtoMarshaler{}).MarshalLogs(book.NearSince(d.clock.now().Add(-incidentview.NearSpan)))
	if err == nil {
		err = d.journal.Write(ctx, &d.outbox, storage.SetOperation(keyNear, data))
	}
	if err != nil {
		d.storageFailed(ctx, fmt.Errorf("store what may be near an incident: %w", err))
	}
}

// loadNear takes them up at a start. What cannot be read is near nothing. mu is held.
func (d *detector) loadNear(ctx context.Context) {
	if d.keeping.gathering.book == nil {
		return
	}
	get := storage.GetOperation(keyNear)
	err := d.journal.Write(ctx, &d.outbox, get)
	if err != nil || get.Value == nil {
		return
	}
	ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(get.Value)
	if err != nil {
		d.reset(ctx, resetCorrupt, "stored records that may be near an incident cannot be used", err)
		return
	}
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				d.holdNear(resource.Resource(), record, d.clock.now())
			}
		}
	}
}

// admits reports whether there is room for one more of a machine in this second.
func (n *nearby) admits(host string, now time.Time) bool {
	if second := now.Unix(); second != n.second || n.came == nil {
		n.second, n.came, n.all = second, map[string]int{}, 0
	}
	if n.all >= mostNear || n.came[host] >= mostNearHost {
		n.left++
		return false
	}
	n.all++
	n.came[host]++
	return true
}
