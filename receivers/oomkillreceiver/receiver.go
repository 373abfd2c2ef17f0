package oomkillreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// source delivers OOM kills: the oomkill probe, or a test's fake.
type source interface {
	probereceiver.Source
	Read(*oomkill.Event) error
}

// oomKill makes a record of each kill.
type oomKill struct {
	config    *Config
	telemetry *metadata.TelemetryBuilder
	convert   *converter
	resolver  identity.Resolver // nil without the extension
	out       *outbox.Outbox[plog.Logs]
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (receiver.Logs, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	out, err := outbox.NewLogs(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: telemetry.ReceiverOomkillRecordsDropped})
	if err != nil {
		return nil, err
	}
	builder := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	k := &oomKill{config: config, telemetry: telemetry, convert: newConverter(builder, record.ThisHost()), out: out}
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(record.ThisHost())
	return probereceiver.New(probereceiver.Parts[source]{
		Probe: "OOM-kill probe", Missing: "OOM kills", ErrorMode: config.ErrorMode, Identity: config.Identity,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: telemetry.Shutdown,
		Metrics: probereceiver.Metrics{
			Up: telemetry.RegisterReceiverOomkillProbeUpCallback, Dropped: telemetry.RegisterReceiverOomkillProbeDroppedCallback,
			Invalid: telemetry.RegisterReceiverOomkillProbeInvalidCallback, Failures: telemetry.RegisterReceiverOomkillProbeFailuresCallback,
			Late: telemetry.RegisterReceiverOomkillProbeLateCallback, Missed: telemetry.RegisterReceiverOomkillProbeMissedCallback,
		},
		Prepare: func(resolver identity.Resolver) { k.resolver = resolver },
		Open:    func() (source, error) { return around.open(config.Pin) },
		Use:     func(_ context.Context, s source) error { return probereceiver.Events(s.Read, k.tell) },
		GaveUp:  out.Lost,
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			out.Put(losses.Emit())
		},
	}).Receiver(out), nil
}

// tell makes a record of a kill.
func (k *oomKill) tell(event *oomkill.Event) {
	k.telemetry.ReceiverOomkillKills.Add(context.Background(), 1)
	if !k.config.Events.OomKill.Enabled {
		return
	}
	var known *identity.Process
	if k.resolver != nil {
		if victim, found := k.resolver.Lookup(event.PID, event.ParentPID, event.Time); found {
			known = &victim
		}
	}
	k.out.Put(k.convert.kill(event, known, time.Now()))
}
