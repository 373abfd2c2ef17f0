package cudaoomreceiver

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

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// source delivers refusals: the cudaoom probe, or a test's fake.
type source interface {
	Watch([]cudaoom.Process) (cudaoom.Watched, error)
	Read(*cudaoom.Event) error
	Stats() probe.Stats
	Report() probe.Report
	Close() error
}

// consumerPatience is how long a consumer that refuses is asked again before its
// records are dropped and counted. Meanwhile the probe's ring holds what comes.
const consumerPatience = 10 * time.Second

// pendingExits is how many exits may wait to be looked at; one that finds no room
// costs the time of settle.
const pendingExits = 256

// cudaOOM is the receiver: one goroutine looks for libraries, one reads the source,
// and one judges what it reads and hands records to the next consumer.
type cudaOOM struct {
	config    *Config
	settings  receiver.Settings
	next      consumer.Logs
	open      opener
	telemetry *metadata.TelemetryBuilder
	report    *receiverhelper.ObsReport
	convert   *converter
	judge     *judge
	ticks     func(time.Duration) (<-chan time.Time, func())

	source   source // nil where the probe could not be opened
	resolver identity.Resolver
	working  atomic.Bool
	watched  atomic.Pointer[cudaoom.Watched]
	events   chan cudaoom.Event
	exits    chan uint32
	closing  chan struct{}
	giveUp   context.CancelFunc // ends the waiting for a consumer that refuses
	workers  sync.WaitGroup
	stop     sync.Once
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, open opener) (*cudaOOM, error) {
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
	o := &cudaOOM{
		config: config, settings: settings, next: next, open: open, telemetry: telemetry, report: report,
		convert: newConverter(builder, record.ThisHost()), judge: newJudge(config.Settle), ticks: ticker,
		events: make(chan cudaoom.Event), exits: make(chan uint32, pendingExits),
		closing: make(chan struct{}), giveUp: func() {},
	}
	o.watched.Store(&cudaoom.Watched{})
	return o, nil
}

func ticker(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(d)
	return t.C, t.Stop
}

// Start opens the probe and starts to look for libraries and to read.
func (o *cudaOOM) Start(_ context.Context, host component.Host) error {
	var err error
	if o.resolver, err = record.Resolver(host, o.config.Identity); err != nil {
		return err
	}
	if err := o.openSource(host); err != nil {
		return err
	}
	if err := o.observe(); err != nil {
		return errors.Join(err, o.closeSource())
	}
	ctx, giveUp := context.WithCancel(context.Background())
	o.giveUp = giveUp
	if o.source != nil {
		o.workers.Go(func() { o.scan(ctx) })
		o.workers.Go(func() { o.read(host) })
		o.workers.Go(func() { o.work(ctx) })
	}
	return nil
}

// missing is what there is not without the probe.
const missing = "refusals of GPU memory"

// openSource opens the probe. In mode ignore a probe that does not open, and an
// identity that is missing, leave the receiver without work.
func (o *cudaOOM) openSource(host component.Host) error {
	err := errors.New("nobody to watch: set identity to the id of the identity extension, which knows the rank processes")
	if o.resolver != nil {
		var opened source
		if opened, err = o.open(o.config.MaxLibraries); err == nil {
			o.source = opened
			o.working.Store(true)
			return nil
		}
	}
	return o.config.ErrorMode.NotOpened(host, o.settings.Logger, missing, fmt.Errorf("open the CUDA memory probe: %w", err))
}

func (o *cudaOOM) closeSource() error {
	if o.source == nil {
		return nil
	}
	return o.source.Close()
}

// read passes events on until the source is closed.
func (o *cudaOOM) read(host component.Host) {
	for {
		var event cudaoom.Event
		switch err := o.source.Read(&event); {
		case err == nil:
			select {
			case o.events <- event:
			case <-o.closing:
				return
			}
		case errors.Is(err, probe.ErrClosed):
			return
		default:
			o.working.Store(false)
			err = fmt.Errorf("read the CUDA memory probe: %w", err)
			o.config.ErrorMode.Stopped(host, o.settings.Logger, missing, componentstatus.NewPermanentErrorEvent(err))
			return
		}
	}
}

// work judges what is read until the receiver stops.
func (o *cudaOOM) work(ctx context.Context) {
	cancel := o.resolver.Exits(func(e identity.Exit) {
		select {
		case o.exits <- e.PID:
		default:
		}
	})
	defer cancel()
	ticks, stop := o.ticks(o.config.Settle / 4)
	defer stop()
	for {
		select {
		case <-o.closing: // a refusal that has not settled is no finding
			return
		case event := <-o.events:
			o.take(ctx, &event)
		case pid := <-o.exits:
			o.tell(ctx, o.judge.exited(pid, time.Now()))
		case now := <-ticks:
			o.tell(ctx, o.judge.due(now))
		}
		o.count(ctx)
	}
}

func (o *cudaOOM) take(ctx context.Context, event *cudaoom.Event) {
	if !event.Succeeded {
		o.telemetry.ReceiverCudaoomRefusals.Add(ctx, 1)
	}
	if f := o.judge.observe(event); f != nil {
		o.tell(ctx, []finding{*f})
	}
}

func (o *cudaOOM) count(ctx context.Context) {
	retried, dropped := o.judge.counts()
	o.telemetry.ReceiverCudaoomRetried.Add(ctx, int64(retried))
	o.telemetry.ReceiverCudaoomRefusalsDropped.Add(ctx, int64(dropped))
}

// tell converts findings and delivers them.
func (o *cudaOOM) tell(ctx context.Context, findings []finding) {
	if !o.config.Events.CudaRefusal.Enabled {
		return
	}
	for i := range findings {
		f := &findings[i]
		var known *identity.Process
		if process, found := o.resolver.Lookup(f.PID, 0, f.Time); found {
			known = &process
		}
		logs := o.convert.refusal(f, known, time.Now())
		op := o.report.StartLogsOp(ctx)
		err := record.Deliver(ctx, o.next, logs, consumerPatience)
		o.report.EndLogsOp(op, metadata.Type.String(), 1, err)
		if err != nil {
			o.telemetry.ReceiverCudaoomRecordsDropped.Add(ctx, 1)
		}
	}
}

// Shutdown closes the probe and waits, no longer than ctx, until the next
// consumer has the last record.
func (o *cudaOOM) Shutdown(ctx context.Context) error {
	var err error
	o.stop.Do(func() {
		defer o.telemetry.Shutdown()
		o.giveUp()
		close(o.closing)
		err = errors.Join(o.closeSource(), record.Wait(ctx, "the next consumer holds the last record, or a memory map cannot be read", o.workers.Wait))
	})
	return err
}
