package patterndetectorprocessor

import (
	"time"

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
	book.AddNear(host, trust, payload, now)
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
