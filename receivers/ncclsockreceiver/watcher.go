package ncclsockreceiver

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
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// source is what tells of sockets: the ncclsock probe, or a test's fake.
type source interface {
	Snapshot(owners []uint32, s *ncclsock.Snapshot) error
	ReadChange(*ncclsock.Change) error
	Stats() probe.Stats
	Report() probe.Report
	Close() error
}

// pendingChanges is how many changes may wait for the next look at them.
const pendingChanges = 256

// watcher takes snapshots and tells what they come to. One goroutine owns the
// tracker, one reads changes, one delivers.
type watcher struct {
	config    *Config
	settings  receiver.Settings
	open      opener
	telemetry *metadata.TelemetryBuilder
	convert   *converter
	out       outbox
	ticks     func(time.Duration) (<-chan time.Time, func())

	once     sync.Once
	startErr error
	stop     sync.Once
	closing  chan struct{}
	giveUp   context.CancelFunc // ends the waiting for consumers that refuse
	workers  sync.WaitGroup
	delivery sync.WaitGroup

	source   source // nil where the probe could not be opened
	resolver identity.Resolver
	changes  chan ncclsock.Change
	working  atomic.Bool
	counters atomic.Pointer[stall.Counters]
	over     atomic.Uint64 // sockets that the probe left out
	lost     atomic.Uint64 // changes there was no room for

	// Only the goroutine of watch uses these.
	tracker  *stall.Tracker
	proc     *procfs.Reader
	snapshot ncclsock.Snapshot
	failures int // snapshots in a row
	reported time.Time
}

func newWatcher(settings receiver.Settings, config *Config, open opener) (*watcher, error) {
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
	logs := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	metrics := metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings)
	w := &watcher{
		config: config, settings: settings, open: open, telemetry: telemetry, ticks: ticker,
		convert: newConverter(config, logs, metrics, record.ThisHost()),
		out:     outbox{batches: make(chan batch, outboxSize), telemetry: telemetry, report: report},
		closing: make(chan struct{}), giveUp: func() {}, changes: make(chan ncclsock.Change, pendingChanges),
		tracker: stall.New(config.options()), proc: procfs.New(""),
	}
	w.counters.Store(&stall.Counters{})
	return w, nil
}

func ticker(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(d)
	return t.C, t.Stop
}

// start opens the probe and starts to watch; later calls return what the first did.
func (w *watcher) start(host component.Host) error {
	w.once.Do(func() { w.startErr = w.begin(host) })
	return w.startErr
}

func (w *watcher) begin(host component.Host) error {
	var err error
	if w.resolver, err = record.Resolver(host, w.config.Identity); err != nil {
		return err
	}
	if err := w.openSource(host); err != nil {
		return err
	}
	if err := w.observe(); err != nil {
		return errors.Join(err, w.closeSource())
	}
	ctx, giveUp := context.WithCancel(context.Background())
	w.giveUp = giveUp
	w.delivery.Go(func() { w.out.deliver(ctx) })
	if w.source != nil {
		w.workers.Go(w.readChanges)
		w.workers.Go(func() { w.watch(ctx, host) })
	}
	return nil
}

// missing is what there is not without the probe.
const missing = "socket stalls"

// openSource opens the probe. In mode ignore a probe that does not open, and an
// identity that is missing, leave the receiver without work.
func (w *watcher) openSource(host component.Host) error {
	err := errors.New("nobody to watch: set identity to the id of the identity extension, which knows the rank processes")
	if w.resolver != nil {
		var opened source
		if opened, err = w.open(w.config.MaxSockets, w.config.MaxProcesses); err == nil {
			w.source = opened
			w.working.Store(true)
			return nil
		}
	}
	return w.config.ErrorMode.NotOpened(host, w.settings.Logger, missing, fmt.Errorf("open the socket probe: %w", err))
}

func (w *watcher) closeSource() error {
	if w.source == nil {
		return nil
	}
	return w.source.Close()
}

// readChanges passes changes on until the source is closed. Without them
// snapshots still tell all but refused connections.
func (w *watcher) readChanges() {
	for {
		var c ncclsock.Change
		switch err := w.source.ReadChange(&c); {
		case err == nil:
			select {
			case w.changes <- c:
			default:
				w.lost.Add(1)
			}
		case errors.Is(err, probe.ErrClosed):
			return
		default:
			w.settings.Logger.Error("no more changes of sockets: refused connections go unseen", zap.Error(err))
			return
		}
	}
}

// watch takes a snapshot at each tick until the watcher stops.
func (w *watcher) watch(ctx context.Context, host component.Host) {
	ticks, stop := w.ticks(w.config.SnapshotInterval)
	defer stop()
	for {
		select {
		case <-w.closing:
			w.proc.Wait(ctx.Done())
			return
		case c := <-w.changes:
			w.tracker.Note(&c)
		case <-ticks:
			w.look(ctx, host)
		}
	}
}

// shutdown stops watching and waits, no longer than ctx, until the next
// consumers have the last records.
func (w *watcher) shutdown(ctx context.Context) error {
	var err error
	w.stop.Do(func() {
		w.once.Do(func() { w.startErr = errors.New("start after shutdown") })
		defer w.telemetry.Shutdown()
		w.giveUp()
		close(w.closing)
		err = errors.Join(w.closeSource(), record.Wait(ctx, "the next consumer holds the last records", func() {
			w.workers.Wait()
			close(w.out.batches)
			w.delivery.Wait()
		}))
	})
	return err
}
