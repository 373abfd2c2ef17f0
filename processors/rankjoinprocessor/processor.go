package rankjoinprocessor

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/processor"
	"go.uber.org/zap"

	ncclhang "github.com/tracecoreai/tracecore/patterns/nccl_hang"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/processors/internal/journal"
	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/metadata"
)

// Bounds of the findings that wait for a consumer that refuses.
const (
	mostWaiting      = 16_384
	mostWaitingBytes = 64 << 20
)

// rankJoin passes records on, shows them to the join, and sends what the join finds
// to the same consumer.
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
	join    *ncclhang.Join
	host    rule.Host        // of the join
	journal *journal.Journal // nil without storage
	stale   bool             // the storage misses something: a snapshot must come first
	outbox  journal.Outbox   // findings not yet taken
	dropped int64            // findings that the join dropped, as counted last

	// sending keeps deliveries in order.
	sending sync.Mutex
}

func newProcessor(set processor.Settings, config *Config, next consumer.Logs, c clock) (*rankJoin, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	join := ncclhang.New(config.options())
	p := &rankJoin{
		config: config, id: set.ID, next: next, clock: c, logger: set.Logger, telemetry: telemetry, cancel: func() {},
		join: join, host: rule.Host{Detector: ncclhang.Detector(config.options()), Algorithm: join, Scope: metadata.ScopeName},
		outbox: journal.Outbox{MostItems: mostWaiting, MostBytes: mostWaitingBytes, Owner: ownerOf},
	}
	return p, p.observe()
}

// Capabilities: records pass through as they are.
func (*rankJoin) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// Start takes up what an earlier process left, and lets time pass.
func (p *rankJoin) Start(ctx context.Context, host component.Host) error {
	if err := p.open(ctx, host); err != nil {
		return err
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
		p.record(ctx, p.clock.now(), plog.NewLogs(), step{found: p.host.Settle(p.clock.now().UnixNano())})
		p.mu.Unlock()
		p.deliver(ctx)
		err = p.close(ctx)
		p.telemetry.Shutdown()
	})
	return err
}

// ConsumeLogs shows dumps and stalls to the join and passes all records on.
func (p *rankJoin) ConsumeLogs(ctx context.Context, logs plog.Logs) error {
	if p.host.Wants(logs) {
		now := p.clock.now()
		p.mu.Lock()
		passed := p.advance(now)
		p.record(ctx, now, p.host.Logs(logs, now.UnixNano()), passed)
		p.mu.Unlock()
	}
	return p.next.ConsumeLogs(ctx, logs)
}

// tick joins what is due, and tries again what was refused.
func (p *rankJoin) tick(ctx context.Context, now time.Time) {
	p.mu.Lock()
	p.record(ctx, now, plog.NewLogs(), p.advance(now))
	p.maintain(ctx)
	p.mu.Unlock()
	p.deliver(ctx)
}

// step is what the join made of the time that has passed.
type step struct {
	found plog.Logs
	due   bool // something was judged, though perhaps nothing was found: since when a finding is held back, say
}

// advance lets time pass in the join. mu is held.
func (p *rankJoin) advance(now time.Time) step {
	due := p.join.Due()
	return step{due: due != 0 && due <= now.UnixNano(), found: p.host.Advance(now.UnixNano())}
}
