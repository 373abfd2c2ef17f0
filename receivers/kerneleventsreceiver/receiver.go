package kerneleventsreceiver

import (
	"context"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// source delivers kernel-log records: the kmsg probe, or a test's fake.
type source interface {
	probereceiver.Source
	Read(*kmsg.Event) error
	// ReadBack reads what the kernel's buffer holds of the time before the probe.
	ReadBack(since kmsg.Moment) (kmsg.Back, error)
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (receiver.Logs, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	out, err := outbox.NewLogs(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: telemetry.ReceiverKerneleventsRecordsDropped})
	if err != nil {
		return nil, err
	}
	w, err := newWorker(settings, config, telemetry, out.PutThen, out.Empty)
	if err != nil {
		return nil, err
	}
	w.uptime, w.readPorts, w.portsEvery = around.uptime, around.ports, around.portsEvery
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(record.ThisHost())
	return probereceiver.New(probereceiver.Parts[source]{
		Probe: "kernel-log probe", Missing: "faults from the kernel log", ErrorMode: config.ErrorMode, Identity: config.Identity,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: telemetry.Shutdown,
		Metrics: probereceiver.Metrics{
			Up: telemetry.RegisterReceiverKerneleventsProbeUpCallback, Proven: telemetry.RegisterReceiverKerneleventsProbeProvenCallback,
			Dropped: telemetry.RegisterReceiverKerneleventsProbeDroppedCallback,
			Invalid: telemetry.RegisterReceiverKerneleventsProbeInvalidCallback, Failures: telemetry.RegisterReceiverKerneleventsProbeFailuresCallback,
		},
		Keep:    w.watched.open,
		Prepare: func(resolver identity.Resolver) { w.resolver = resolver },
		Open:    around.open,
		Use: func(_ context.Context, s source) error {
			w.readBack(s)
			defer w.watched.pause()
			return probereceiver.Events(s.Read, func(e *kmsg.Event) { w.events <- e })
		},
		Work:   w.run,
		GaveUp: out.Lost,
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			out.Put(losses.Emit())
		},
	}).Receiver(&outgoing{out, w}), nil
}

// outgoing lets the worker note at the end what the next consumer has taken.
type outgoing struct {
	*outbox.Outbox[plog.Logs]
	worker *worker
}

// Close is called once the worker has ended, or was never begun.
func (o *outgoing) Close(ctx context.Context) error {
	err := o.Outbox.Close(ctx)
	o.worker.close()
	return err
}
