package rankjoinprocessor

import (
	"context"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"
)

// mostAtOnce is how many findings one call of the next consumer has.
const mostAtOnce = 100

// enqueue takes findings into the outbox. mu is held.
func (p *rankJoin) enqueue(ctx context.Context, found plog.Logs) {
	lost := p.join.Stats().DroppedFindings - p.dropped
	p.dropped += lost
	for _, resource := range found.ResourceLogs().All() {
		p.countFinding(ctx, resource)
		one := plog.NewLogs()
		resource.CopyTo(one.ResourceLogs().AppendEmpty())
		item, _ := (&plog.ProtoMarshaler{}).MarshalLogs(one) // data in memory always encodes
		lost += int64(p.outbox.Add(item))
	}
	p.countDropped(ctx, lost)
}

// ownerOf is whose room a finding takes while it waits: the machine's that told of it, and
// on it the job's that has most.
func ownerOf(item []byte) []string {
	owner := make([]string, 3)
	ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(item)
	if err != nil || ld.LogRecordCount() == 0 {
		return owner
	}
	resource := ld.ResourceLogs().At(0)
	text := func(m pcommon.Map, key string) string {
		if v, ok := m.Get(key); ok {
			return v.AsString()
		}
		return ""
	}
	finding := resource.ScopeLogs().At(0).LogRecords().At(0).Attributes()
	return append(owner[:0], text(resource.Resource().Attributes(), "host.name"), text(finding, "gen_ai.training.job_domain"), text(finding, "gen_ai.training.job_id"))
}

// deliver sends what waits, oldest first, until the consumer refuses.
func (p *rankJoin) deliver(ctx context.Context) {
	p.sending.Lock()
	defer p.sending.Unlock()
	for {
		p.mu.Lock()
		items, last := p.outbox.First(mostAtOnce)
		p.mu.Unlock()
		if len(items) == 0 || !p.send(ctx, items) {
			return
		}
		p.mu.Lock()
		p.outbox.DropThrough(last)
		if p.journal != nil && !p.stale { // a stale storage learns of it with its snapshot
			p.storageFailed(ctx, p.journal.Write(ctx, &p.outbox))
		}
		p.mu.Unlock()
	}
}

// send reports whether the findings are off our hands.
func (p *rankJoin) send(ctx context.Context, items [][]byte) bool {
	logs := plog.NewLogs()
	for _, item := range items {
		if one, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(item); err == nil { // only such are let in
			one.ResourceLogs().MoveAndAppendTo(logs.ResourceLogs())
		}
	}
	err := p.next.ConsumeLogs(context.WithoutCancel(ctx), logs)
	if err == nil {
		return true
	}
	if !consumererror.IsPermanent(err) {
		return false
	}
	p.countDropped(ctx, int64(len(items)))
	p.logger.Error("findings are lost: the next consumer refuses them for good", zap.Error(err))
	return true
}
