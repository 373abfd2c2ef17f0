package rankjoinprocessor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/keeper"
	"github.com/tracecoreai/tracecore/processors/internal/journal"
)

// record writes the call that was made of the join, if it mattered, and what it
// led to. mu is held.
func (p *rankJoin) record(ctx context.Context, now time.Time, mattered plog.Logs, passed step) {
	if mattered.LogRecordCount()+passed.found.LogRecordCount() == 0 && !passed.due {
		return
	}
	p.enqueue(ctx, passed.found)
	if p.journal == nil || p.stale {
		return // the snapshot that ends this state will hold it
	}
	e := journal.Entry{Advanced: now, Made: statements(passed.found)}
	if mattered.LogRecordCount() > 0 {
		e.Signal = journal.SignalLogs
		e.Payload, _ = (&plog.ProtoMarshaler{}).MarshalLogs(mattered) // data in memory always encodes
	}
	p.storageFailed(ctx, p.journal.Append(ctx, &e, &p.outbox))
	p.maintain(ctx)
}

// statements names findings: what is found again at another time is another one.
func statements(found plog.Logs) []journal.Revision {
	var made []journal.Revision
	for _, resource := range found.ResourceLogs().All() {
		r := resource.ScopeLogs().At(0).LogRecords().At(0)
		a := r.Attributes()
		id := fmt.Sprintf("%s %q %q %q %q %q", r.EventName(), textOf(a, "nccl.collective.id"), textOf(a, "nccl.collective.stop"), textOf(a, "nccl.collective.run"), textOf(a, "nccl.fr.pg_id"), textOf(a, "nccl.fr.pg_desc"))
		made = append(made, journal.Revision{ID: id, Number: int(r.Timestamp())})
	}
	return made
}

func textOf(a pcommon.Map, key string) string {
	if v, found := a.Get(key); found {
		return v.AsString()
	}
	return ""
}

// open finds the storage and takes up the state in it. What cannot be used is
// forgotten, and said.
func (p *rankJoin) open(ctx context.Context, host component.Host) error {
	extension, err := keeper.Find(host, p.config.Storage)
	if extension == nil || err != nil {
		return err
	}
	if p.journal, err = journal.Open(ctx, extension, p.id); err != nil {
		p.storageFailed(ctx, fmt.Errorf("storage %q: %w", p.config.Storage, err))
		return nil
	}
	p.host.Keeps = true
	p.mu.Lock()
	defer p.mu.Unlock()
	if damage := p.journal.LoadOutbox(ctx, &p.outbox, usable); len(damage) > 0 {
		p.countDropped(ctx, int64(len(damage)))
		p.storageFailed(ctx, errors.Join(damage[0], p.journal.ResetOutbox(ctx, &p.outbox)))
	}
	p.countDropped(ctx, int64(p.outbox.Trim()))
	state, err := p.journal.Load(ctx)
	if err == nil && state != nil {
		err = p.join.Restore(state)
	}
	if err != nil {
		p.storageFailed(ctx, errors.Join(err, p.journal.ResetState(ctx, p.clock.now())))
		p.maintain(ctx)
		return nil
	}
	p.replay(ctx)
	p.join.Resumed(p.clock.now())
	p.stale = true // what that changes is in no entry of the journal
	p.maintain(ctx)
	return nil
}

func usable(item []byte) error {
	_, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(item)
	return err
}

// replay makes the calls since the snapshot again. What was found then is said.
func (p *rankJoin) replay(ctx context.Context) {
	said := map[journal.Revision]bool{}
	err := p.journal.Replay(ctx, func(e journal.Entry, damage error) {
		if damage != nil {
			p.storageFailed(ctx, damage)
			return
		}
		for _, made := range e.Made {
			said[made] = true
		}
		found := p.host.Advance(e.Advanced.UnixNano())
		if e.Signal == journal.SignalLogs {
			logs, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(e.Payload)
			p.storageFailed(ctx, err)
			if err == nil {
				p.host.Logs(logs, e.Advanced.UnixNano())
			}
		}
		found.ResourceLogs().RemoveIf(func(resource plog.ResourceLogs) bool {
			one := plog.NewLogs()
			resource.CopyTo(one.ResourceLogs().AppendEmpty())
			return said[statements(one)[0]]
		})
		p.enqueue(ctx, found)
	})
	p.storageFailed(ctx, err)
}

// maintain takes a snapshot when the journal is full or the storage missed
// something. mu is held.
func (p *rankJoin) maintain(ctx context.Context) {
	switch {
	case p.journal == nil || p.journal.Saving():
	case p.stale:
		if err := p.checkpoint(ctx); err != nil {
			p.storageFailed(ctx, err)
			return
		}
		p.stale = false
	case p.journal.Full():
		p.journal.Save(ctx, &p.mu, p.join.Save().Encode, func(err error) { p.storageFailed(ctx, err) })
	}
}

// checkpoint replaces the journal by a snapshot. mu is held.
func (p *rankJoin) checkpoint(ctx context.Context) error {
	state, err := p.join.Snapshot()
	if err != nil {
		return err
	}
	return p.journal.Snapshot(ctx, state, &p.outbox)
}

// close saves the state and gives the storage back.
func (p *rankJoin) close(ctx context.Context) error {
	if p.journal != nil {
		p.journal.Saved(&p.mu)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.journal == nil {
		if left := p.outbox.Len(); left > 0 {
			p.logger.Error("findings are lost: the next consumer refuses them, and without storage they do not survive a restart", zap.Int("findings", left))
		}
		return nil
	}
	err := errors.Join(p.checkpoint(ctx), p.journal.Client.Close(ctx))
	p.journal = nil
	return err
}

// storageFailed says once that what follows would not survive a restart; nil is no
// failure.
func (p *rankJoin) storageFailed(ctx context.Context, err error) {
	if err == nil {
		return
	}
	p.telemetry.ProcessorRankjoinStorageErrors.Add(ctx, 1)
	if !p.stale {
		p.logger.Warn("the storage cannot be used: a crash may lose a finding until a snapshot succeeds, which is tried every second; make room or repair the storage", zap.Error(err))
	}
	p.stale = true
}
