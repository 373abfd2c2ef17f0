package fusefaultreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// source says what is in flight: the fusefault probe, or a test's fake.
type source interface {
	probereceiver.Source
	Snapshot(*fusefault.Snapshot) error
}

// watcher is the receiver of one component id: one goroutine scans what is in flight
// and makes records of stalls, and metrics.
type watcher struct {
	config    *Config
	ticks     probereceiver.Ticks
	telemetry *metadata.TelemetryBuilder
	convert   *converter
	measure   *measurer
	machine   machine
	resolver  identity.Resolver // nil without the extension
	life      *probereceiver.Life[source]
	logs      *outbox.Outbox[plog.Logs]       // nil without that signal
	metrics   *outbox.Outbox[pmetric.Metrics] // nil without that signal
}

func newWatcher(settings receiver.Settings, config *Config, around surroundings) (*watcher, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	host, machine := record.ThisHost(), around.machine(config)
	w := &watcher{
		config: config, ticks: around.ticks, telemetry: telemetry, machine: machine,
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), host),
		measure: newMeasurer(metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings), host, machine),
	}
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(host)
	w.life = probereceiver.New(probereceiver.Parts[source]{
		Probe: "FUSE probe", Missing: "FUSE stalls", ErrorMode: config.ErrorMode, Identity: config.Identity,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: telemetry.Shutdown,
		Metrics: probereceiver.Metrics{
			Up: telemetry.RegisterReceiverFusefaultProbeUpCallback, Dropped: telemetry.RegisterReceiverFusefaultProbeMissedCallback,
			Failures: telemetry.RegisterReceiverFusefaultProbeFailuresCallback,
		},
		Prepare: func(resolver identity.Resolver) { w.resolver = resolver },
		Open:    func() (source, error) { return around.open(config) },
		Use:     w.watch,
		GaveUp:  func() uint64 { return w.logs.Lost() },
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			w.logs.Put(losses.Emit())
		},
	})
	stuck := func() int64 { return int64(machine.StuckReads()) }
	return w, probereceiver.Observe(telemetry.RegisterReceiverFusefaultStuckReadsCallback, stuck)
}

// watch scans until the probe is closed or broken. Each probe has a tracker of its
// own: what began before it was opened it does not know, and cannot see end.
func (w *watcher) watch(ctx context.Context, s source) error {
	scans, stopScans := w.ticks(w.config.ScanInterval)
	defer stopScans()
	collections, stopCollections := w.ticks(w.config.CollectionInterval)
	defer stopCollections()
	tracker := newTracker(w.config, look{machine: w.machine, resolver: w.resolver})
	var snapshot fusefault.Snapshot
	var outcomes probereceiver.Scans
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-collections:
			if w.metrics.Open() {
				w.metrics.Put(w.measure.measure(tracker.mounts, tracker.before))
			}
		case <-scans:
			err := s.Snapshot(&snapshot)
			if err == nil {
				w.tell(tracker, tracker.observe(&snapshot))
			} else {
				w.telemetry.ReceiverFusefaultScansFailed.Add(ctx, 1)
			}
			if err := outcomes.Judge(err); err != nil {
				return err
			}
		}
	}
}

// tell makes records of reports.
func (w *watcher) tell(t *tracker, reports []report) {
	ctx, records, now := context.Background(), 0, time.Now()
	w.telemetry.ReceiverFusefaultMountsDropped.Add(ctx, int64(t.dropped))
	for i := range reports {
		r := &reports[i]
		if r.first {
			w.telemetry.ReceiverFusefaultStalls.Add(ctx, 1)
		}
		if enabled := w.config.Events; w.logs.Open() && (r.end == "" && enabled.FuseStall.Enabled || r.end != "" && enabled.FuseStallEnd.Enabled) {
			w.convert.add(r, now)
			records++
		}
	}
	if records > 0 {
		w.logs.Put(w.convert.emit())
	}
}
