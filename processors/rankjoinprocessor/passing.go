package rankjoinprocessor

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/join"
)

// wanted reports which of the records that are joined stand in a batch.
func wanted(logs plog.Logs) (dumps, stalls bool) {
	for _, resourceLogs := range logs.ResourceLogs().All() {
		for _, scopeLogs := range resourceLogs.ScopeLogs().All() {
			for _, r := range scopeLogs.LogRecords().All() {
				switch r.EventName() {
				case join.EventDump:
					dumps = true
				case join.EventStall, join.EventStallEnd:
					stalls = true
				}
			}
		}
	}
	return dumps, stalls
}

// dumpsOf copies the Flight Recorder records out of a batch.
func dumpsOf(logs plog.Logs) plog.Logs {
	dumps := plog.NewLogs()
	for _, resourceLogs := range logs.ResourceLogs().All() {
		var records plog.LogRecordSlice
		for _, scopeLogs := range resourceLogs.ScopeLogs().All() {
			for _, r := range scopeLogs.LogRecords().All() {
				if r.EventName() != join.EventDump {
					continue
				}
				if records == (plog.LogRecordSlice{}) {
					copied := dumps.ResourceLogs().AppendEmpty()
					resourceLogs.Resource().CopyTo(copied.Resource())
					records = copied.ScopeLogs().AppendEmpty().LogRecords()
				}
				r.CopyTo(records.AppendEmpty())
			}
		}
	}
	return dumps
}

// stamp puts rank and size of the job on the records that are joined and lack
// them. mu is held.
func (p *rankJoin) stamp(logs plog.Logs) {
	for _, resourceLogs := range logs.ResourceLogs().All() {
		for _, scopeLogs := range resourceLogs.ScopeLogs().All() {
			for _, r := range scopeLogs.LogRecords().All() {
				switch r.EventName() {
				case join.EventDump, join.EventStall, join.EventStallEnd:
					p.stampOne(r)
				}
			}
		}
	}
}

func (p *rankJoin) stampOne(r plog.LogRecord) {
	a := r.Attributes()
	if _, found := a.Get("gen_ai.training.rank"); !found {
		if rank, found := a.Get("nccl.fr.rank"); found && rank.Type() == pcommon.ValueTypeInt {
			a.PutInt("gen_ai.training.rank", rank.Int())
		}
	}
	if _, found := a.Get("gen_ai.training.world_size"); found {
		return
	}
	if size := p.join.Size(textOf(a, "gen_ai.training.job_id"), textOf(a, "nccl.fr.run")); size > 0 {
		a.PutInt("gen_ai.training.world_size", int64(size))
	}
}

func textOf(a pcommon.Map, key string) string {
	if v, found := a.Get(key); found {
		return v.AsString()
	}
	return ""
}
