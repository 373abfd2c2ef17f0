package patterndetectorprocessor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/keeper"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/internal/journal"
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
func (d *detector) record(ctx context.Context, e journal.Entry, mattered bool) {
	if verdicts := d.engine.Verdicts(); mattered || len(verdicts) > 0 {
		d.commit(ctx, e, verdicts)
	}
}

func (d *detector) commit(ctx context.Context, e journal.Entry, verdicts []verdict.Verdict) {
	d.enqueue(ctx, verdicts)
	if d.journal == nil {
		return
	}
	if d.stale {
		d.telemetry.ProcessorPatterndetectorJournalErrors.Add(ctx, 1)
		return // the snapshot that ends this state will hold it
	}
	e.Advanced, e.Made = d.advanced, revisionsOf(verdicts)
	if err := d.journal.Append(ctx, &e, &d.outbox); err != nil {
		d.storageFailed(ctx, err)
		return
	}
	d.telemetry.ProcessorPatterndetectorJournalEntries.Add(ctx, 1)
	d.maintain(ctx)
}

// revisionsOf names verdicts for the journal.
func revisionsOf(verdicts []verdict.Verdict) []journal.Revision {
	made := make([]journal.Revision, len(verdicts))
	for i := range verdicts {
		made[i] = journal.Revision{ID: verdicts[i].ID, Number: verdicts[i].Revision}
	}
	return made
}

func (d *detector) enqueue(ctx context.Context, verdicts []verdict.Verdict) {
	for _, v := range verdicts {
		d.inStep(&v)
		if d.hold(ctx, v) {
			if d.muted.incident(&v, d.clock.now()) { // who muted it goes on to look at it there
				d.toHistory(ctx, ownerOfVerdict(&v), verdict.ToJSON(v))
			}
			continue
		}
		d.countVerdict(ctx, v)
		item := verdict.ToJSON(v)
		if err := usable(item); err != nil {
			d.countDropped(ctx, 1, droppedInvalid)
			d.logger.Error("a verdict breaks its own schema and is dropped: report it with the pattern's file", zap.String("pattern", v.Pattern), zap.Error(err))
			continue
		}
		owner := ownerOfVerdict(&v)
		d.countDropped(ctx, d.outbox.AddOf(owner, item), droppedFull)
		d.toHistory(ctx, owner, item)
	}
}

// ownerOf is whose room a verdict takes while it waits: as in the engine, what is trusted
// more gives way last, then the machine, pattern and job that have most give way first.
func ownerOf(item []byte) []string {
	v, err := verdict.FromJSON(item)
	if err != nil {
		v = verdict.Verdict{} // usable let it pass, so it is none of these
	}
	return ownerOfVerdict(&v)
}

func ownerOfVerdict(v *verdict.Verdict) []string {
	c := v.Culprit
	return timeline.Path(v.Trust, []string{cmp.Or(c["node"], c["host"]), v.Pattern, c["job_domain"], c["job"]})
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
	switch {
	case d.journal == nil || d.journal.Saving():
	case d.stale:
		if err := d.checkpoint(ctx); err != nil {
			d.storageFailed(ctx, err)
			return
		}
		d.stale = false
		d.logger.Info("storage takes writes again; the state is saved")
	case d.journal.Full():
		d.save(ctx)
	}
}

// save takes a snapshot while the engine goes on. mu is held.
func (d *detector) save(ctx context.Context) {
	state, err := d.engine.Save()
	if err != nil {
		d.storageFailed(ctx, fmt.Errorf("take a snapshot of the patterns: %w", err))
		return
	}
	d.journal.Save(ctx, &d.mu, state.Encode, func(err error) { d.storageFailed(ctx, err) })
}

// checkpoint replaces the journal by a snapshot. mu is held.
func (d *detector) checkpoint(ctx context.Context) error {
	state, err := d.engine.Snapshot()
	if err != nil {
		return fmt.Errorf("take a snapshot of the patterns: %w", err)
	}
	return d.journal.Snapshot(ctx, state, &d.outbox)
}

// open finds the storage and takes up the state in it. A storage that is named
// wrongly is an error; one that cannot be used is said loudly and done without:
// patterns without memory are better than none.
func (d *detector) open(ctx context.Context, host component.Host) error {
	extension, err := keeper.Find(host, d.config.Storage)
	if err := errors.Join(err, d.findHistory(host)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var past replayed
	if extension != nil {
		if d.journal, err = journal.Open(ctx, extension, d.id); err != nil {
			d.reset(ctx, resetUnavailable, "storage cannot be opened, so a restart will forget the state: repair it and restart", err)
			componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
		} else {
			d.restoreOutbox(ctx)
			d.restoreUnkept(ctx)
			d.loadMuted(ctx)
			d.loadNear(ctx)
			past = d.restore(ctx)
		}
	}
	d.sayMutes(d.clock.now())
	d.resume(ctx, past)
	return nil
}

// resume goes on from the past to now.
func (d *detector) resume(ctx context.Context, past replayed) {
	d.advanced = d.clock.now()
	if d.engine.Resumed(d.advanced) {
		d.stale = true // what that changes is in no entry of the journal
	}
	changed := d.engine.Advance(d.advanced)
	unsaid := past.unsaid(d.engine.Verdicts())
	d.counted = d.engine.Stats()
	switch {
	case d.stale:
		d.enqueue(ctx, unsaid)
		d.maintain(ctx)
	case changed || len(unsaid) > 0:
		d.commit(ctx, journal.Entry{}, unsaid)
	}
}

// replayed is what came out of the journal: the verdicts that were said when it
// was written, and those that came of it now.
type replayed struct {
	said map[journal.Revision]bool
	made []verdict.Verdict
}

// unsaid returns the verdicts made from the journal, and more, that were not
// said then: what only a newer version of the rules or the engine concludes.
func (h *replayed) unsaid(more []verdict.Verdict) []verdict.Verdict {
	var unsaid []verdict.Verdict
	for _, v := range append(h.made, more...) {
		if !h.said[journal.Revision{ID: v.ID, Number: v.Revision}] {
			unsaid = append(unsaid, v)
		}
	}
	return unsaid
}

// restore brings back the engine's state. Whatever cannot be
// used is forgotten, loudly. mu is held.
func (d *detector) restore(ctx context.Context) (past replayed) {
	state, err := d.journal.Load(ctx)
	if err != nil {
		d.forgetState(ctx, resetCorrupt, err)
		return past
	}
	var ended []verdict.Verdict
	if state != nil {
		state, ended = d.endSwitchedOff(state)
		if err := d.engine.Restore(state); err != nil {
			d.forgetState(ctx, resetIncompatible, err)
			return past
		}
		if gone := d.engine.Stats().NotRestored; gone > 0 {
			d.reset(ctx, resetRulesChanged, fmt.Sprintf("rules have changed since the last run: %d stored parts of faults belong to none of them and are dropped", gone), nil)
		}
	}
	past = d.replay(ctx)
	past.made = append(ended, past.made...)
	return past
}

// endSwitchedOff ends the verdicts of patterns that were on when the state was saved and are
// off now. It takes their rules to say so. Returned are the state without them and what is
// to be told; a state that cannot be used stays as it is.
func (d *detector) endSwitchedOff(state []byte) (rest []byte, ended []verdict.Verdict) {
	names, rules, err := d.config.switchedOff()
	if err != nil || len(names) == 0 {
		return state, nil // newDetector had no error
	}
	before, err := engine.New(rules, d.config.engineOptions())
	if err != nil || before.Restore(state) != nil {
		return state, nil
	}
	before.SwitchOff(names)
	ended = before.Verdicts()
	if rest, err = before.Snapshot(); err != nil {
		return state, nil
	}
	return rest, ended
}

// replay tells the engine again what the journal says it was told.
func (d *detector) replay(ctx context.Context) replayed {
	past := replayed{said: map[journal.Revision]bool{}}
	var damage []error
	err := d.journal.Replay(ctx, func(e journal.Entry, err error) {
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

// apply makes the calls of one journal.Entry again.
func (d *detector) apply(e journal.Entry, past *replayed) error {
	d.engine.Advance(e.Advanced)
	switch e.Signal {
	case journal.SignalLogs:
		ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(e.Payload)
		if err != nil {
			return err
		}
		d.engine.Logs(ld)
		d.atHand(ld, e.Payload)
		d.noteRanks(context.Background(), ld) // a kill may have come before the history had them
	case journal.SignalMetrics:
		md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(e.Payload)
		if err != nil {
			return err
		}
		d.engine.Metrics(md)
	}
	past.made = append(past.made, d.engine.Verdicts()...)
	for _, r := range e.Made {
		past.said[r] = true
	}
	return nil
}

// restoreOutbox takes up the verdicts that were not delivered. mu is held.
func (d *detector) restoreOutbox(ctx context.Context) {
	if damage := d.journal.LoadOutbox(ctx, &d.outbox, usable); len(damage) > 0 {
		d.countDropped(ctx, len(damage), droppedCorrupt)
		d.reset(ctx, resetCorrupt, "stored verdicts that were not delivered cannot be used", damage[0])
		d.stale = true
		if err := d.journal.ResetOutbox(ctx, &d.outbox); err != nil {
			d.storageFailed(ctx, err)
		}
	}
	d.countDropped(ctx, d.outbox.Trim(), droppedFull)
}

// restoreUnkept takes up the verdicts that the history did not acknowledge. Where there is
// no history any more, the storage forgets them. mu is held.
func (d *detector) restoreUnkept(ctx context.Context) {
	unkept := &d.keeping.unkept
	if damage := d.journal.LoadOutbox(ctx, unkept, usable); len(damage) > 0 {
		d.countUnkept(ctx, len(damage), droppedCorrupt)
		d.reset(ctx, resetCorrupt, "stored verdicts that wait for the history cannot be used", damage[0])
		d.stale = true
		if err := d.journal.ResetOutbox(ctx, unkept); err != nil {
			d.storageFailed(ctx, err)
		}
	}
	if d.keeping.keeper == nil {
		_, last := unkept.First(unkept.Len())
		unkept.DropThrough(last)
	}
	d.countUnkept(ctx, unkept.Trim(), droppedFull)
	d.journal.Second = unkept
}

// forgetState begins again with an empty engine and a clean journal.
func (d *detector) forgetState(ctx context.Context, reason string, err error) {
	d.reset(ctx, reason, "stored state cannot be used, the patterns start afresh: faults that were in the making may go unnamed, open ones will not resolve", err)
	if fresh, err := engine.New(d.rules, d.engineOptions()); err == nil { // it worked with these rules before
		d.engine = fresh
	}
	d.stale = true
	if err := d.journal.ResetState(ctx, d.clock.now()); err != nil {
		d.storageFailed(ctx, err)
	}
}
