package engine

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Logs evaluates each record and returns copies of those some rule wanted, for
// the caller's journal: the same calls again rebuild the same state.
func (e *Engine) Logs(ld plog.Logs) plog.Logs {
	wanted := plog.NewLogs()
	for i := range ld.ResourceLogs().Len() {
		rl := ld.ResourceLogs().At(i)
		from, to := e.resourceOf(rl), plog.NewResourceLogs()
		boot := e.bootOf(from.Resource().Attributes())
		for j := range rl.ScopeLogs().Len() {
			e.scopeLogs(from, rl.ScopeLogs().At(j), &boot, to)
		}
		if to.ScopeLogs().Len() > 0 {
			from.Resource().CopyTo(to.Resource())
			to.MoveTo(wanted.ResourceLogs().AppendEmpty())
		}
	}
	e.decideDue()
	return wanted
}

// resourceOf is rl, or its resource alone, cut to the limits.
func (e *Engine) resourceOf(rl plog.ResourceLogs) plog.ResourceLogs {
	resource, cut := recordLimits.Resource(rl.Resource())
	if !cut {
		return rl
	}
	e.own.Cut++
	short := plog.NewResourceLogs()
	resource.MoveTo(short.Resource())
	return short
}

func (e *Engine) scopeLogs(rl plog.ResourceLogs, sl plog.ScopeLogs, boot *boot, to plog.ResourceLogs) {
	var wanted plog.LogRecordSlice
	found := false
	for k := range sl.LogRecords().Len() {
		lr := sl.LogRecords().At(k)
		by := e.logs[lr.EventName()]
		if forged(lr.EventName()) {
			e.own.Unmatched++
			continue
		}
		told := e.tell(boot, lr.EventName(), int64(lr.Timestamp()), rl.Resource().Attributes(), lr.Attributes())
		if by.none() && lr.EventName() != rule.EventStart && lr.EventName() != eventLost && !told {
			e.unwanted(rl, lr)
			continue
		}
		lr, cut := recordLimits.Record(lr)
		if cut {
			e.own.Cut++
		}
		if !e.log(by, rl, sl, lr) && !told {
			e.unwanted(rl, lr)
			continue
		}
		e.own.Matched++
		if !found {
			scope := to.ScopeLogs().AppendEmpty()
			recordLimits.Scope(sl.Scope(), scope.Scope())
			found, wanted = true, scope.LogRecords()
		}
		lr.CopyTo(wanted.AppendEmpty())
	}
}

// unwanted counts a record that no rule wants.
func (e *Engine) unwanted(rl plog.ResourceLogs, lr plog.LogRecord) {
	e.own.Unmatched++
	if e.unread != nil {
		e.unread(rl.Resource(), lr)
	}
}

// log shows one record to those that watch its name.
func (e *Engine) log(by interest, rl plog.ResourceLogs, sl plog.ScopeLogs, lr plog.LogRecord) bool {
	r := record{
		resource: rl.Resource().Attributes(), attributes: lr.Attributes(),
		resourceLogs: rl, scopeLogs: sl, logRecord: lr,
		source: clean(lr.EventName()), Span: timeline.Span{Time: int64(lr.Timestamp())}, count: 1,
	}
	defer r.close()
	if r.Time <= 0 || r.Time > timeline.MaxTime {
		r.Time = int64(lr.ObservedTimestamp())
	}
	r.Last = r.Time
	r.storm()
	r.began = e.beginnings.Began(r.source, r.Time, r.attributes)
	if e.loses(&r) {
		return true
	}
	news := e.identify(&r)
	wanted := e.show(by, &r)
	wanted = e.ofRanks(by, &r) || wanted || news
	if wanted && r.trust == verdict.Proven {
		e.corrected(r.resource)
	}
	return wanted
}

// corrected notes whether the times of a machine were corrected on their way, since its clock is wrong.
func (e *Engine) corrected(resource pcommon.Map) {
	seconds, ok := resource.Get(rule.AttributeCorrected)
	if !ok && !e.faults.Corrects() {
		return
	}
	var by time.Duration
	if ok {
		by = time.Duration(seconds.Double() * float64(time.Second)).Round(time.Millisecond)
	}
	if host := clean(rule.Text(resource, "host.name")); host != "" {
		e.faults.Corrected(host, by)
	}
}
