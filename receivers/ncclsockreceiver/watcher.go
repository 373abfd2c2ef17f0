package ncclsockreceiver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/learned"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/internal/silence"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// source is what tells of sockets: the ncclsock probe, or a test's fake.
type source interface {
	probereceiver.Source
	Snapshot(owners []uint32, s *ncclsock.Snapshot) error
	ReadChange(*ncclsock.Change) error
}

// pendingChanges is how many changes may wait for the next look at them beside those in the ring, and pendingExits how many ends of
// processes, shared by domain.
const (
	pendingChanges = 256
	pendingExits   = 256
)

// mostChanges are taken at once: more than wait in the ring.
const mostChanges = 8192

// watcher takes snapshots and tells what they come to. One goroutine owns the
// tracker, another reads changes.
type watcher struct {
	config    *Config
	logger    *zap.Logger
	ticks     probereceiver.Ticks
	telemetry *metadata.TelemetryBuilder
	convert   *converter
	resolver  identity.Resolver
	life      *probereceiver.Life[source]
	logs      *outbox.Outbox[plog.Logs]       // nil without that signal
	metrics   *outbox.Outbox[pmetric.Metrics] // nil without that signal
	counters  atomic.Pointer[stall.Counters]
	over      atomic.Uint64 // sockets that the probe left out
	lost      atomic.Uint64 // changes there was no room for

	unranked *unranked
	learned  *learned.Memory[stall.Memory]

	// Only the goroutine of watch uses these.
	tracker    *stall.Tracker
	proc       *activity.Reader
	interfaces interfaces
	snapshot   ncclsock.Snapshot
	reported   time.Time
}

func newWatcher(settings receiver.Settings, config *Config, around surroundings) (*watcher, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	proc := procfs.Open("")
	logs := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	metrics := metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings)
	w := &watcher{
		config: config, logger: settings.Logger, ticks: around.ticks, telemetry: telemetry,
		convert: newConverter(logs, metrics, record.ThisHost()),
		tracker: stall.New(config.options()), proc: activity.New(proc), interfaces: interfaces{find: proc.Interface},
		unranked: newUnranked(config, settings.Logger, around.collective), learned: learned.New[stall.Memory](settings, config.Storage),
	}
	w.counters.Store(&stall.Counters{})
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(record.ThisHost())
	w.life = probereceiver.New(probereceiver.Parts[source]{
		Probe: "socket probe", Missing: "socket stalls", ErrorMode: config.ErrorMode, Identity: config.Identity, NeedsIdentity: true,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: func() { w.learned.Close(); telemetry.Shutdown() },
		Metrics: probereceiver.Metrics{
			Up: telemetry.RegisterReceiverNcclsockProbeUpCallback, Dropped: telemetry.RegisterReceiverNcclsockProbeDroppedCallback,
			Invalid: telemetry.RegisterReceiverNcclsockProbeInvalidCallback, Failures: telemetry.RegisterReceiverNcclsockProbeFailuresCallback,
		},
		Keep:    w.recall,
		Prepare: func(resolver identity.Resolver) { w.resolver = resolver },
		Open:    func() (source, error) { return around.open(config) },
		Use:     w.use,
		GaveUp:  func() uint64 { return w.logs.Lost() },
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			w.logs.Put(losses.Emit())
		},
	})
	return w, w.observe()
}

// observe makes the tracker's counters metrics.
func (w *watcher) observe() error {
	count := func(register probereceiver.Register, value func(*stall.Counters) uint64) error {
		return probereceiver.Observe(register, func() int64 { return int64(value(w.counters.Load())) })
	}
	t := w.telemetry
	return errors.Join(
		probereceiver.Observe(t.RegisterReceiverNcclsockUnrankedCallback, w.unranked.count.Load),
		count(t.RegisterReceiverNcclsockRanksCallback, func(c *stall.Counters) uint64 { return uint64(c.Ranks) }),
		count(t.RegisterReceiverNcclsockSocketsCallback, func(c *stall.Counters) uint64 { return uint64(c.Sockets) }),
		count(t.RegisterReceiverNcclsockStallsCallback, func(c *stall.Counters) uint64 { return uint64(c.Open) }),
		count(t.RegisterReceiverNcclsockStallsDroppedCallback, func(c *stall.Counters) uint64 { return c.StallsDropped }),
		count(t.RegisterReceiverNcclsockPeersFoldedCallback, func(c *stall.Counters) uint64 { return c.PeersFolded }),
		count(t.RegisterReceiverNcclsockSocketsSkippedCallback, func(c *stall.Counters) uint64 { return c.SocketsSkipped + w.over.Load() }),
		count(t.RegisterReceiverNcclsockChangesDroppedCallback, func(c *stall.Counters) uint64 { return c.ChangesDropped + w.lost.Load() }),
	)
}

// recall goes on with what was known of jobs before this start.
func (w *watcher) recall(ctx context.Context, host component.Host) error {
	if err := w.learned.Open(ctx, host); err != nil {
		return err
	}
	w.tracker.Recall(w.learned.All(), time.Now())
	return nil
}

// use watches until the probe is closed or broken, and closes it, for the reader of
// changes waits in it.
func (w *watcher) use(ctx context.Context, s source) error {
	changes, done := make(chan *ncclsock.Change, pendingChanges), make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { w.readChanges(s, changes, done) })
	err := w.watch(ctx, s, changes)
	close(done)
	err = errors.Join(err, s.Close())
	reader.Wait()
	w.proc.Wait()
	silence.Tell(silence.Sockets, nil)
	return err
}

// readChanges passes changes on until the source is closed. Without them
// snapshots still tell all but refused connections. Those that find no room wait in the ring, which is shared
// between those whose sockets they are.
func (w *watcher) readChanges(s source, changes chan<- *ncclsock.Change, done <-chan struct{}) {
	err := probereceiver.Events(s.ReadChange, func(c *ncclsock.Change) {
		select {
		case changes <- c:
		case <-done: // nobody takes them any more
		}
	})
	if !errors.Is(err, probe.ErrClosed) {
		w.logger.Error("no more changes of sockets: refused connections go unseen", zap.Error(err))
	}
}

// watch takes a snapshot at each tick until the probe is closed or broken.
func (w *watcher) watch(ctx context.Context, s source, changes <-chan *ncclsock.Change) error {
	ticks, stop := w.ticks(w.config.SnapshotInterval)
	defer stop()
	exits, cancel := probereceiver.WatchExits(w.resolver, pendingExits, nil, func() { w.lost.Add(1) })
	defer cancel()
	defer func() { w.learned.Save(w.resolver, w.tracker.Memory) }()
	w.tracker.Missed()
	var outcomes probereceiver.Scans
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-changes:
			w.tracker.Note(c)
		case <-exits.Some():
			all := exits.Take()
			w.note(changes)
			for i := range all {
				w.tracker.Ended(&all[i])
			}
		case <-ticks:
			w.note(changes)
			if err := outcomes.Judge(w.look(ctx, s)); err != nil {
				return err
			}
		}
		w.tellFailed()
	}
}

// tellFailed tells at once of those that failed, whether they had lost a connection, and who had closed it: a verdict may wait for that.
func (w *watcher) tellFailed() {
	kept := w.tracker.Kept()
	lost, cut := w.tracker.Lost()
	if len(kept)+len(lost)+len(cut) > 0 && w.logs.Open() {
		if logs := w.convert.failed(kept, lost, cut, time.Now()); logs != nil {
			w.logs.Put(*logs)
		}
	}
}

// note takes the changes that wait. They come before what is seen later: a process closes its connections before it ends, and a
// snapshot forgets a socket that it lacks. Who makes some without end does not keep it from what is next.
func (w *watcher) note(changes <-chan *ncclsock.Change) {
	for range mostChanges {
		select {
		case c := <-changes:
			w.tracker.Note(c)
		default:
			return
		}
	}
}
