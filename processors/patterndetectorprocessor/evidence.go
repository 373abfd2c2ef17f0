package patterndetectorprocessor

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/evidence"
)

// gathering keeps the records around the verdicts that the history has. Its goroutine is
// that of keeping.
type gathering struct {
	keeper   history.EvidenceKeeper // nil where the history keeps none
	book     *evidence.Book
	followed *evidence.Followed
	rested   time.Time // no incident is looked at before
	nearby   nearby
}

// restFactor is for how many times as long as a look at one incident took the next waits: the
// evidence of a burst of incidents, each of which has all records of its machines to look at,
// takes a tenth of a core, and verdicts do not wait for it.
const restFactor = 9

// beginGathering is called before the storage is read: what it tells again is held too.
func (d *detector) beginGathering() {
	if keeper, ok := d.keeping.keeper.(history.EvidenceKeeper); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.keeping.gathering = gathering{keeper: keeper, book: evidence.NewBook(evidence.DefaultBytes), followed: evidence.NewFollowed()}
	}
}

// atHand has records at hand for verdicts to come. payload is what the journal keeps.
func (d *detector) atHand(matched plog.Logs, payload []byte) {
	if d.keeping.gathering.book != nil {
		d.keeping.gathering.book.Add(matched, payload, d.clock.now())
	}
}

// follow has the evidence of verdicts kept that the history has taken.
func (d *detector) follow(verdicts []verdict.Verdict) {
	if g := &d.keeping.gathering; g.keeper != nil {
		for i := range verdicts {
			g.followed.Note(&verdicts[i], d.clock.now())
		}
	}
}

// keepEvidence keeps that of one incident, unless it rests, and reports whether to go on at once.
func (d *detector) keepEvidence(ctx context.Context) bool {
	began := time.Now()
	if began.Before(d.keeping.gathering.rested) || !d.keepEvidenceNow(ctx) {
		return false
	}
	d.keeping.gathering.rested = began.Add((1 + restFactor) * time.Since(began))
	return true
}

func (d *detector) keepEvidenceNow(ctx context.Context) bool {
	g, now := &d.keeping.gathering, d.clock.now()
	if g.keeper == nil || ctx.Err() != nil {
		return false
	}
	one := g.followed.Due(now)
	if one == nil {
		return false
	}
	batches, newest := g.book.Since(one.Until, one.Wants)
	if len(batches) == 0 {
		g.followed.Looked(one, newest, now)
		return true
	}
	err := g.keep(ctx, one, batches, now)
	switch {
	case errors.Is(err, history.ErrNotFound): // it gave way, or is part of another
		g.followed.Forget(one.ID)
	case err != nil:
		g.followed.Later(one, now)
		d.telemetry.ProcessorPatterndetectorHistoryFailures.Add(context.Background(), 1)
		d.logger.Debug("the evidence of an incident is not kept", zap.String("incident", one.ID), zap.Error(err))
	default:
		g.followed.Looked(one, newest, now)
	}
	return true
}

// keep adds records to the evidence of an incident.
func (g *gathering) keep(ctx context.Context, one *evidence.Incident, batches []plog.Logs, now time.Time) error {
	known, err := g.keeper.Recall(ctx, one.ID)
	if err != nil {
		return err
	}
	if known.Incident != one.ID || len(known.Verdicts) == 0 {
		return history.ErrNotFound // its verdicts are followed under another id
	}
	records := incidentview.NewRecords(known.Verdicts)
	one.Hosts, one.Job = records.About()
	if err := records.Restore(known.Evidence); err != nil {
		records = incidentview.NewRecords(known.Verdicts) // damaged: it begins anew
	}
	if status, _ := known.Verdicts[0].Incident(); status == verdict.Open {
		records.Through(now)
	}
	for _, ld := range batches {
		records.Logs(ld)
	}
	for _, ld := range g.book.Near(one.Hosts) {
		records.Near(ld)
	}
	for _, ld := range g.book.Frames(records.Unnamed()) {
		records.Frames(ld)
	}
	packed, err := records.Keep(known.Room)
	if err != nil || len(packed) == 0 {
		return err
	}
	return g.keeper.KeepEvidence(ctx, one.ID, packed)
}
