package gpureceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/inventory"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/storm"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// monitor keeps a helper running and tells what it reads. One goroutine owns the
// helper and all that is known of the GPUs.
type monitor struct {
	config    *Config
	settings  receiver.Settings
	start     starter
	telemetry *metadata.TelemetryBuilder
	logs      *outbox.Outbox[plog.Logs]       // nil without that signal
	metrics   *outbox.Outbox[pmetric.Metrics] // nil without that signal

	once     sync.Once
	startErr error
	stop     sync.Once
	closing  chan struct{}
	worker   sync.WaitGroup

	settled   chan struct{} // closed when the state is known for the first time
	known     atomic.Int64  // GPUs
	condition atomic.Pointer[condition]

	// Only the goroutine of run uses these.
	host     component.Host
	now      func() time.Time
	gpus     *inventory.Inventory
	storms   *storm.Storms
	standing standing
	convert  *converter
	engine   engine
	stuck    []stuckHelper
}

func newMonitor(settings receiver.Settings, config *Config, start starter) (*monitor, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	meanings, err := catalogue.Load()
	if err != nil {
		return nil, err
	}
	m := &monitor{
		config: config, settings: settings, start: start, telemetry: telemetry,
		closing: make(chan struct{}), settled: make(chan struct{}), now: time.Now,
		gpus: inventory.New(config.CollectionInterval), storms: storm.New(settings.ID.Type().String(), config.CollectionInterval), standing: standing{},
		convert: newConverter(config, settings, meanings, record.ThisHost()), engine: engine{answers: make(chan engineAnswer, 1)},
	}
	m.condition.Store(&condition{state: stateOf(starting)})
	return m, nil
}

// outbox is how both signals leave.
func (m *monitor) outbox() outbox.Settings {
	return outbox.Settings{Receiver: m.settings, Transport: m.settings.ID.Type().String(), Dropped: m.telemetry.ReceiverGpuRecordsDropped}
}

// Start starts to run helpers; later calls return what the first did.
func (m *monitor) Start(ctx context.Context, host component.Host) error {
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
	m.logs.Start()
	m.metrics.Start()
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
	if s := m.condition.Load(); s.name != protocol.Ready && s.name != gpuLost {
		return fmt.Errorf("%s: %s: %s", m.settings.ID.Type(), s.name, s.says())
	}
	return nil
}

// observe makes source and state metrics of this receiver.
func (m *monitor) observe() error {
	return errors.Join(
		m.telemetry.RegisterReceiverGpuStateCallback(func(_ context.Context, o metric.Int64Observer) error {
			now := m.condition.Load()
			for _, s := range states() {
				o.Observe(bit(s.name == now.name), metric.WithAttributes(attribute.String("state", s.name)))
			}
			return nil
		}),
		m.telemetry.RegisterReceiverGpuSourceCallback(func(_ context.Context, o metric.Int64Observer) error {
			if now := m.condition.Load(); now.source != "" {
				o.Observe(1, metric.WithAttributes(attribute.String(attributeSource, string(now.source)), attribute.String(attributeReason, now.reason)))
			}
			return nil
		}),
		m.telemetry.RegisterReceiverGpuGpusCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(m.known.Load())
			return nil
		}),
	)
}

// run has one helper after the other until the monitor stops.
func (m *monitor) run() {
	for {
		if m.round() {
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

// Shutdown ends the helper and waits, no longer than ctx, until the next
// consumers have the last records.
func (m *monitor) Shutdown(ctx context.Context) error {
	var err error
	m.stop.Do(func() {
		m.once.Do(func() { m.startErr = errors.New("start after shutdown") })
		defer m.telemetry.Shutdown()
		close(m.closing)
		err = record.Wait(ctx, "the helper still runs", m.worker.Wait)
		err = errors.Join(err, m.logs.Close(ctx), m.metrics.Close(ctx))
	})
	return err
}
