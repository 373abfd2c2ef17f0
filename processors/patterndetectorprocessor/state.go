package patterndetectorprocessor

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Why state was reset, as metadata.yaml lists it.
const (
	resetCorrupt      = "corrupt"
	resetIncompatible = "incompatible"
	resetRulesChanged = "rules_changed"
	resetUnavailable  = "unavailable"
)

// record writes what the engine was just told, if that mattered, and the
// verdicts that it led to, before anyone hears of them. mu is held.
func (d *detector) record(ctx context.Context, e entry, mattered bool) {
	if verdicts := d.engine.Verdicts(); mattered || len(verdicts) > 0 {
		d.commit(ctx, e, verdicts)
	}
}

func (d *detector) commit(ctx context.Context, e entry, verdicts []verdict.Verdict) {
	d.enqueue(ctx, verdicts)
	if d.journal == nil {
		return
	}
	if d.stale {
		d.telemetry.ProcessorPatterndetectorJournalErrors.Add(ctx, 1)
		return // the snapshot that ends this state will hold it
	}
	e.advanced, e.made = d.advanced, revisionsOf(verdicts)
	if err := d.journal.append(ctx, &e, &d.outbox); err != nil {
		d.storageFailed(ctx, err)
		return
	}
	d.telemetry.ProcessorPatterndetectorJournalEntries.Add(ctx, 1)
	d.maintain(ctx)
}

func (d *detector) enqueue(ctx context.Context, verdicts []verdict.Verdict) {
	for _, v := range verdicts {
		d.countVerdict(ctx, v)
		item := verdict.ToJSON(v)
		if err := usable(item); err != nil {
			d.countDropped(ctx, 1, droppedInvalid)
			d.logger.Error("a verdict breaks its own schema and is dropped: report it with the pattern's file", zap.String("pattern", v.Pattern), zap.Error(err))
			continue
		}
		d.countDropped(ctx, d.outbox.add(item), droppedFull)
	}
}

// usable says whether a verdict can be delivered.
func usable(item []byte) error {
	_, err := verdict.FromJSON(item)
	return err
}

// storageFailed says once that what follows would not survive a restart.
func (d *detector) storageFailed(ctx context.Context, err error) {
	d.telemetry.ProcessorPatterndetectorJournalErrors.Add(ctx, 1)
	if !d.stale {
		d.logger.Error("storage refuses to write: verdicts go on, but a restart would forget what happens now; make room or repair the storage, a snapshot is tried every second", zap.Error(err))
	}
	d.stale = true
}

// maintain takes a snapshot when the journal is full or the storage missed
// something. mu is held.
func (d *detector) maintain(ctx context.Context) {
	if d.journal == nil || !d.stale && !d.journal.full() {
		return
	}
	if err := d.checkpoint(ctx); err != nil {
		d.storageFailed(ctx, err)
		return
	}
	if d.stale {
		d.stale = false
		d.logger.Info("storage takes writes again; the state is saved")
	}
}

// checkpoint replaces the journal by a snapshot. mu is held.
func (d *detector) checkpoint(ctx context.Context) error {
	state, err := d.engine.Snapshot()
	if err != nil {
		return fmt.Errorf("take a snapshot of the patterns: %w", err)
	}
	return d.journal.snapshot(ctx, state, &d.outbox)
}

// open finds the storage and takes up the state in it. A storage that is named
// wrongly is an error; one that cannot be used is said loudly and done without:
// patterns without memory are better than none.
func (d *detector) open(ctx context.Context, host component.Host) error {
	extension, err := d.storageExtension(host)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var past history
	if extension != nil {
		if d.journal, err = openJournal(ctx, extension, d.id); err != nil {
			d.reset(ctx, resetUnavailable, "storage cannot be opened, so a restart will forget the state: repair it and restart", err)
			componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
		} else {
			past = d.restore(ctx)
		}
	}
	d.resume(ctx, past)
	return nil
}

// resume goes on from the past to now.
func (d *detector) resume(ctx context.Context, past history) {
	d.advanced = d.clock.now()
	changed := d.engine.Advance(d.advanced)
	unsaid := past.unsaid(d.engine.Verdicts())
	d.counted = d.engine.Stats()
	switch {
	case d.stale:
		d.enqueue(ctx, unsaid)
		d.maintain(ctx)
	case changed || len(unsaid) > 0:
		d.commit(ctx, entry{}, unsaid)
	}
}

// history is what came out of the journal: the verdicts that were said when it
// was written, and those that came of it now.
type history struct {
	said map[revision]bool
	made []verdict.Verdict
}

// unsaid returns the verdicts made from the journal, and more, that were not
// said then: what only a newer version of the rules or the engine concludes.
func (h *history) unsaid(more []verdict.Verdict) []verdict.Verdict {
	var unsaid []verdict.Verdict
	for _, v := range append(h.made, more...) {
		if !h.said[revision{v.ID, v.Revision}] {
			unsaid = append(unsaid, v)
		}
	}
	return unsaid
}

func (d *detector) storageExtension(host component.Host) (storage.Extension, error) {
	if d.config.Storage == nil {
		return nil, nil
	}
	found, ok := host.GetExtensions()[*d.config.Storage]
	if !ok {
		return nil, fmt.Errorf("storage %q is not there: define it under extensions and name it in service::extensions", *d.config.Storage)
	}
	extension, ok := found.(storage.Extension)
	if !ok {
		return nil, fmt.Errorf("storage %q is not a storage extension: name one, such as file_storage", *d.config.Storage)
	}
	return extension, nil
}

func openJournal(ctx context.Context, extension storage.Extension, id component.ID) (j *journal, err error) {
	defer func() {
		if r := recover(); r != nil { // bbolt on a damaged file
			j, err = nil, fmt.Errorf("storage panicked: %v", r)
		}
	}()
	client, err := extension.GetClient(ctx, component.KindProcessor, id, "")
	if err != nil {
		return nil, err
	}
	return &journal{client: client}, nil
}

// restore brings back the outbox and the engine's state. Whatever cannot be
// used is forgotten, loudly. mu is held.
func (d *detector) restore(ctx context.Context) (past history) {
	d.restoreOutbox(ctx)
	state, err := d.journal.load(ctx)
	if err != nil {
		d.forgetState(ctx, resetCorrupt, err)
		return past
	}
	if state != nil {
		if err := d.engine.Restore(state); err != nil {
			d.forgetState(ctx, resetIncompatible, err)
			return past
		}
		if gone := d.engine.Stats().NotRestored; gone > 0 {
			d.reset(ctx, resetRulesChanged, fmt.Sprintf("rules have changed since the last run: %d stored parts of faults belong to none of them and are dropped", gone), nil)
		}
	}
	return d.replay(ctx)
}

// replay tells the engine again what the journal says it was told.
func (d *detector) replay(ctx context.Context) history {
	past := history{said: map[revision]bool{}}
	var damage []error
	err := d.journal.replay(ctx, func(e entry, err error) {
		if err == nil {
			err = d.apply(e, &past)
		}
		if err != nil {
			damage = append(damage, err)
		}
	})
	if err = errors.Join(err, errors.Join(damage[:min(len(damage), 3)]...)); err != nil {
		d.stale = true // so that a snapshot replaces the damaged journal
		d.reset(ctx, resetCorrupt, "part of the stored journal cannot be used: faults that were in the making may go unnamed", err)
	}
	return past
}

// apply makes the calls of one entry again.
func (d *detector) apply(e entry, past *history) error {
	d.engine.Advance(e.advanced)
	switch e.signal {
	case signalLogs:
		ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(e.payload)
		if err != nil {
			return err
		}
		d.engine.Logs(ld)
	case signalMetrics:
		md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(e.payload)
		if err != nil {
			return err
		}
		d.engine.Metrics(md)
	}
	past.made = append(past.made, d.engine.Verdicts()...)
	for _, r := range e.made {
		past.said[r] = true
	}
	return nil
}

// restoreOutbox takes up the verdicts that were not delivered. mu is held.
func (d *detector) restoreOutbox(ctx context.Context) {
	if damage := d.journal.loadOutbox(ctx, &d.outbox, usable); len(damage) > 0 {
		d.countDropped(ctx, len(damage), droppedCorrupt)
		d.reset(ctx, resetCorrupt, "stored verdicts that were not delivered cannot be used", damage[0])
		d.stale = true
		if err := d.journal.resetOutbox(ctx, &d.outbox); err != nil {
			d.storageFailed(ctx, err)
		}
	}
	d.countDropped(ctx, d.outbox.trim(), droppedFull)
}

// forgetState begins again with an empty engine and a clean journal.
func (d *detector) forgetState(ctx context.Context, reason string, err error) {
	d.reset(ctx, reason, "stored state cannot be used, the patterns start afresh: faults that were in the making may go unnamed, open ones will not resolve", err)
	if fresh, err := engine.New(d.rules, d.config.engineOptions()); err == nil { // it worked with these rules before
		d.engine = fresh
	}
	d.stale = true
	if err := d.journal.resetState(ctx, d.clock.now()); err != nil {
		d.storageFailed(ctx, err)
	}
}
