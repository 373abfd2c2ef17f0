package fusefaultreceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// source says what is in flight: the fusefault probe, or a test's fake.
type source interface {
	Snapshot(*fusefault.Snapshot) error
	Report() probe.Report
	Close() error
}

// maxFailures is how many scans in a row may fail before the probe is given up.
const maxFailures = 10

// watcher is the receiver of one component id: one goroutine scans what is in
// flight and hands stalls and metrics to the exits that are open.
type watcher struct {
	config    *Config
	settings  receiver.Settings
	around    surroundings
	telemetry *metadata.TelemetryBuilder
	report    *receiverhelper.ObsReport
	convert   *converter
	measure   *measurer

	mu      sync.Mutex // guards what follows until the goroutine runs, and exits always
	started bool
	failed  error // why there is no probe
	exits   []*exit

	source  source  // nil where the probe could not be opened
	machine machine // likewise
	tracker *tracker
	working atomic.Bool
	missed  atomic.Int64
	stop    chan struct{}
	scanner sync.WaitGroup
}

func newWatcher(settings receiver.Settings, config *Config, around surroundings) (*watcher, error) {
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
	host := record.ThisHost()
	return &watcher{
		config: config, settings: settings, around: around, telemetry: telemetry, report: report,
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), host),
		measure: newMeasurer(metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings), host),
		stop:    make(chan struct{}),
	}, nil
}

// start opens the probe with the first signal and an exit with each.
func (w *watcher) start(host component.Host, e *exit) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.started:
		if err := w.begin(host); err != nil {
			return err
		}
		w.started = true
	case w.failed != nil: // each signal has its status
		componentstatus.ReportStatus(host, componentstatus.NewPermanentErrorEvent(w.failed))
	}
	e.open()
	w.exits = append(w.exits, e)
	return nil
}

func (w *watcher) begin(host component.Host) error {
	resolver, err := record.Resolver(host, w.config.Identity)
	if err != nil {
		return err
	}
	if err := w.openSource(host); err != nil {
		return err
	}
	if err := w.observeSource(); err != nil {
		return errors.Join(err, w.closeSource())
	}
	if w.source == nil {
		return nil
	}
	w.measure.machine = w.machine
	w.tracker = newTracker(w.config, look{machine: w.machine, resolver: resolver})
	scans, stopScans := w.around.ticks(w.config.ScanInterval)
	collections, stopCollections := w.around.ticks(w.config.CollectionInterval)
	w.scanner.Go(func() {
		defer stopScans()
		defer stopCollections()
		w.watch(host, scans, collections)
	})
	return nil
}

// missing is what there is not without the probe.
const missing = "FUSE stalls"

// openSource opens the probe. In mode ignore a probe that does not open leaves
// the receiver without one.
func (w *watcher) openSource(host component.Host) error {
	var err error
	w.source, w.machine, err = w.around.open(w.config)
	if err == nil {
		w.working.Store(true)
		return nil
	}
	w.source = nil
	w.failed = fmt.Errorf("open the FUSE probe: %w", err)
	return w.config.ErrorMode.NotOpened(host, w.settings.Logger, missing, w.failed)
}

func (w *watcher) closeSource() error {
	if w.source == nil {
		return nil
	}
	return w.source.Close()
}

// observeSource makes the probe's own counters metrics of this receiver.
func (w *watcher) observeSource() error {
	rung, stuck := func() string { return "" }, func() uint64 { return 0 }
	if w.source != nil { // where FUSE is a module, the probe attaches when it comes
		rung, stuck = func() string { return w.source.Report().Rung }, w.machine.StuckReads
	}
	return errors.Join(
		w.telemetry.RegisterReceiverFusefaultProbeUpCallback(func(_ context.Context, o metric.Int64Observer) error {
			up := int64(0)
			if w.working.Load() {
				up = 1
			}
			o.Observe(up, metric.WithAttributes(attribute.String("rung", rung())))
			return nil
		}),
		w.telemetry.RegisterReceiverFusefaultProbeMissedCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(w.missed.Load())
			return nil
		}),
		w.telemetry.RegisterReceiverFusefaultStuckReadsCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(stuck()))
			return nil
		}),
	)
}

// watch scans until it is stopped or the probe is broken.
func (w *watcher) watch(host component.Host, scans, collections <-chan time.Time) {
	var snapshot fusefault.Snapshot
	failures := 0
	for {
		select {
		case <-w.stop:
			return
		case <-collections:
			w.each(func(e *exit) { e.use(e.collect) })
		case <-scans:
			err := w.source.Snapshot(&snapshot)
			switch {
			case err == nil:
				failures = 0
				w.scanned(&snapshot)
			case errors.Is(err, probe.ErrClosed):
				return
			default:
				w.telemetry.ReceiverFusefaultScansFailed.Add(context.Background(), 1)
				if failures++; failures == maxFailures {
					w.fail(host, fmt.Errorf("read the FUSE probe: %w", err))
					return
				}
			}
		}
	}
}

func (w *watcher) scanned(s *fusefault.Snapshot) {
	w.missed.Store(int64(s.Missed))
	reports := w.tracker.observe(s)
	for i := range reports {
		if reports[i].first {
			w.telemetry.ReceiverFusefaultStalls.Add(context.Background(), 1)
		}
	}
	if w.tracker.dropped > 0 {
		w.telemetry.ReceiverFusefaultMountsDropped.Add(context.Background(), int64(w.tracker.dropped))
	}
	if len(reports) > 0 {
		w.each(func(e *exit) { e.use(func(ctx context.Context) { e.scanned(ctx, reports) }) })
	}
}

// each uses the exits that there are.
func (w *watcher) each(use func(*exit)) {
	w.mu.Lock()
	exits := append([]*exit(nil), w.exits...)
	w.mu.Unlock()
	for _, e := range exits {
		use(e)
	}
}

// fail reports a probe that stopped working while the receiver runs.
func (w *watcher) fail(host component.Host, err error) {
	w.working.Store(false)
	w.config.ErrorMode.Stopped(host, w.settings.Logger, missing, componentstatus.NewPermanentErrorEvent(err))
}

// shutdown ends the scans and closes the probe, after the last exit was closed.
func (w *watcher) shutdown(ctx context.Context) error {
	defer w.telemetry.Shutdown()
	close(w.stop)
	return errors.Join(w.closeSource(), record.Wait(ctx, "a scan goes on", w.scanner.Wait))
}
