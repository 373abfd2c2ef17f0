package cudaoomreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// source delivers refusals: the cudaoom probe, or a test's fake.
type source interface {
	probereceiver.Source
	probereceiver.Watcher[cudaoom.Event]
}

// pendingExits is how many exits may wait to be looked at; one that finds no room
// costs the time of settle.
const pendingExits = 256

// cudaOOM looks for libraries in one goroutine, reads the source in another, and
// judges in a third what was read.
type cudaOOM struct {
	config    *Config
	settings  receiver.Settings
	telemetry *metadata.TelemetryBuilder
	convert   *converter
	out       *outbox.Outbox[plog.Logs]
	judge     *judge
	ticks     probereceiver.Ticks
	resolver  identity.Resolver
	libraries *probereceiver.Libraries
	events    chan *cudaoom.Event
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (receiver.Logs, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	out, err := outbox.NewLogs(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: telemetry.ReceiverCudaoomRecordsDropped})
	if err != nil {
		return nil, err
	}
	o := &cudaOOM{
		config: config, settings: settings, telemetry: telemetry, out: out, ticks: around.ticks,
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), record.ThisHost()),
		events:  make(chan *cudaoom.Event),
	}
	o.judge = newJudge(config.Settle, o.domain)
	o.libraries = &probereceiver.Libraries{
		Ranks: o.ranks, Ticks: around.ticks, Interval: config.ScanInterval, Logger: settings.Logger,
		Unseen: "refusals of GPU memory to some processes go unseen", Skipped: telemetry.ReceiverCudaoomProcessesSkipped,
	}
	if err := o.libraries.Observe(telemetry.RegisterReceiverCudaoomLibrariesCallback, telemetry.RegisterReceiverCudaoomLibrariesFailedCallback,
		telemetry.RegisterReceiverCudaoomLibrariesSkippedCallback); err != nil {
		return nil, err
	}
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(record.ThisHost())
	return probereceiver.New(probereceiver.Parts[source]{
		Probe: "CUDA memory probe", Missing: "refusals of GPU memory", ErrorMode: config.ErrorMode, Identity: config.Identity, NeedsIdentity: true,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: telemetry.Shutdown,
		Metrics: probereceiver.Metrics{
			Up: telemetry.RegisterReceiverCudaoomProbeUpCallback, Dropped: telemetry.RegisterReceiverCudaoomProbeDroppedCallback,
			Invalid: telemetry.RegisterReceiverCudaoomProbeInvalidCallback, Failures: telemetry.RegisterReceiverCudaoomProbeFailuresCallback,
		},
		Prepare: func(resolver identity.Resolver) { o.resolver = resolver },
		Open:    func() (source, error) { return around.open(config) },
		Use:     o.use,
		Work:    o.work,
		GaveUp:  out.Lost,
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			out.Put(losses.Emit())
		},
	}).Receiver(out), nil
}

// use looks for libraries and reads events until the probe is closed or broken.
func (o *cudaOOM) use(ctx context.Context, s source) error {
	return probereceiver.Watch(ctx, o.libraries, s, func(e *cudaoom.Event) { o.events <- e })
}

// ranks are those whose libraries are watched.
func (o *cudaOOM) ranks(ctx context.Context) []identity.Process {
	ranks, over := probereceiver.Oldest(o.resolver, o.config.MaxProcesses)
	o.telemetry.ReceiverCudaoomProcessesSkipped.Add(ctx, int64(over))
	return ranks
}

// work judges what is read until no more comes.
func (o *cudaOOM) work(ctx context.Context, done <-chan struct{}) {
	if o.resolver == nil {
		return // nobody to watch
	}
	exits, cancel := probereceiver.WatchExits(o.resolver, pendingExits, nil, func() {})
	defer cancel()
	ticks, stop := o.ticks(o.config.Settle / 4)
	defer stop()
	for {
		select {
		case <-done: // a refusal that has not settled is no finding
			return
		case event := <-o.events:
			o.take(ctx, event)
		case <-exits.Some():
			for _, e := range exits.Take() {
				o.tell(o.judge.exited(e.PID, time.Now()))
			}
		case now := <-ticks:
			o.tell(o.judge.due(now))
		}
		o.count(ctx)
	}
}

func (o *cudaOOM) take(ctx context.Context, event *cudaoom.Event) {
	if !event.Succeeded {
		gpuask.Refused() // now: when it is a finding, the process may be dead
		o.telemetry.ReceiverCudaoomRefusals.Add(ctx, 1)
	}
	if f := o.judge.observe(event); f != nil {
		o.tell([]finding{*f})
	}
}

// domain is whose job the process of an event can be of, "" where that is not known.
func (o *cudaOOM) domain(e *cudaoom.Event) string {
	process, _ := o.resolver.Lookup(e.PID, 0, e.Time)
	return process.Domain
}

func (o *cudaOOM) count(ctx context.Context) {
	retried, dropped := o.judge.counts()
	o.telemetry.ReceiverCudaoomRetried.Add(ctx, int64(retried))
	o.telemetry.ReceiverCudaoomRefusalsDropped.Add(ctx, int64(dropped))
}

// tell makes records of findings.
func (o *cudaOOM) tell(findings []finding) {
	if !o.config.Events.CudaRefusal.Enabled {
		return
	}
	for i := range findings {
		f := &findings[i]
		var known *identity.Process
		if process, found := o.resolver.Lookup(f.PID, 0, f.Time); found {
			known = &process
		}
		o.out.Put(o.convert.refusal(f, known, time.Now()))
	}
}
