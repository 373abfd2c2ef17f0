package oomkillreceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// source delivers OOM kills: the oomkill probe, or a test's fake.
type source interface {
	Read(*oomkill.Event) error
	Stats() probe.Stats
	Report() probe.Report
	Close() error
}

// patience is how long a consumer that refuses is asked again before its records
// are dropped and counted. Meanwhile the probe's ring holds what comes.
const patience = 10 * time.Second

// oomKill is the receiver: one goroutine takes kills from the source and hands
// records to the next consumer.
type oomKill struct {
	config    *Config
	settings  receiver.Settings
	next      consumer.Logs
	open      func() (source, error)
	telemetry *metadata.TelemetryBuilder
	report    *receiverhelper.ObsReport
	convert   *converter

	source   source // nil where the probe could not be opened
	resolver identity.Resolver
	working  atomic.Bool
	giveUp   context.CancelFunc // ends the waiting for a consumer that refuses
	reader   sync.WaitGroup
	stop     sync.Once
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, open func() (source, error)) (*oomKill, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	report, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: settings.ID, Transport: "kernel", LongLivedCtx: true, ReceiverCreateSettings: settings,
	})
	if err != nil {
		return nil, err
	}
	builder := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	return &oomKill{
		config: config, settings: settings, next: next, open: open, telemetry: telemetry, report: report,
		convert: newConverter(builder, record.ThisHost()), giveUp: func() {},
	}, nil
}

// Start opens the probe and starts to read it.
func (k *oomKill) Start(_ context.Context, host component.Host) error {
	var err error
	if k.resolver, err = record.Resolver(host, k.config.Identity); err != nil {
		return err
	}
	if err := k.openSource(host); err != nil {
		return err
	}
	if err := k.observeSource(); err != nil {
		return errors.Join(err, k.closeSource())
	}
	ctx, giveUp := context.WithCancel(context.Background())
	k.giveUp = giveUp
	if k.source != nil {
		k.reader.Go(func() { k.read(ctx, host) })
	}
	return nil
}

// missing is what there is not without the probe.
const missing = "OOM kills"

// openSource opens the probe. In mode ignore a probe that does not open leaves
// the receiver without one.
func (k *oomKill) openSource(host component.Host) error {
	opened, err := k.open()
	if err == nil {
		k.source = opened
		k.working.Store(true)
		return nil
	}
	return k.config.ErrorMode.NotOpened(host, k.settings.Logger, missing, fmt.Errorf("open the OOM-kill probe: %w", err))
}

func (k *oomKill) closeSource() error {
	if k.source == nil {
		return nil
	}
	return k.source.Close()
}

// observeSource makes the probe's own counters metrics of this receiver.
func (k *oomKill) observeSource() error {
	rung := ""
	stats := func() probe.Stats { return probe.Stats{} }
	if k.source != nil {
		rung, stats = k.source.Report().Rung, k.source.Stats
	}
	rungAttribute := metric.WithAttributes(attribute.String("rung", rung))
	return errors.Join(
		k.telemetry.RegisterReceiverOomkillProbeUpCallback(func(_ context.Context, o metric.Int64Observer) error {
			up := int64(0)
			if k.working.Load() {
				up = 1
			}
			o.Observe(up, rungAttribute)
			return nil
		}),
		k.telemetry.RegisterReceiverOomkillProbeDroppedCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(stats().Dropped))
			return nil
		}),
		k.telemetry.RegisterReceiverOomkillProbeInvalidCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(stats().Invalid))
			return nil
		}),
	)
}

// read hands kills on until the source is closed.
func (k *oomKill) read(ctx context.Context, host component.Host) {
	for {
		var event oomkill.Event
		err := k.source.Read(&event)
		switch {
		case err == nil:
			k.telemetry.ReceiverOomkillKills.Add(ctx, 1)
			k.hand(ctx, &event)
		case errors.Is(err, probe.ErrClosed):
			return
		default:
			k.fail(host, fmt.Errorf("read the OOM-kill probe: %w", err))
			return
		}
	}
}

// hand converts one kill and delivers it.
func (k *oomKill) hand(ctx context.Context, event *oomkill.Event) {
	if !k.config.Events.OomKill.Enabled {
		return
	}
	var known *identity.Process
	if k.resolver != nil {
		if victim, found := k.resolver.Lookup(event.PID, event.ParentPID, event.Time); found {
			known = &victim
		}
	}
	logs := k.convert.kill(event, known, time.Now())
	ctx = k.report.StartLogsOp(ctx)
	err := record.Deliver(ctx, k.next, logs, patience)
	k.report.EndLogsOp(ctx, metadata.Type.String(), 1, err)
	if err != nil {
		k.telemetry.ReceiverOomkillRecordsDropped.Add(ctx, 1)
	}
}

// fail reports a probe that stopped working while the receiver runs.
func (k *oomKill) fail(host component.Host, err error) {
	k.working.Store(false)
	k.config.ErrorMode.Stopped(host, k.settings.Logger, missing, componentstatus.NewPermanentErrorEvent(err))
}

// Shutdown closes the probe and waits, no longer than ctx, until the next
// consumer has the last record.
func (k *oomKill) Shutdown(ctx context.Context) error {
	var err error
	k.stop.Do(func() {
		defer k.telemetry.Shutdown()
		k.giveUp()
		err = errors.Join(k.closeSource(), record.Wait(ctx, "the next consumer holds the last record", k.reader.Wait))
	})
	return err
}
