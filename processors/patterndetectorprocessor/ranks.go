package patterndetectorprocessor

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

const (
	// mostSightings wait for the history; a job of 16,384 ranks starts within seconds.
	mostSightings = 1 << 15
	// sightingsAtOnce are in one transaction.
	sightingsAtOnce = 4096
	// stepsEvery is how often the steps of runs are kept; a summary comes later than that
	// after the end of its run.
	stepsEvery = 10 * time.Second
)

// noteRanks has the history note begins and ends of ranks among records that the engine was
// shown. Beyond the bound they are dropped and counted. mu is held.
func (d *detector) noteRanks(ctx context.Context, matched plog.Logs) {
	if d.keeping.keeper == nil {
		return
	}
	if d.keeping.ranks != nil {
		d.keeping.ranks.Logs(matched, d.engine.RunOf)
	}
	dropped := 0
	for _, resource := range matched.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				seen, ok := d.sighting(resource.Resource().Attributes(), record)
				switch {
				case !ok:
				case len(d.keeping.seen) == mostSightings:
					dropped++
				default:
					d.keeping.seen = append(d.keeping.seen, seen)
					d.keeping.nudge()
				}
			}
		}
	}
	d.countUnkept(ctx, dropped, droppedFull)
}

// showRanks has the history answer how ranks fare, where it can.
func (d *detector) showRanks() (cancel func()) {
	listener, ok := d.keeping.keeper.(history.RankListener)
	if !ok {
		return func() {}
	}
	d.mu.Lock()
	d.keeping.ranks = ranks.NewBook(ranks.DefaultMost)
	d.keeping.book.Store(d.keeping.ranks)
	d.mu.Unlock()
	return listener.ListenRanks(d.id.String(), d.keeping.ranks)
}

// sighting reads the begin or the end of a rank. A child of a rank is none.
func (d *detector) sighting(resource pcommon.Map, record plog.LogRecord) (history.Sighting, bool) {
	event, a := record.EventName(), record.Attributes()
	if event == rule.EventGone && rule.Text(a, "process.gone.again") == "true" {
		return history.Sighting{}, false // its rank runs
	}
	if event != rule.EventStart && event != rule.EventExit && event != rule.EventGone || event == rule.EventExit && rule.Text(a, "process.exit.helper") == "true" {
		return history.Sighting{}, false
	}
	at := cmp.Or(record.Timestamp(), record.ObservedTimestamp())
	s, run := d.engine.RunOf(resource, a, int64(at))
	if run == "" || s.Rank < 0 || s.Start <= 0 || event == rule.EventExit && ranks.Outermost(a) != s.PID {
		return history.Sighting{}, false
	}
	world, _ := rule.Integer(a, "gen_ai.training.world_size")
	seen := history.Sighting{
		Run: run, Job: s.ID, Domain: s.Domain, Trust: s.Trust, Rank: s.Rank, World: int(min(max(world, 0), 1<<31-1)), Host: s.Host,
		Began: time.Unix(0, s.Start).UTC(), At: time.Unix(0, int64(at)).UTC(), Ended: event != rule.EventStart, Unseen: event == rule.EventGone,
	}
	if event == rule.EventExit {
		seen.Failed = ranks.Ending(a)
	}
	return seen, true
}

// noteSteps queues for the history, now and then, how many steps the runs have made. mu is held.
func (d *detector) noteSteps() {
	k := &d.keeping
	if now := d.clock.now(); k.ranks != nil && !now.Before(k.stepsAt) && len(k.seen) < mostSightings {
		k.stepsAt = now.Add(stepsEvery)
		k.seen = append(k.seen, k.ranks.Steps()...)
	}
}

// keepRanks hands over what was seen of ranks and reports whether to go on at once. A
// history that does not take it loses it: runs are told by their other ranks.
func (d *detector) keepRanks(ctx context.Context) bool {
	d.mu.Lock()
	d.noteSteps()
	seen := d.keeping.seen[:min(len(d.keeping.seen), sightingsAtOnce)]
	d.keeping.seen = d.keeping.seen[len(seen):]
	d.mu.Unlock()
	if len(seen) == 0 {
		return false
	}
	if err := d.keeping.keeper.Ranks(ctx, seen); err != nil {
		d.countUnkept(context.Background(), len(seen), droppedRefused)
		return false
	}
	return true
}
