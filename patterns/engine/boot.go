package engine

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// boot is the boot of a machine that a sender speaks of, while a fault of an earlier one
// stands; its host is "" otherwise.
type boot struct{ host, id string }

// bootOf reads the boot of resource where that may end a fault: any record of it would.
func (e *Engine) bootOf(resource pcommon.Map) boot {
	id, ok := resource.Get(rule.AttributeBoot)
	if !ok {
		return boot{}
	}
	host, ok := resource.Get("host.name")
	if !ok || !e.faults.Ends(host.AsString(), id.AsString()) {
		return boot{}
	}
	return boot{host.AsString(), id.AsString()}
}

// tell ends the faults that b ends, if the record with these attributes is proven, and
// reports whether it was.
func (e *Engine) tell(b *boot, source string, at int64, resource, attributes pcommon.Map) bool {
	if b.host == "" || rule.TrustOf(resource, attributes) != verdict.Proven {
		return false
	}
	span := timeline.Span{Time: at, Last: at}
	if at <= 0 || !e.time.Admit(&span) || span.Overdue != 0 {
		return false
	}
	before := span.Time - 1 // what the record itself tells of belongs to the later boot
	e.faults.Rebooted(fault.Boot{Host: b.host, ID: b.id, Time: before, Source: clean(source), Trust: verdict.Proven})
	*b = boot{}
	return true
}
