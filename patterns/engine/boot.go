package engine

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/run"
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
	began := numberOr(attributes, rule.AttributeRankStart, 0)
	e.faults.Rebooted(fault.Boot{Host: b.host, ID: b.id, Time: before, Began: began, Source: clean(source), Trust: verdict.Proven})
	*b = boot{}
	return true
}

// ofRanks shows the boot that r tells of once more for each rank that its machine had before and whose
// end nobody saw, with the identity of that rank. It reports whether there was one.
func (e *Engine) ofRanks(by interest, r *record) bool {
	if r.source != rule.EventBoot || r.trust != verdict.Proven || r.Overdue != 0 {
		return false
	}
	left := e.runs.Rebooted(rule.Text(r.resource, "host.name"), rule.Text(r.resource, rule.AttributeBoot), r.began)
	// What a boot ends was told by the record itself.
	by.watches = slices.DeleteFunc(slices.Clone(by.watches), func(w *watch) bool { return w.Reboot })
	for i := range left {
		e.ofRank(by, r, &left[i])
	}
	return len(left) > 0
}

func (e *Engine) ofRank(by interest, r *record, left *run.Left) {
	one := *r
	one.logRecord, one.log = plog.NewLogRecord(), nil
	defer one.close()
	r.logRecord.CopyTo(one.logRecord)
	one.attributes, one.run = one.logRecord.Attributes(), left.Run
	one.attributes.PutStr(rule.AttributeJob, left.Of.ID)
	if left.Of.Domain != "" {
		one.attributes.PutStr(rule.AttributeJobDomain, left.Of.Domain)
	}
	one.attributes.PutInt(rule.AttributeRank, int64(left.Rank))
	one.attributes.PutStr(rule.AttributeTrust, left.Of.Trust.String())
	e.show(by, &one)
}
