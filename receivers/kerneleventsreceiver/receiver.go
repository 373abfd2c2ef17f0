package kerneleventsreceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// source delivers kernel-log records: the kmsg probe, or a test's fake.
type source interface {
	Read(*kmsg.Event) error
	Stats() probe.Stats
	Report() probe.Report
	Close() error
}

// Queues between the goroutines. A full events queue makes the reader wait, and
// the probe's ring, which counts its drops, fill; a full exits queue drops and
// counts, because who reports an exit must not be made to wait.
const (
	eventsQueue = 256
	exitsQueue  = 4096
)

// kernelEvents is the receiver: a reader takes records from the source, a worker
// makes log records of them.
type kernelEvents struct {
	config    *Config
	settings  receiver.Settings
	next      consumer.Logs
	open      func() (source, error)
	telemetry *metadata.TelemetryBuilder

	source      source // nil where the probe could not be opened
	working     atomic.Bool
	cancelExits func()
	giveUp      context.CancelFunc // ends the waiting for a consumer that refuses
	reader      sync.WaitGroup
	worker      *worker // nil until Start
	stop        sync.Once
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, open func() (source, error)) (*kernelEvents, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return &kernelEvents{
		config: config, settings: settings, next: next, open: open,
		telemetry: telemetry, cancelExits: func() {},
	}, nil
}

// Start opens the probe and starts the reader and the worker.
func (k *kernelEvents) Start(_ context.Context, host component.Host) error {
	resolver, err := record.Resolver(host, k.config.Identity)
	if err != nil {
		return err
	}
	ctx, giveUp := context.WithCancel(context.Background())
	w, err := newWorker(ctx, k, resolver)
	if err == nil {
		err = k.openSource(host)
	}
	if err == nil {
		err = k.observeSource()
	}
	if err != nil {
		giveUp()
		return errors.Join(err, k.closeSource())
	}
	k.worker, k.giveUp = w, giveUp
	go w.run()
	k.watchExits(resolver)
	if k.source != nil {
		k.reader.Go(func() { k.read(host) })
	}
	return nil
}

// missing is what there is not without the probe.
const missing = "faults from the kernel log"

// openSource opens the probe. In mode ignore a probe that does not open leaves
// the receiver without one.
func (k *kernelEvents) openSource(host component.Host) error {
	opened, err := k.open()
	if err == nil {
		k.source = opened
		k.working.Store(true)
		return nil
	}
	return k.config.ErrorMode.NotOpened(host, k.settings.Logger, missing, fmt.Errorf("open the kernel-log probe: %w", err))
}

func (k *kernelEvents) closeSource() error {
	if k.source == nil {
		return nil
	}
	return k.source.Close()
}

// observeSource makes the probe's own counters metrics of this receiver.
func (k *kernelEvents) observeSource() error {
	rung := ""
	stats := func() probe.Stats { return probe.Stats{} }
	if k.source != nil {
		rung, stats = k.source.Report().Rung, k.source.Stats
	}
	rungAttribute := metric.WithAttributes(attribute.String("rung", rung))
	return errors.Join(
		k.telemetry.RegisterReceiverKerneleventsProbeUpCallback(func(_ context.Context, o metric.Int64Observer) error {
			up := int64(0)
			if k.working.Load() {
				up = 1
			}
			o.Observe(up, rungAttribute)
			return nil
		}),
		k.telemetry.RegisterReceiverKerneleventsProbeDroppedCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(stats().Dropped))
			return nil
		}),
		k.telemetry.RegisterReceiverKerneleventsProbeInvalidCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(stats().Invalid))
			return nil
		}),
	)
}

// watchExits queues exits of rank processes for the worker.
func (k *kernelEvents) watchExits(resolver identity.Resolver) {
	if resolver == nil || !k.config.ProcessExits || !k.config.Events.ProcessExit.Enabled {
		return
	}
	k.cancelExits = resolver.Exits(func(exit identity.Exit) {
		select {
		case k.worker.exits <- exit:
		default:
			k.telemetry.ReceiverKerneleventsExitsDropped.Add(context.Background(), 1)
		}
	})
}

// read hands the source's records to the worker until the source is closed.
func (k *kernelEvents) read(host component.Host) {
	for {
		var event kmsg.Event
		err := k.source.Read(&event)
		switch {
		case err == nil:
			k.worker.events <- event
		case errors.Is(err, probe.ErrClosed):
			return
		default:
			k.fail(host, fmt.Errorf("read the kernel-log probe: %w", err))
			return
		}
	}
}

// fail reports a probe that stopped working while the receiver runs.
func (k *kernelEvents) fail(host component.Host, err error) {
	k.working.Store(false)
	k.config.ErrorMode.Stopped(host, k.settings.Logger, missing, componentstatus.NewPermanentErrorEvent(err))
}

// Shutdown closes the probe, lets the worker finish what was read and flush its
// open folds, and waits for that no longer than ctx.
func (k *kernelEvents) Shutdown(ctx context.Context) error {
	var err error
	k.stop.Do(func() {
		defer k.telemetry.Shutdown()
		if k.worker == nil {
			return
		}
		k.giveUp()
		k.cancelExits()
		err = errors.Join(k.closeSource(), record.Wait(ctx, "the next consumer holds the last records", func() {
			k.reader.Wait()
			close(k.worker.stop)
			<-k.worker.done
		}))
	})
	return err
}
