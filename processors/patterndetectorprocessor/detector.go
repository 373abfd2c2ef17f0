package patterndetectorprocessor

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/processors/internal/journal"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
)

// detector is one engine with its journal and its outbox, shared by the
// instances of one component id.
type detector struct {
	id        component.ID
	config    *Config
	rules     []rule.Rule
	clock     clock
	logger    *zap.Logger
	telemetry *metadata.TelemetryBuilder
	version   string
	hostname  string
	next      consumer.Logs // set when the logs instance is created
	cut       atomic.Int64  // what CutLogs and CutMetrics of the engine cut, which does not count it

	lifecycle sync.Mutex // Start and Shutdown of several instances
	running   int        // instances started and not shut down
	background
	delivery
	keeping keeping

	// mu orders everything that reads or changes what follows.
	mu       sync.Mutex
	engine   *engine.Engine   // Start sets it; CutLogs and CutMetrics are called without mu
	advanced time.Time        // the last time given to the engine
	journal  *journal.Journal // nil without storage
	stale    bool             // the storage misses something: a snapshot must come first
	outbox   journal.Outbox
	refusals *refused
	muted    muted
	steps    *placing     // nil without a traces pipeline; set before Start
	counted  engine.Stats // what replay counted, to be taken off the metrics
}

func newDetector(set processor.Settings, config *Config, c clock) (*detector, error) {
	rules, err := config.LoadRules()
	if err != nil {
		return nil, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		set.Logger.Warn("verdicts that name no host go without host.name", zap.Error(err))
	}
	d := &detector{
		id: set.ID, config: config, rules: rules, clock: c, logger: set.Logger,
		version: set.BuildInfo.Version, hostname: hostname, delivery: newDelivery(), keeping: newKeeping(),
		refusals: newRefused(), muted: muted{items: map[string]keptBack{}},
		outbox: journal.Outbox{MostItems: config.OutboxSize, MostBytes: mostOutboxBytes, Owner: ownerOf, Order: timeline.NewOrder[uint64]()},
	}
	if d.engine, err = engine.New(rules, d.engineOptions()); err != nil {
		return nil, err
	}
	if d.telemetry, err = metadata.NewTelemetryBuilder(set.TelemetrySettings); err != nil {
		return nil, err
	}
	return d, d.observe()
}

// engineOptions are those of the engine that judges.
func (d *detector) engineOptions() engine.Options {
	options := d.config.engineOptions()
	options.Unread = d.unread
	return options
}

// background is the goroutine that moves time forward, from the first Start to
// the last Shutdown.
type background struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// start opens the storage and starts the clock with the first instance. Verdicts
// leave once the logs instance has started: only then is its next consumer up.
func (d *detector) start(ctx context.Context, host component.Host, carriesVerdicts bool) error {
	d.lifecycle.Lock()
	defer d.lifecycle.Unlock()
	if d.running == 0 {
		if err := d.open(ctx, host); err != nil {
			return err
		}
		d.runClock()
		d.beginKeeping(ctx)
	}
	d.running++
	if carriesVerdicts {
		d.openDelivery()
	}
	return nil
}

func (d *detector) runClock() {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	ticks, stop := d.clock.ticks()
	d.done.Go(func() {
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticks:
				d.tick(ctx, now)
			}
		}
	})
}

// stop delivers what it can with the logs instance, and saves the state with the
// last one.
func (d *detector) stop(ctx context.Context, carriesVerdicts bool) error {
	d.lifecycle.Lock()
	defer d.lifecycle.Unlock()
	if carriesVerdicts {
		d.closeDelivery(ctx)
	}
	if d.running--; d.running > 0 {
		return nil
	}
	d.cancel()
	d.done.Wait()
	d.endKeeping(ctx)
	if d.journal != nil {
		d.journal.Saved(&d.mu)
	}
	return d.close(ctx)
}

// close saves the state and gives the storage back.
func (d *detector) close(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.outbox.Len()
	if d.journal == nil {
		if left > 0 {
			d.logger.Error("undelivered verdicts are lost: without storage they do not survive a restart, set storage to the id of a storage extension", zap.Int("verdicts", left))
		}
		return nil
	}
	if left > 0 {
		d.logger.Warn("verdicts wait in the storage for the next start", zap.Int("verdicts", left))
	}
	d.storeMuted(ctx)
	d.storeNear(ctx)
	err := errors.Join(d.checkpoint(ctx), d.journal.Client.Close(ctx))
	d.journal = nil
	return err
}

// tick moves time forward, saves when that is due and tries refused verdicts
// again.
func (d *detector) tick(ctx context.Context, now time.Time) {
	d.mu.Lock()
	changed := d.engine.Advance(now)
	d.advanced = now
	d.record(ctx, journal.Entry{}, changed)
	if free := d.unmute(now); len(free) > 0 {
		d.commit(ctx, journal.Entry{}, free)
	}
	d.storeMuted(ctx)
	d.maintain(ctx)
	d.mu.Unlock()
	d.deliver()
	d.keeping.nudge()
	d.repeat(now)
}

// logs shows records to the engine. The sender tries again what the next
// consumer refuses, so the caller gives what is returned to refused then.
func (d *detector) logs(ctx context.Context, ld plog.Logs) (shown seen) {
	d.begins(ld)
	d.hear(ld)
	ld, cut := d.engine.CutLogs(ld)
	d.cut.Add(int64(cut))
	d.mu.Lock()
	fresh, repeated := d.refusals.without(ld)
	shown = seen{matched: d.engine.Logs(fresh), repeated: repeated}
	mattered, payload := shown.matched.LogRecordCount() > 0, d.encodeLogs(shown.matched)
	d.atHand(shown.matched, payload)
	d.record(ctx, journal.Entry{Signal: journal.SignalLogs, Payload: payload}, mattered)
	d.noteRanks(ctx, shown.matched)
	d.mu.Unlock()
	d.deliver()
	return shown
}

// seen is the part of a batch that must not count again: the records that some rule
// wanted, and hashes of those it had wanted at an earlier try.
type seen struct {
	matched  plog.Logs
	repeated []uint64
}

// refused remembers records whose sender will try again.
func (d *detector) refused(s seen) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refusals.remember(append(s.repeated, d.refusals.hashes(s.matched)...))
}

// metrics shows data points to the engine.
func (d *detector) metrics(ctx context.Context, md pmetric.Metrics) {
	if book := d.keeping.book.Load(); book != nil {
		book.Metrics(md)
	}
	md, cut := d.engine.CutMetrics(md)
	d.cut.Add(int64(cut))
	d.mu.Lock()
	matched := d.engine.Metrics(md)
	mattered := matched.DataPointCount() > 0
	d.record(ctx, journal.Entry{Signal: journal.SignalMetrics, Payload: d.encodeMetrics(matched)}, mattered)
	d.mu.Unlock()
	d.deliver()
}

// encodeLogs is what the journal and the evidence of incidents are made of, if there is
// either and anything to keep.
func (d *detector) encodeLogs(matched plog.Logs) []byte {
	if d.journal == nil && d.keeping.gathering.book == nil || matched.LogRecordCount() == 0 {
		return nil
	}
	data, _ := (&plog.ProtoMarshaler{}).MarshalLogs(matched) // data in memory always encodes
	return data
}

func (d *detector) encodeMetrics(matched pmetric.Metrics) []byte {
	if d.journal == nil || matched.DataPointCount() == 0 {
		return nil
	}
	data, _ := (&pmetric.ProtoMarshaler{}).MarshalMetrics(matched)
	return data
}
