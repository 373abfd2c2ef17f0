package incidenttracesconnector

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/connectors/incidenttracesconnector/internal/metadata"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Pauses after a refusal of the next consumer.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// tracer makes traces of incidents. A record of a verdict is taken at once; whether the
// next consumer takes the trace is the tracer's business from then on.
type tracer struct {
	config    *Config
	next      consumer.Traces
	clock     clock
	version   string
	logger    *zap.Logger
	telemetry *metadata.TelemetryBuilder

	cancel context.CancelFunc // nil before Start
	done   sync.WaitGroup
	wake   chan struct{} // something may be due

	mu      sync.Mutex
	book    *book
	waiting []*incident // left the book for want of room, and not taken yet
	warned  bool        // an invalid verdict was logged; the metric counts the rest

	pause   time.Duration // the goroutine's
	retryAt time.Time
}

func newTracer(config *Config, set connector.Settings, next consumer.Traces, c clock) (*tracer, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	t := &tracer{
		config: config, next: next, clock: c, version: set.BuildInfo.Version, logger: set.Logger, telemetry: telemetry,
		wake: make(chan struct{}, 1), book: newBook(config.Incidents),
	}
	return t, telemetry.RegisterConnectorIncidenttracesHeldCallback(func(_ context.Context, o metric.Int64Observer) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		o.Observe(int64(len(t.book.incidents) + len(t.waiting)))
		return nil
	})
}

// Capabilities: records are read.
func (*tracer) Capabilities() consumer.Capabilities { return consumer.Capabilities{MutatesData: false} }

// Start begins to send what is due.
func (t *tracer) Start(context.Context, component.Host) error {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	ticks, stop := t.clock.ticks()
	t.done.Go(func() {
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks:
			case <-t.wake:
			}
			t.send(ctx)
		}
	})
	return nil
}

// Shutdown sends what is left as it stands: open incidents too, whose end this process will
// not see. It may come before Start, and again.
func (t *tracer) Shutdown(ctx context.Context) error {
	if t.cancel != nil {
		t.cancel()
		t.done.Wait()
		t.cancel = nil
		t.mu.Lock()
		t.book.order.Each(func(one *incident) { t.waiting = append(t.waiting, one) })
		t.book, t.pause, t.retryAt = newBook(t.config.Incidents), 0, time.Time{}
		t.mu.Unlock()
		t.send(ctx)
		t.giveUp(ctx)
	}
	t.telemetry.Shutdown()
	return nil
}

// giveUp counts what nobody took.
func (t *tracer) giveUp(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := len(t.waiting); left > 0 {
		t.telemetry.ConnectorIncidenttracesLost.Add(ctx, int64(left))
		t.logger.Warn("the next consumer did not take traces of incidents; they are lost, their verdicts are not", zap.Int("incidents", left))
	}
	t.waiting = nil
}

// ConsumeLogs takes the verdicts among the records.
func (t *tracer) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, news := t.clock.now(), false
	for _, resource := range ld.ResourceLogs().All() {
		host, node := text(resource.Resource().Attributes(), "host.name"), text(resource.Resource().Attributes(), "k8s.node.name")
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				v, err := verdict.FromRecord(record)
				switch {
				case err == nil:
					t.take(ctx, told{Verdict: v, host: host, node: node}, now)
					news = true
				case t.run(ctx, record, host, node):
					news = true
				case !errors.Is(err, verdict.ErrNotVerdict):
					t.invalid(ctx, err)
				}
			}
		}
	}
	if news {
		t.nudge()
	}
	return nil
}

func (t *tracer) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// text is a name of a machine; a longer one is none.
func text(attributes pcommon.Map, key string) string {
	v, ok := attributes.Get(key)
	if !ok || v.Type() != pcommon.ValueTypeStr || len(v.Str()) > verdict.MaxNameBytes*2 {
		return ""
	}
	return v.Str()
}

// take enters a verdict. What leaves for want of room is told as it stands.
func (t *tracer) take(ctx context.Context, v told, now time.Time) {
	for _, one := range t.book.put(v, now) {
		t.telemetry.ConnectorIncidenttracesEvicted.Add(ctx, 1)
		if t.room() {
			t.waiting = append(t.waiting, one)
		} else {
			t.telemetry.ConnectorIncidenttracesLost.Add(ctx, 1)
		}
	}
}

func (t *tracer) invalid(ctx context.Context, err error) {
	t.telemetry.ConnectorIncidenttracesInvalid.Add(ctx, 1)
	if !t.warned {
		t.warned = true
		t.logger.Warn("left out a record that claims to be a verdict; the metric otelcol_connector_incidenttraces_invalid counts the rest", zap.Error(err))
	}
}

// send sends what is due until the next consumer refuses. Nobody waits for it but a stop.
func (t *tracer) send(ctx context.Context) {
	now := t.clock.now()
	if now.Before(t.retryAt) {
		return
	}
	for _, one := range t.due(now) {
		outcome := "open"
		if one.over() {
			outcome = "resolved"
		}
		err := t.next.ConsumeTraces(ctx, one.trace(t.version))
		switch {
		case err == nil:
			t.pause = 0
			t.telemetry.ConnectorIncidenttracesTraces.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
		case consumererror.IsPermanent(err):
			t.telemetry.ConnectorIncidenttracesLost.Add(ctx, 1)
			t.logger.Error("the next consumer refuses the trace of an incident for good", zap.Error(err))
		default:
			t.telemetry.ConnectorIncidenttracesFailures.Add(ctx, 1)
			t.pause = min(max(2*t.pause, firstPause), lastPause)
			t.retryAt = now.Add(t.pause)
			return
		}
		t.sent(one)
	}
}

// room reports whether one more may wait: the last may go beyond the bytes.
func (t *tracer) room() bool {
	bytes := 0
	for _, one := range t.waiting {
		bytes += one.bytes
	}
	return len(t.waiting) < t.config.Incidents && bytes < mostBytes
}

// due moves what is over to what waits, and returns that.
func (t *tracer) due(now time.Time) []*incident {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.book.due(now, t.config.Settle, t.config.Idle) {
		if !t.room() {
			break // nobody takes them: the book is bounded, and counts
		}
		t.book.drop(one)
		t.waiting = append(t.waiting, one)
	}
	return append([]*incident(nil), t.waiting...)
}

// sent takes the first that waits out: they are sent in their order.
func (t *tracer) sent(one *incident) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, waits := range t.waiting {
		if waits == one {
			t.waiting = append(t.waiting[:i:i], t.waiting[i+1:]...)
			return
		}
	}
}
