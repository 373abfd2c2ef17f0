package rankjoinprocessor

import (
	"context"

	"go.opentelemetry.io/collector/consumer/consumererror"
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
