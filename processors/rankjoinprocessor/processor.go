package rankjoinprocessor

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/join"
	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/metadata"
)

// mostWaiting bounds the batches of findings that wait for a consumer that
// refuses.
const mostWaiting = 256

// rankJoin passes records on, joins the Flight Recorder and socket-stall records
// among them, and sends what it finds to the same consumer.
type rankJoin struct {
	config    *Config
	id        component.ID
	next      consumer.Logs
	clock     clock
	logger    *zap.Logger
	telemetry *metadata.TelemetryBuilder

	cancel context.CancelFunc
	done   sync.WaitGroup
	stop   sync.Once

	// mu orders everything that reads or changes what follows. No consumer is
	// called with it held.
	mu      sync.Mutex
	join    *join.Join
	kept    *kept
	waiting []plog.Logs // findings not yet taken
	lost    int64       // findings that the join dropped, as counted last

	// sending keeps deliveries in order.
	sending sync.Mutex
}

func newProcessor(set processor.Settings, config *Config, next consumer.Logs, c clock) (*rankJoin, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	p := &rankJoin{
		config: config, id: set.ID, next: next, clock: c, logger: set.Logger, telemetry: telemetry,
		join: join.New(config.options()), kept: &kept{}, cancel: func() {},
	}
	return p, p.observe()
}

func (p *rankJoin) observe() error {
	stat := func(read func(join.Stats) int64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			o.Observe(read(p.join.Stats()))
			return nil
		}
	}
	for _, register := range []struct {
		with func(metric.Int64Callback) error
		read func(join.Stats) int64
	}{
		{p.telemetry.RegisterProcessorRankjoinDumpsCallback, func(s join.Stats) int64 { return s.Dumps }},
		{p.telemetry.RegisterProcessorRankjoinDumpsEvictedCallback, func(s join.Stats) int64 { return s.EvictedDumps }},
		{p.telemetry.RegisterProcessorRankjoinDumpsHeldCallback, func(s join.Stats) int64 { return s.Held }},
		{p.telemetry.RegisterProcessorRankjoinDumpsInvalidCallback, func(s join.Stats) int64 { return s.Invalid }},
		{p.telemetry.RegisterProcessorRankjoinGroupsSkippedCallback, func(s join.Stats) int64 { return s.SkippedGroups }},
		{p.telemetry.RegisterProcessorRankjoinStallsCallback, func(s join.Stats) int64 { return s.Stalls }},
		{p.telemetry.RegisterProcessorRankjoinStallsEvictedCallback, func(s join.Stats) int64 { return s.EvictedStalls }},
		{p.telemetry.RegisterProcessorRankjoinStallsHeldCallback, func(s join.Stats) int64 { return s.HeldStalls }},
		{p.telemetry.RegisterProcessorRankjoinStallsInvalidCallback, func(s join.Stats) int64 { return s.InvalidStalls }},
	} {
		if err := register.with(stat(register.read)); err != nil {
			return err
		}
	}
	return nil
}

// Capabilities: records of dumps and stalls get the size of their job.
func (*rankJoin) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

// Start takes up what was not joined before, and lets time pass.
func (p *rankJoin) Start(ctx context.Context, host component.Host) error {
	kept, err := openKept(ctx, host, p.config.Storage, p.id)
	if err != nil {
		return err
	}
	p.kept = kept
	if err := kept.load(ctx, func(logs plog.Logs) { p.join.Add(logs, p.clock.now()) }); err != nil {
		p.storageFailed(ctx, err)
	}
	running, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	ticks, stop := p.clock.ticks()
	p.done.Go(func() {
		defer stop()
		for {
			select {
			case <-running.Done():
				return
			case now := <-ticks:
				p.tick(running, now)
			}
		}
	})
	return nil
}

// Shutdown joins what waits, since a job does not stop hanging because we stop,
// and delivers it if the consumer takes it.
func (p *rankJoin) Shutdown(ctx context.Context) error {
	var err error
	p.stop.Do(func() {
		p.cancel()
		p.done.Wait()
		p.mu.Lock()
		p.take(ctx, p.join.Flush(), p.clock.now())
		p.mu.Unlock()
		p.deliver(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if left := len(p.waiting); left > 0 && p.kept.client == nil {
			p.logger.Error("findings are lost: the next consumer refuses them, and without storage they do not survive a restart", zap.Int("batches", left))
		}
		err = p.kept.close(ctx)
		p.telemetry.Shutdown()
	})
	return err
}

// ConsumeLogs remembers the records to be joined and passes all records on.
func (p *rankJoin) ConsumeLogs(ctx context.Context, logs plog.Logs) error {
	if dumps, stalls := wanted(logs); dumps || stalls {
		p.mu.Lock()
		if dumps {
			p.keep(ctx, logs)
		}
		p.join.Add(logs, p.clock.now())
		p.stamp(logs)
		p.mu.Unlock()
	}
	return p.next.ConsumeLogs(ctx, logs)
}

// keep puts the dumps of a batch into the storage: a dump comes once, a stall
// that lasts is repeated. mu is held.
func (p *rankJoin) keep(ctx context.Context, logs plog.Logs) {
	if p.kept.client == nil {
		return
	}
	if err := p.kept.keep(ctx, dumpsOf(logs)); err != nil {
		p.storageFailed(ctx, err)
	}
}

// tick joins what is due and tries again what was refused.
func (p *rankJoin) tick(ctx context.Context, now time.Time) {
	p.mu.Lock()
	p.take(ctx, p.join.Advance(now), now)
	p.mu.Unlock()
	p.deliver(ctx)
}

// take turns rounds into records that wait to be sent. mu is held.
func (p *rankJoin) take(ctx context.Context, rounds []join.Round, now time.Time) {
	for i := range rounds {
		for k := range rounds[i].Findings {
			kind := attribute.String("kind", string(rounds[i].Findings[k].Kind))
			p.telemetry.ProcessorRankjoinFindings.Add(ctx, 1, metric.WithAttributes(kind))
		}
	}
	if dropped := p.join.Stats().DroppedFindings; dropped > p.lost {
		p.telemetry.ProcessorRankjoinFindingsDropped.Add(ctx, dropped-p.lost)
		p.lost = dropped
	}
	logs := records(rounds, now)
	if logs.LogRecordCount() == 0 {
		return
	}
	if len(p.waiting) == mostWaiting {
		p.telemetry.ProcessorRankjoinFindingsDropped.Add(ctx, int64(p.waiting[0].LogRecordCount()))
		p.waiting = p.waiting[1:]
	}
	p.waiting = append(p.waiting, logs)
}

// deliver sends what waits, oldest first, until the consumer refuses. When all
// is sent and joined, the storage is cleared.
func (p *rankJoin) deliver(ctx context.Context) {
	p.sending.Lock()
	defer p.sending.Unlock()
	for {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			if !p.join.Due() {
				if err := p.kept.clear(context.WithoutCancel(ctx)); err != nil {
					p.storageFailed(ctx, err)
				}
			}
			p.mu.Unlock()
			return
		}
		first := p.waiting[0]
		p.mu.Unlock()
		if !p.send(ctx, first) {
			return
		}
		p.mu.Lock()
		if len(p.waiting) > 0 && p.waiting[0] == first {
			p.waiting = p.waiting[1:]
		}
		p.mu.Unlock()
	}
}

// send reports whether the findings are off our hands. The consumer gets a copy:
// it may change what it is given, and we may have to give it again.
func (p *rankJoin) send(ctx context.Context, logs plog.Logs) bool {
	given := plog.NewLogs()
	logs.CopyTo(given)
	err := p.next.ConsumeLogs(context.WithoutCancel(ctx), given)
	if err == nil {
		return true
	}
	if !consumererror.IsPermanent(err) {
		return false
	}
	p.telemetry.ProcessorRankjoinFindingsDropped.Add(ctx, int64(logs.LogRecordCount()))
	p.logger.Error("findings are lost: the next consumer refuses them for good", zap.Error(err))
	return true
}

func (p *rankJoin) storageFailed(ctx context.Context, err error) {
	p.telemetry.ProcessorRankjoinStorageErrors.Add(ctx, 1)
	p.logger.Warn("the storage does not answer: a crash before the dumps are joined may lose a finding", zap.Error(err))
}
