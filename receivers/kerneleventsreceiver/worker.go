package kerneleventsreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/fold"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/ports"
)

// Queues of the worker. A full events queue makes the reader of the probe wait while
// the worker looks at a fault, never for the next consumer. Ends that find no room are dropped and
// counted, because the identity extension tells all its listeners in one go.
const (
	eventsQueue  = 256
	pendingExits = 4096
)

// worker owns the parser, the folds and the converter: one goroutine, no lock.
type worker struct {
	events chan *kmsg.Event
	exits  *probereceiver.Exits // of rank processes
	ports  chan []ports.Port

	config    *Config
	put       func(plog.Logs)
	putThen   func(logs plog.Logs, taken func()) // taken is called once the next consumer has taken them
	delivered func() bool                        // it has taken all
	telemetry *metadata.TelemetryBuilder
	outcomes  map[kernellog.Outcome]metric.MeasurementOption
	resolver  identity.Resolver // nil without the extension
	enabled   map[string]bool

	ended    chan struct{} // closed when run returns
	watched  *watched
	roll     *roll
	started  starts
	asks     asks
	parser   *kernellog.Parser
	topology *topologies
	folder   *fold.Folder
	convert  *converter
	uptime   func() (time.Duration, error) // nil: no boot is told
	tick     time.Duration                 // how often open folds are looked at

	portBook   ports.Book
	readPorts  func() ([]ports.Port, error) // nil: ports are not looked at
	portsEvery time.Duration

	faults  []kernellog.Fault
	located []kernellog.Fault
	reports []fold.Report
}

func newWorker(settings receiver.Settings, config *Config, telemetry *metadata.TelemetryBuilder, putThen func(plog.Logs, func()), delivered func() bool) (*worker, error) {
	meanings, err := catalogue.Load()
	if err != nil {
		return nil, err
	}
	limits := fold.Limits{Quiet: config.Fold.Quiet, Longest: config.Fold.Longest, Open: config.Fold.MaxOpen}
	host := record.ThisHost()
	watched := newWatched(settings, config.Storage, host.Boot)
	return &worker{
		ended: make(chan struct{}), watched: watched, roll: newRoll(watched),
		events: make(chan *kmsg.Event, eventsQueue), exits: &probereceiver.Exits{}, ports: make(chan []ports.Port),
		config: config, put: func(logs plog.Logs) { putThen(logs, nil) }, putThen: putThen, delivered: delivered, telemetry: telemetry, outcomes: outcomeOptions(), enabled: config.Events.ByName(),
		parser: kernellog.NewParser(meanings), topology: newTopologies(time.Now()), folder: fold.New(limits),
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), host),
		tick:    min(max(limits.Quiet/10, time.Millisecond), time.Second),
	}, nil
}

func outcomeOptions() map[kernellog.Outcome]metric.MeasurementOption {
	options := map[kernellog.Outcome]metric.MeasurementOption{}
	for _, outcome := range []kernellog.Outcome{kernellog.Reported, kernellog.Benign, kernellog.Unrecognized} {
		options[outcome] = metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", string(outcome))))
	}
	return options
}

// run works until done is closed, then finishes what is in the queues.
func (w *worker) run(_ context.Context, done <-chan struct{}) {
	defer close(w.ended)
	w.boot(time.Now())
	if w.readPorts != nil && w.config.Events.NetworkRdmaPort.Enabled {
		w.restorePorts(time.Now())
		go w.watchPorts(done)
	}
	ignoreExits := w.watchExits()
	w.tellGone(time.Now())
	timer, note := time.NewTimer(w.tick), time.NewTicker(noteEvery)
	defer timer.Stop()
	defer note.Stop()
	look := time.NewTicker(lookAtRanks)
	defer look.Stop()
	for ticking := true; ; {
		select {
		case event := <-w.events:
			w.event(event, time.Now())
		case <-w.exits.Some():
			w.takeExits()
		case <-look.C:
			w.lookAtRanks(time.Now())
		case all := <-w.ports:
			w.lookAtPorts(all, time.Now())
		case <-timer.C:
			ticking = false
			w.expire(time.Now())
		case <-note.C:
			w.watched.note(w.idle())
		case <-w.roll.untaken.news:
			w.settled()
		case <-done:
			ignoreExits()
			w.finish()
			w.roll.close(time.Now())
			return
		}
		if !ticking && (w.folder.Open() > 0 || w.parser.Pending()) {
			timer.Reset(w.tick)
			ticking = true
		}
	}
}

// idle reports whether the next consumer has taken all that the kernel log told: what waits is lost with this process.
func (w *worker) idle() bool { return len(w.events) == 0 && !w.parser.Pending() && w.delivered() }

// boot tells which boot of the machine is watched from now on, and since when it is up.
func (w *worker) boot(now time.Time) {
	if w.uptime == nil || !w.config.Events.HostBoot.Enabled {
		return
	}
	if up, err := w.uptime(); err == nil {
		w.put(w.convert.boot(up, now))
	}
}

// watchExits collects ends of rank processes.
func (w *worker) watchExits() (cancel func()) {
	if w.resolver == nil || !w.config.ProcessExits || !w.config.Events.ProcessExit.Enabled {
		return func() {}
	}
	w.exits, cancel = probereceiver.WatchExits(w.resolver, pendingExits, nil, func() { w.telemetry.ReceiverKerneleventsExitsDropped.Add(context.Background(), 1) })
	return cancel
}

// takeExits tells of the ends that wait.
func (w *worker) takeExits() {
	for _, exit := range w.exits.Take() {
		w.exit(exit, time.Now())
	}
}

// event parses one kernel-log record and sends what has to leave at once.
func (w *worker) event(event *kmsg.Event, now time.Time) {
	var outcome kernellog.Outcome
	w.faults, outcome = w.parser.Parse(w.faults[:0], event)
	w.telemetry.ReceiverKerneleventsLines.Add(context.Background(), 1, w.outcomes[outcome])
	w.located = w.topology.locate(w.located[:0], w.faults, now)
	w.reports = w.fold(w.reports[:0], w.located, now)
	w.send(now)
}

// fold adds faults to their folds, after finding out whose they are: once per
// fold, at the moment of its first fault.
func (w *worker) fold(reports []fold.Report, faults []kernellog.Fault, now time.Time) []fold.Report {
	folded, early := w.folder.Folded(), w.folder.ClosedEarly()
	for i := range faults {
		fault := &faults[i]
		if !w.enabled[fault.Key.Event] {
			continue
		}
		if fault.OwnerPID != 0 && w.resolver != nil && !w.folder.Continues(fault) {
			if owner, known := w.resolver.Lookup(fault.OwnerPID, 0, fault.Time); known {
				fault.Owner = &owner
			}
		}
		if link, is := fault.Event.(metadata.NetworkLink); is && !w.folder.Continues(fault) {
			putHere(metadata.HereAttributesOn(link.Attributes()), w.jobHere())
		}
		reports = w.folder.Add(reports, *fault, now)
	}
	if n := w.folder.Folded() - folded; n > 0 {
		w.telemetry.ReceiverKerneleventsFolded.Add(context.Background(), int64(n))
	}
	if n := w.folder.ClosedEarly() - early; n > 0 {
		w.telemetry.ReceiverKerneleventsFoldsClosedEarly.Add(context.Background(), int64(n))
	}
	return reports
}

// expire sends what time alone decides.
func (w *worker) expire(now time.Time) {
	w.faults = w.parser.Expire(w.faults[:0], now)
	w.reports = w.fold(w.reports[:0], w.faults, now)
	w.reports = w.folder.Expire(w.reports, now)
	w.send(now)
}

func (w *worker) send(now time.Time) {
	if len(w.reports) > 0 {
		w.put(w.convert.faults(w.reports, now))
	}
}

func (w *worker) exit(exit identity.Exit, now time.Time) {
	logs := w.convert.exit(exit, w.roll.watchedFor(&exit), now)
	e := &end{Process: exit.Born(), ranks: w.roll.ended(&exit)}
	if len(e.ranks) == 0 && !exit.Failed() {
		w.put(logs) // of a worker that ended well
		return
	}
	if exit.Wrapper != nil {
		e.Wrapper = exit.Wrapper.PID
	}
	w.tells(e, logs)
	w.roll.changed(now)
}

// lookAtRanks tells of ranks that run and were not told of, and notes which run.
func (w *worker) lookAtRanks(now time.Time) {
	if w.resolver == nil || !w.config.ProcessExits {
		return
	}
	if fresh := w.started.news(w.resolver.Ranks(), now); len(fresh) > 0 && w.config.Events.ProcessStart.Enabled {
		w.put(w.convert.starts(fresh, now))
	}
	w.lookAtAsked(now)
	w.roll.look(w.started.ranks)
	if keeps, ok := w.resolver.(identity.Keeps); ok {
		for _, p := range w.roll.living {
			if s, is := keeps.Sent(p.Process); is {
				p.Sent = &s
			}
		}
	}
	w.roll.note(now)
}

// lookAtAsked tells of ranks that were asked to end, and live.
func (w *worker) lookAtAsked(now time.Time) {
	by, can := w.resolver.(identity.Asks)
	if !can || !w.config.Events.ProcessAsked.Enabled {
		return
	}
	if fresh := w.asks.news(by.Asked()); len(fresh) > 0 {
		w.put(w.convert.asked(fresh, now))
	}
}

// finish empties the queues and closes every fold.
func (w *worker) finish() {
	for len(w.events) > 0 {
		w.event(<-w.events, time.Now())
	}
	w.takeExits()
	const forever = 1 << 62
	w.faults = w.parser.Expire(w.faults[:0], time.Unix(0, forever))
	w.reports = w.fold(w.reports[:0], w.faults, time.Now())
	w.reports = w.folder.Flush(w.reports)
	w.send(time.Now())
}
