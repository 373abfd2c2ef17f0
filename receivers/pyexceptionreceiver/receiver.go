package pyexceptionreceiver

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/pyexceptionreceiver/internal/metadata"
)

// source delivers exceptions: the pyexception probe, or a test's fake.
type source interface {
	probereceiver.Source
	probereceiver.Watcher[pyexception.Event]
}

// pendingExits is how many exits may wait to be looked at, shared by domain; of one that finds no room, its
// last exception is not told with it.
const pendingExits = 256

// exceptions looks for interpreters in one goroutine, reads the source in another, and
// makes records in a third.
type exceptions struct {
	config    *Config
	settings  receiver.Settings
	telemetry *metadata.TelemetryBuilder
	convert   *converter
	out       *outbox.Outbox[plog.Logs]
	ticks     probereceiver.Ticks
	resolver  identity.Resolver
	libraries *probereceiver.Libraries
	events    chan *pyexception.Event
	displays  *displays
	quotes    quotes
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (receiver.Logs, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	out, err := outbox.NewLogs(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: telemetry.ReceiverPyexceptionRecordsDropped})
	if err != nil {
		return nil, err
	}
	x := &exceptions{
		config: config, settings: settings, telemetry: telemetry, out: out, ticks: around.ticks, displays: newDisplays(),
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), record.ThisHost()),
		events:  make(chan *pyexception.Event),
	}
	x.libraries = &probereceiver.Libraries{
		Ranks: x.ranks, Ticks: around.ticks, Interval: config.ScanInterval, Logger: settings.Logger,
		Unseen: "exceptions of some processes go unseen", Skipped: telemetry.ReceiverPyexceptionProcessesSkipped,
	}
	if err := x.libraries.Observe(telemetry.RegisterReceiverPyexceptionInterpretersCallback, telemetry.RegisterReceiverPyexceptionInterpretersFailedCallback,
		telemetry.RegisterReceiverPyexceptionInterpretersSkippedCallback); err != nil {
		return nil, err
	}
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(record.ThisHost())
	return probereceiver.New(probereceiver.Parts[source]{
		Probe: "Python exception probe", Missing: "exceptions of ranks", ErrorMode: config.ErrorMode, Identity: config.Identity, NeedsIdentity: true,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: telemetry.Shutdown,
		Metrics: probereceiver.Metrics{
			Up: telemetry.RegisterReceiverPyexceptionProbeUpCallback, Dropped: telemetry.RegisterReceiverPyexceptionProbeDroppedCallback,
			Invalid: telemetry.RegisterReceiverPyexceptionProbeInvalidCallback, Failures: telemetry.RegisterReceiverPyexceptionProbeFailuresCallback,
		},
		Prepare: func(resolver identity.Resolver) { x.resolver = resolver },
		Open:    func() (source, error) { return around.open(config, x.wanted) },
		Use:     x.use,
		Work:    x.work,
		GaveUp:  out.Lost,
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			out.Put(losses.Emit())
		},
	}).Receiver(out), nil
}

// wanted: what other programs display is nobody's business, and their messages are not
// even decoded.
func (x *exceptions) wanted(pid uint32) bool {
	process, found := x.resolver.Lookup(pid, 0, time.Now())
	return found && (process.IsRank() || x.quotes.launcher(&process))
}

// use looks for interpreters and reads events until the probe is closed or broken.
func (x *exceptions) use(ctx context.Context, s source) error {
	return probereceiver.Watch(ctx, x.libraries, s, func(e *pyexception.Event) { x.events <- e })
}

// ranks are those whose interpreters are watched.
func (x *exceptions) ranks(ctx context.Context) []identity.Process {
	ranks, over := probereceiver.Oldest(x.resolver, x.config.MaxProcesses)
	x.telemetry.ReceiverPyexceptionProcessesSkipped.Add(ctx, int64(over))
	started := ranks
	if candidates, ok := x.resolver.(identity.Candidates); ok {
		started = append(slices.Clip(ranks), candidates.Unranked()...)
	}
	x.quotes.saw(started, func(pid uint32) (identity.Process, bool) { return x.resolver.Lookup(pid, 0, time.Now()) })
	return ranks
}

// work tells of what is read until no more comes.
func (x *exceptions) work(ctx context.Context, done <-chan struct{}) {
	if x.resolver == nil {
		return // nobody to watch
	}
	exits, cancel := probereceiver.WatchExits(x.resolver, pendingExits, nil, func() { x.telemetry.ReceiverPyexceptionExitsDropped.Add(ctx, 1) })
	defer cancel()
	for {
		select {
		case <-done:
			return
		case event := <-x.events:
			x.telemetry.ReceiverPyexceptionExceptions.Add(ctx, 1)
			x.take(event)
		case <-exits.Some():
			for _, e := range exits.Take() {
				x.ended(&e)
			}
		}
		x.telemetry.ReceiverPyexceptionExceptionsUntold.Add(ctx, x.displays.untold)
		x.displays.untold = 0
	}
}

func (x *exceptions) take(e *pyexception.Event) {
	process, found := x.resolver.Lookup(e.PID, 0, e.Time)
	if !found {
		return
	}
	if !process.IsRank() {
		if inner, rank := x.quotes.displayed(e, &process); inner != nil {
			x.tellQuoted(inner, rank, e.Time)
		}
		return
	}
	if tell, final := x.displays.add(e, &process); tell {
		x.raised(e, process)
		x.tell(e, &process, final)
	}
}

// ended takes the end of a process.
func (x *exceptions) ended(e *identity.Exit) {
	if last, final := x.displays.exited(e); last != nil {
		x.raised(last.event, last.of)
		x.tell(last.event, &last.of, final)
	}
	if inner, rank := x.quotes.exited(e); inner != nil {
		x.tellQuoted(inner, rank, e.Time)
	}
}

// raised tells who knows processes that one may end of an exception. What its words are known for takes long to find out, so it is
// asked of what is told alone: a program may display without end.
func (x *exceptions) raised(e *pyexception.Event, of identity.Process) {
	if failing, ok := x.resolver.(identity.Failing); ok && mayEnd(e) && !awaits(e) {
		failing.Raised(of)
	}
}

// tellQuoted tells an exception that another process quoted, of the rank that has ended of it.
func (x *exceptions) tellQuoted(inner *pyexception.Event, rank *identity.Process, at time.Time) {
	if x.displays.quoted(rank, at) {
		x.tell(inner, rank, finalStatus)
	}
}

// tell makes a record. An exception that was its process's end is told twice: as it is
// displayed, and with that end.
func (x *exceptions) tell(e *pyexception.Event, process *identity.Process, final string) {
	if x.config.Events.ProcessException.Enabled {
		x.out.Put(x.convert.exception(e, process, final, time.Now()))
	}
}
