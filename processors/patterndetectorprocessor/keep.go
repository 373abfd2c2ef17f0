package patterndetectorprocessor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/internal/journal"
)

const (
	mostUnkept      = 10_000   // verdicts that wait for the history
	mostUnkeptBytes = 16 << 20 // of them
	// farewell is how long a stop waits for a history that does not answer.
	farewell = 10 * time.Second
)

// keeping hands verdicts to the history, one call at a time, beside the pipelines: neither
// records nor the next consumer wait for it. What it did not acknowledge waits in an
// outbox of its own, which the storage has, too.
type keeping struct {
	keeper history.Keeper // nil without
	wake   chan struct{}  // something may be due
	cancel context.CancelFunc
	ended  sync.WaitGroup

	// detector.mu holds these.
	unkept  journal.Outbox
	seen    []history.Sighting // of ranks; a restart loses them
	ranks   *ranks.Book        // how they fare; nil where nobody asks
	backoff time.Duration
	retryAt time.Time

	// book is ranks, for those who do not hold the lock.
	book    atomic.Pointer[ranks.Book]
	stepsAt time.Time // when the steps of runs are kept next

	gathering gathering
}

func newKeeping() keeping {
	return keeping{
		wake: make(chan struct{}, 1), cancel: func() {},
		unkept: journal.Outbox{Name: "history", MostItems: mostUnkept, MostBytes: mostUnkeptBytes, Owner: ownerOf, Order: timeline.NewOrder[uint64]()},
	}
}

// findHistory finds who keeps verdicts, before the storage is read.
func (d *detector) findHistory(host component.Host) (err error) {
	d.keeping.keeper, err = history.Find(host, d.config.History)
	d.beginGathering()
	return err
}

// beginKeeping tells the history what is open, in case it lost that or is new, and goes on
// from there.
func (d *detector) beginKeeping(ctx context.Context) {
	k := &d.keeping
	if k.keeper == nil {
		return
	}
	d.mu.Lock()
	for _, v := range d.engine.Open() {
		if _, muted := d.muted.items[v.ID]; !muted || d.muted.incident(&v, d.clock.now()) {
			d.toHistory(ctx, ownerOfVerdict(&v), verdict.ToJSON(v))
		}
	}
	d.mu.Unlock()
	running, cancel := context.WithCancel(context.Background())
	silence, hide := k.keeper.Listen(d.id.String(), d.feeds), d.showRanks()
	k.cancel = func() {
		silence()
		hide()
		cancel()
	}
	k.ended.Go(func() {
		// Evidence comes first, as it rests most of the time: verdicts without end would leave it no turn.
		for d.keepEvidence(running) || d.askMutes(running) || d.keepSome(running) || d.keepRanks(running) || d.tellSummaries(running) || k.wait(running) {
		}
	})
}

// feeds says when each piece of evidence was last fed, as the metric does.
func (d *detector) feeds() []history.Feed {
	d.mu.Lock()
	heard := d.engine.Heard()
	d.mu.Unlock()
	reads := map[[2]string][]string{}
	for i := range d.rules {
		r := &d.rules[i]
		for _, e := range r.All() {
			reads[[2]string{r.Name, e.Name}] = slices.Concat(r.Events(e), e.Metrics)
		}
	}
	feeds := make([]history.Feed, len(heard))
	for i, h := range heard {
		feeds[i] = history.Feed{Processor: d.id.String(), Pattern: h.Pattern, Evidence: h.Evidence, Reads: []string{}}
		feeds[i].Reads = append(feeds[i].Reads, reads[[2]string{h.Pattern, h.Evidence}]...)
		if h.At > 0 {
			at := time.Unix(0, h.At).UTC()
			feeds[i].Last = &at
		}
	}
	return feeds
}

// toHistory has the history keep a verdict of an owner. mu is held.
func (d *detector) toHistory(ctx context.Context, owner []string, item []byte) {
	if d.keeping.keeper == nil {
		return
	}
	d.countUnkept(ctx, d.keeping.unkept.AddOf(owner, item), droppedFull)
	d.keeping.nudge()
}

func (k *keeping) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// wait returns once something may be due, and false when ctx ends.
func (k *keeping) wait(ctx context.Context) bool {
	var rested <-chan time.Time
	if left := time.Until(k.gathering.rested); left > 0 {
		rested = time.After(left)
	}
	select {
	case <-k.wake:
		return true
	case <-rested:
		return true
	case <-ctx.Done():
		return false
	}
}

// keepSome hands over the oldest verdicts and reports whether to go on at once.
func (d *detector) keepSome(ctx context.Context) bool {
	k := &d.keeping
	d.mu.Lock()
	items, last := k.unkept.First(mostAtOnce)
	due := !d.clock.now().Before(k.retryAt)
	d.mu.Unlock()
	if len(items) == 0 || !due || ctx.Err() != nil {
		return false
	}
	verdicts := make([]verdict.Verdict, 0, len(items))
	for _, item := range items {
		if v, err := verdict.FromJSON(item); err == nil { // enqueue and restoreOutbox let in no others
			verdicts = append(verdicts, v)
		}
	}
	err := k.keeper.Keep(ctx, verdicts)
	if err == nil {
		d.follow(verdicts)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.telemetry.ProcessorPatterndetectorHistoryFailures.Add(context.Background(), 1)
		k.backoff = min(max(2*k.backoff, firstBackoff), lastBackoff)
		k.retryAt = d.clock.now().Add(k.backoff)
		return false
	}
	k.backoff, k.retryAt = 0, time.Time{}
	k.unkept.DropThrough(last)
	d.storeOutboxes(ctx)
	return true
}

// endKeeping hands over what it can.
func (d *detector) endKeeping(ctx context.Context) {
	k := &d.keeping
	if k.keeper == nil {
		return
	}
	gone := make(chan struct{})
	go func() {
		k.cancel()
		k.ended.Wait()
		d.mu.Lock()
		k.retryAt = time.Time{}
		d.mu.Unlock()
		for d.keepSome(context.Background()) || d.keepRanks(context.Background()) || d.keepEvidenceNow(context.Background()) {
		}
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	case <-time.After(farewell):
		d.logger.Warn("the history does not answer; the stop goes on without it")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := k.unkept.Len(); left > 0 && d.journal == nil {
		d.countUnkept(context.Background(), left, droppedRefused)
		d.logger.Warn("the history did not take verdicts, and without storage they do not wait for it", zap.Int("verdicts", left))
	}
}

func (d *detector) countUnkept(ctx context.Context, n int, reason string) {
	if n > 0 {
		d.telemetry.ProcessorPatterndetectorHistoryDropped.Add(ctx, int64(n), metric.WithAttributes(attribute.String("reason", reason)))
	}
}
