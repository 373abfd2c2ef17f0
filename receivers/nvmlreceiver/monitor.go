package nvmlreceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

// monitor keeps a helper running and tells what it reads. One goroutine owns the
// helper and all that is known of the GPUs, one delivers.
type monitor struct {
	config    *Config
	settings  receiver.Settings
	startOne  starter
	instances int // guarded by the registry
	telemetry *metadata.TelemetryBuilder
	out       outbox

	once     sync.Once
	startErr error
	stop     sync.Once
	closing  chan struct{}
	giveUp   context.CancelFunc // ends the waiting for consumers that refuse
	worker   sync.WaitGroup
	delivery sync.WaitGroup

	settled chan struct{} // closed when the state is known for the first time
	state   atomic.Pointer[state]
	known   atomic.Int64 // GPUs

	// Only the goroutine of run uses these.
	host    component.Host
	now     func() time.Time
	cards   *cards
	faults  *faults
	convert *converter
	stuck   []<-chan struct{} // helpers that could not be killed
}

func newMonitor(settings receiver.Settings, config *Config, start starter) (*monitor, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	report, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: settings.ID, Transport: "nvml", LongLivedCtx: true, ReceiverCreateSettings: settings,
	})
	if err != nil {
		return nil, err
	}
	meanings, err := catalogue.Load()
	if err != nil {
		return nil, err
	}
	m := &monitor{
		config: config, settings: settings, startOne: start, telemetry: telemetry,
		out:     outbox{batches: make(chan batch, outboxSize), telemetry: telemetry, report: report},
		closing: make(chan struct{}), settled: make(chan struct{}), giveUp: func() {}, now: time.Now,
		cards: newCards(config.CollectionInterval), faults: newFaults(config.CollectionInterval),
		convert: newConverter(config, settings, meanings, record.ThisHost()),
	}
	m.state.Store(&state{name: stateStarting})
	return m, nil
}

// start starts to run helpers; later calls return what the first did.
func (m *monitor) start(ctx context.Context, host component.Host) error {
	m.once.Do(func() { m.startErr = m.begin(ctx, host) })
	return m.startErr
}

func (m *monitor) begin(ctx context.Context, host component.Host) error {
	resolver, err := record.Resolver(host, m.config.Identity)
	if err != nil {
		return err
	}
	m.convert.resolver, m.host = resolver, host
	if err := m.observe(); err != nil {
		return err
	}
	delivering, giveUp := context.WithCancel(context.Background())
	m.giveUp = giveUp
	m.delivery.Go(func() { m.out.deliver(delivering) })
	m.worker.Go(m.run)
	if m.config.ErrorMode == record.Propagate {
		return m.mustBeReady(ctx)
	}
	return nil
}

// mustBeReady waits until the state is known and refuses any but ready.
func (m *monitor) mustBeReady(ctx context.Context) error {
	select {
	case <-m.settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s := m.state.Load(); s.name != stateReady && s.name != stateGPULost {
		return fmt.Errorf("nvml: %s: %s", s.name, s.advice())
	}
	return nil
}

// observe makes the state a metric of this receiver.
func (m *monitor) observe() error {
	return errors.Join(
		m.telemetry.RegisterReceiverNvmlStateCallback(func(_ context.Context, o metric.Int64Observer) error {
			current := m.state.Load().name
			for _, name := range stateNames() {
				value := int64(0)
				if name == current {
					value = 1
				}
				o.Observe(value, metric.WithAttributes(attribute.String("state", name)))
			}
			return nil
		}),
		m.telemetry.RegisterReceiverNvmlGpusCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(m.known.Load())
			return nil
		}),
	)
}

// run has one helper after the other until the monitor stops.
func (m *monitor) run() {
	for {
		again := m.one()
		if again {
			continue
		}
		retry := time.NewTimer(m.config.RetryInterval)
		select {
		case <-m.closing:
			retry.Stop()
			return
		case <-retry.C:
		}
	}
}

// shutdown ends the helper and waits, no longer than ctx, until the next
// consumers have the last records.
func (m *monitor) shutdown(ctx context.Context) error {
	var err error
	m.stop.Do(func() {
		m.once.Do(func() { m.startErr = errors.New("start after shutdown") })
		defer m.telemetry.Shutdown()
		close(m.closing)
		m.giveUp()
		finished := make(chan struct{})
		go func() {
			m.worker.Wait()
			close(m.out.batches)
			m.delivery.Wait()
			close(finished)
		}()
		select {
		case <-finished:
		case <-ctx.Done():
			err = fmt.Errorf("the next consumer holds the last records: %w", ctx.Err())
		}
	})
	return err
}
