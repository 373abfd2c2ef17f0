package engine

import (
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
)

// Logs evaluates each record and returns copies of those some rule wanted, for
// the caller's journal: the same calls again rebuild the same state.
func (e *Engine) Logs(ld plog.Logs) plog.Logs {
	wanted := plog.NewLogs()
	for i := range ld.ResourceLogs().Len() {
		rl := ld.ResourceLogs().At(i)
		to := plog.NewResourceLogs()
		for j := range rl.ScopeLogs().Len() {
			e.scopeLogs(rl, rl.ScopeLogs().At(j), to)
		}
		if to.ScopeLogs().Len() > 0 {
			rl.Resource().CopyTo(to.Resource())
			to.MoveTo(wanted.ResourceLogs().AppendEmpty())
		}
	}
	e.decideDue()
	return wanted
}

func (e *Engine) scopeLogs(rl plog.ResourceLogs, sl plog.ScopeLogs, to plog.ResourceLogs) {
	var wanted plog.LogRecordSlice
	found := false
	for k := range sl.LogRecords().Len() {
		lr := sl.LogRecords().At(k)
		by := e.logs[lr.EventName()]
		if by.none() || forged(lr.EventName()) || !e.log(by, rl, sl, lr) {
			e.own.Unmatched++
			continue
		}
		e.own.Matched++
		if !found {
			scope := to.ScopeLogs().AppendEmpty()
			sl.Scope().CopyTo(scope.Scope())
			found, wanted = true, scope.LogRecords()
		}
		lr.CopyTo(wanted.AppendEmpty())
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
	return e.show(by, &r)
}
