package gpu

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

	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Parts are what one library's receiver brings to a Monitor.
type Parts struct {
	Config    *Config
	Identity  *component.ID                      // of the extension that knows processes; nil: nobody does
	Start     func(listen bool) (Session, error) // starts a helper, that listens for events
	States    []State
	Telemetry *Telemetry
	Convert   *Converter
}

// Telemetry is the receiver's own metrics.
type Telemetry struct {
	CallFailures, EventsLost, Hangs, HelperExits, ProcessesSkipped, RecordsDropped metric.Int64Counter

	PollTime metric.Float64Counter

	ObserveState, ObserveGPUs func(metric.Int64Callback) error
	Shutdown                  func()
}

// Monitor keeps a helper running and tells what it reads. One goroutine owns the
// helper and all that is known of the GPUs, one delivers.
type Monitor struct {
	parts     Parts
	settings  receiver.Settings
	telemetry *Telemetry
	out       outbox

	once     sync.Once
	startErr error
	stop     sync.Once
	closing  chan struct{}
	giveUp   context.CancelFunc // ends the waiting for consumers that refuse
	worker   sync.WaitGroup
	delivery sync.WaitGroup

	settled chan struct{} // closed when the state is known for the first time
	known   atomic.Int64  // GPUs

	condition atomic.Pointer[Condition]

	// Only the goroutine of run uses these.
	host    component.Host
	now     func() time.Time
	cards   *Cards
	faults  *Faults
	convert *Converter
	stuck   []<-chan struct{} // helpers that could not be killed
}

func newMonitor(settings receiver.Settings, parts Parts) (*Monitor, error) {
	report, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: settings.ID, Transport: settings.ID.Type().String(), LongLivedCtx: true, ReceiverCreateSettings: settings,
	})
	if err != nil {
		return nil, err
	}
	interval := parts.Config.CollectionInterval
	m := &Monitor{
		parts: parts, settings: settings, telemetry: parts.Telemetry, convert: parts.Convert,
		out:     outbox{batches: make(chan batch, outboxSize), telemetry: parts.Telemetry, name: settings.ID.Type().String(), report: report},
		closing: make(chan struct{}), settled: make(chan struct{}), giveUp: func() {}, now: time.Now,
		cards: NewCards(interval), faults: NewFaults(settings.ID.Type().String(), interval),
	}
	m.condition.Store(&Condition{State: State{Name: Starting, Quiet: true}})
	return m, nil
}

// Condition is the state of the library.
func (m *Monitor) Condition() *Condition { return m.condition.Load() }

// Known is the number of GPUs.
func (m *Monitor) Known() int { return int(m.known.Load()) }

// tell takes a fault and lets it leave unless it repeats one.
func (m *Monitor) tell(f Fault, at time.Time) {
	if s, now := m.faults.Add(f, at); now {
		m.out.putLogs(m.convert.Faults([]*Storm{s}, m.cards, at))
	}
}

// Start starts to run helpers; later calls return what the first did.
func (m *Monitor) Start(ctx context.Context, host component.Host) error {
	m.once.Do(func() { m.startErr = m.begin(ctx, host) })
	return m.startErr
}

func (m *Monitor) begin(ctx context.Context, host component.Host) error {
	resolver, err := record.Resolver(host, m.parts.Identity)
	if err != nil {
		return err
	}
	m.convert.Resolver, m.host = resolver, host
	if err := m.observe(); err != nil {
		return err
	}
	delivering, giveUp := context.WithCancel(context.Background())
	m.giveUp = giveUp
	m.delivery.Go(func() { m.out.deliver(delivering) })
	m.worker.Go(m.run)
	if m.parts.Config.ErrorMode == record.Propagate {
		return m.mustBeReady(ctx)
	}
	return nil
}

// mustBeReady waits until the state is known and refuses any but ready.
func (m *Monitor) mustBeReady(ctx context.Context) error {
	select {
	case <-m.settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s := m.Condition(); s.Name != Ready && s.Name != GPULost {
		return fmt.Errorf("%s: %s: %s", m.settings.ID.Type(), s.Name, s.Says())
	}
	return nil
}

// observe makes the state a metric of this receiver.
func (m *Monitor) observe() error {
	return errors.Join(
		m.telemetry.ObserveState(func(_ context.Context, o metric.Int64Observer) error {
			current := m.Condition().Name
			for _, s := range m.parts.States {
				o.Observe(bit(s.Name == current), metric.WithAttributes(attribute.String("state", s.Name)))
			}
			return nil
		}),
		m.telemetry.ObserveGPUs(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(m.known.Load())
			return nil
		}),
	)
}

// run has one helper after the other until the monitor stops.
func (m *Monitor) run() {
	for {
		again := m.one()
		if again {
			continue
		}
		retry := time.NewTimer(m.parts.Config.RetryInterval)
		select {
		case <-m.closing:
			retry.Stop()
			return
		case <-retry.C:
		}
	}
}

// Shutdown ends the helper and waits, no longer than ctx, until the next
// consumers have the last records.
func (m *Monitor) Shutdown(ctx context.Context) error {
	var err error
	m.stop.Do(func() {
		m.once.Do(func() { m.startErr = errors.New("start after shutdown") })
		defer m.telemetry.Shutdown()
		close(m.closing)
		m.giveUp()
		err = record.Wait(ctx, "the next consumer holds the last records", func() {
			m.worker.Wait()
			close(m.out.batches)
			m.delivery.Wait()
		})
	})
	return err
}
