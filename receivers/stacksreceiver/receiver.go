package stacksreceiver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/learned"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/stacksreceiver/internal/metadata"
)

// source reads processes: this machine, or a test's fake.
type source interface {
	probereceiver.Source
	// Prepare opens what a look at a process needs, and says whether it runs Python.
	Prepare(pid uint32) (python bool, err error)
	// Trains reports whether it has libraries of a training mapped.
	Trains(pid uint32) (bool, error)
	// LookAt is what the kernel says of the main threads of processes, in their order. Of a process whose
	// main thread waits for one that does its work, that is meant, here and in what follows.
	LookAt(pids []uint32) ([]procfs.ThreadLook, error)
	Place(pid uint32) (pystack.Place, error)
	Stack(pid uint32, startNS uint64) (*stacks.Process, error)
	// Slept reports whether the main thread has not run since it was seen asleep.
	Slept(pid uint32, since procfs.ThreadStatus) bool
	// OnCPU is how long the main thread has run since it began.
	OnCPU(pid uint32) (time.Duration, error)
	// Usage is what a process has taken since it began.
	Usage(pid uint32) (usage, error)
	// Class is what a main thread that runs would wait for, by its frames of Python.
	Class(pid uint32) (waitclass.Class, error)
	// Does looks into processes that rest. What begins at a process of roots is another rank.
	Does(rest []identity.Process, roots map[uint32]bool) map[uint32]*activity.Process
	// Stopper is who stopped a process, or the child that holds it up.
	Stopper(p *activity.Process, resolver identity.Resolver) identity.Signal
	// Mount is the file system that the call of a process is about.
	Mount(pid uint32) (procfs.Mount, bool)
	// Meets says for which TCP socket the main thread of a process waits.
	Meets(pid uint32) activity.Meeting
	Release(pid uint32)
}

// stacksReceiver looks at ranks in one goroutine, which makes records, too.
type stacksReceiver struct {
	config    *Config
	settings  receiver.Settings
	telemetry *metadata.TelemetryBuilder
	convert   *converter
	out       *outbox.Outbox[plog.Logs]
	ticks     probereceiver.Ticks
	looked    func()
	longest   time.Duration // that stacks are taken for in one look
	resolver  identity.Resolver
	followed  atomic.Int64
	learned   *learned.Memory[memory]
	overLimit atomic.Uint64 // records that were not made, for their domain has made many
}

func build(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (*stacksReceiver, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	out, err := outbox.NewLogs(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: telemetry.ReceiverStacksRecordsDropped})
	if err != nil {
		return nil, err
	}
	r := &stacksReceiver{
		config: config, settings: settings, telemetry: telemetry, out: out, ticks: around.ticks, looked: around.looked, longest: around.longest,
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), record.ThisHost(), config.MaxFrames),
		learned: learned.New[memory](settings, config.Storage),
	}
	return r, probereceiver.Observe(telemetry.RegisterReceiverStacksProcessesCallback, r.followed.Load)
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (receiver.Logs, error) {
	r, err := build(settings, config, next, around)
	if err != nil {
		return nil, err
	}
	telemetry := r.telemetry
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(record.ThisHost())
	return probereceiver.New(probereceiver.Parts[source]{
		Probe: "stack reader", Missing: "stacks of ranks", ErrorMode: config.ErrorMode, Identity: config.Identity, NeedsIdentity: true,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: func() { r.learned.Close(); telemetry.Shutdown() },
		Metrics: probereceiver.Metrics{Up: telemetry.RegisterReceiverStacksProbeUpCallback, Failures: telemetry.RegisterReceiverStacksProbeFailuresCallback},
		Keep:    r.learned.Open,
		Prepare: func(resolver identity.Resolver) { r.resolver = resolver },
		Open:    around.open,
		Use:     r.use,
		GaveUp:  func() uint64 { return r.out.Lost() + r.overLimit.Load() },
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			r.out.Put(losses.Emit())
		},
	}).Receiver(r.out), nil
}

// use looks at the ranks at each tick, and as soon as one ends, until the source is closed or
// broken.
func (r *stacksReceiver) use(ctx context.Context, s source) error {
	w := newWatch(r, s)
	defer w.end()
	defer func() { r.learned.Save(r.resolver, w.memory) }()
	ended, cancel := probereceiver.WatchExits(r.resolver, maxEnded, func(e *identity.Exit) bool {
		return e.Failed() && e.IsRank() && !e.Inherited && !e.Helper && !e.Late
	}, func() {}) // others of a job that is ending
	defer cancel()
	ticks, stop := r.ticks(r.config.ScanInterval)
	defer stop()
	var judge probereceiver.Scans
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended.Some():
			for _, e := range ended.Take() {
				w.peerEnded(ctx, jobOf(&e.Process))
			}
			continue
		case now := <-ticks:
			err := w.look(ctx, now)
			if w.news { // what is told has to be known after a SIGKILL
				r.learned.Save(r.resolver, w.memory)
				w.news = false
			} else {
				r.learned.Note(now, r.resolver, w.memory)
			}
			r.looked()
			if err := judge.Judge(err); err != nil {
				return err
			}
		}
	}
}

// maxEnded is how many ends may wait for the next look, shared by domain.
const maxEnded = 64

// job is what the ranks of one job have in common.
type job struct{ domain, id string }

func jobOf(p *identity.Process) job {
	if p.JobID != "" {
		return job{p.Domain, p.JobID}
	}
	return job{p.Domain, p.Rendezvous}
}

func gone(err error) bool { return errors.Is(err, procfs.ErrGone) }
