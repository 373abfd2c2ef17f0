package ncclcallreceiver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
	"github.com/tracecoreai/tracecore/receivers/internal/learned"
	"github.com/tracecoreai/tracecore/receivers/internal/outbox"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/internal/silence"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver/internal/metadata"
)

// source delivers calls: the ncclcall probe, or a test's fake.
type source interface {
	probereceiver.Source
	Watch([]ncclcall.Process) (ncclcall.Watched, error)
	Scan() (*ncclcall.Scan, error)
	Unseen([]ncclcall.Process) []ncclcall.Unseen
	Read(*ncclcall.Event) error
}

// ncclCall looks for libraries in one goroutine, reads events and scans in two others,
// and tells in a fourth what they come to.
type ncclCall struct {
	config     *Config
	settings   receiver.Settings
	telemetry  *metadata.TelemetryBuilder
	convert    *converter
	out        *outbox.Outbox[plog.Logs]
	standstill *standstill
	proc       *activity.Reader
	ticks      probereceiver.Ticks
	resolver   identity.Resolver
	libraries  *probereceiver.Libraries
	candidates atomic.Pointer[map[uint32]identity.Process] // that may be ranks, at the last look
	events     chan *ncclcall.Event
	scans      chan *ncclcall.Scan
	blinds     chan []sight
	unseen     *unseen
	learned    *learned.Memory[activity.Memory]

	communicators, unknown, refused, limit, limitedProcesses atomic.Int64 // of the last scan
	unknownLibraries, unseenProcesses                        atomic.Int64 // of the last look
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (receiver.Logs, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	out, err := outbox.NewLogs(next, outbox.Settings{Receiver: settings, Transport: "kernel", Dropped: telemetry.ReceiverNcclcallRecordsDropped})
	if err != nil {
		return nil, err
	}
	r := &ncclCall{
		config: config, settings: settings, telemetry: telemetry, out: out, standstill: newStandstill(config.Patience, config.ArrivalInterval), ticks: around.ticks,
		convert: newConverter(metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), record.ThisHost()),
		events:  make(chan *ncclcall.Event), scans: make(chan *ncclcall.Scan), blinds: make(chan []sight),
		unseen: newUnseen(), learned: learned.New[activity.Memory](settings, config.Storage),
	}
	r.proc = activity.New(procfs.Open(""))
	r.standstill.does, r.standstill.meets = r.does, r.meets
	r.libraries = &probereceiver.Libraries{
		Ranks: r.watched, Ticks: around.ticks, Interval: config.LookInterval, Logger: settings.Logger,
		Unseen: "calls of NCCL of some processes go unseen, or without their rank", Skipped: telemetry.ReceiverNcclcallProcessesSkipped,
	}
	if err := r.observe(); err != nil {
		return nil, err
	}
	losses := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	losses.SetHost(record.ThisHost())
	return probereceiver.New(probereceiver.Parts[source]{
		Probe: "NCCL call probe", Missing: "calls of NCCL", ErrorMode: config.ErrorMode, Identity: config.Identity, NeedsIdentity: true,
		Logger: settings.Logger, Ticks: around.ticks, Shutdown: func() { r.learned.Close(); telemetry.Shutdown() },
		Metrics: probereceiver.Metrics{
			Up: telemetry.RegisterReceiverNcclcallProbeUpCallback, Dropped: telemetry.RegisterReceiverNcclcallProbeDroppedCallback,
			Invalid: telemetry.RegisterReceiverNcclcallProbeInvalidCallback, Failures: telemetry.RegisterReceiverNcclcallProbeFailuresCallback,
		},
		Keep:    r.learned.Open,
		Prepare: func(resolver identity.Resolver) { r.resolver = resolver },
		Open:    func() (source, error) { return around.open(config) },
		Use:     r.use,
		Work:    r.work,
		GaveUp:  out.Lost,
		Lost: func(l *probereceiver.Lost) {
			l.Write(losses.TracecoreLost(l.Head()).LostAttributes, config.Events.ByName())
			out.Put(losses.Emit())
		},
	}).Receiver(out), nil
}

// observe makes what came out of the last look and the last scan metrics.
func (r *ncclCall) observe() error {
	t := r.telemetry
	return errors.Join(
		r.libraries.Observe(t.RegisterReceiverNcclcallLibrariesCallback, t.RegisterReceiverNcclcallLibrariesFailedCallback, t.RegisterReceiverNcclcallLibrariesSkippedCallback),
		probereceiver.Observe(t.RegisterReceiverNcclcallLibrariesUnknownCallback, r.unknownLibraries.Load),
		probereceiver.Observe(t.RegisterReceiverNcclcallCommunicatorsCallback, r.communicators.Load),
		probereceiver.Observe(t.RegisterReceiverNcclcallCommunicatorsUnidentifiedCallback, r.unknown.Load),
		probereceiver.Observe(t.RegisterReceiverNcclcallCallsRefusedCallback, r.refused.Load),
		probereceiver.Observe(t.RegisterReceiverNcclcallLimitCallback, r.limit.Load),
		probereceiver.Observe(t.RegisterReceiverNcclcallProcessesLimitedCallback, r.limitedProcesses.Load),
		probereceiver.Observe(t.RegisterReceiverNcclcallProcessesUnseenCallback, r.unseenProcesses.Load),
	)
}

// use looks for libraries, scans and reads events until the probe is closed or broken.
func (r *ncclCall) use(ctx context.Context, s source) error {
	ctx, stop := context.WithCancel(ctx)
	search := search{source: s, r: r, seen: make(chan struct{}, 1)}
	var beside sync.WaitGroup
	var broken error
	beside.Go(func() { search.askUnseen(ctx) })
	beside.Go(func() {
		if broken = r.scan(ctx, s); broken != nil {
			_ = s.Close() // so that the reader of events returns
		}
	})
	err := probereceiver.Watch(ctx, r.libraries, search, func(e *ncclcall.Event) { r.events <- e })
	stop()
	beside.Wait()
	r.proc.Wait()
	r.unknownLibraries.Store(0)
	if broken != nil {
		return broken
	}
	return err
}

// work tells of what is read until no more comes.
func (r *ncclCall) work(ctx context.Context, done <-chan struct{}) {
	if r.resolver == nil {
		return // nobody to watch
	}
	defer func() { r.learned.Save(r.resolver, r.standstill.memory) }()
	defer silence.Tell(silence.Calls, nil)
	for {
		select {
		case <-done:
			return
		case event := <-r.events:
			r.take(ctx, event)
		case scan := <-r.scans:
			r.judge(ctx, scan)
		case found := <-r.blinds:
			r.tellUnseen(found)
		}
	}
}

func (r *ncclCall) take(ctx context.Context, e *ncclcall.Event) {
	l := r.standstill.ended(e)
	r.count(ctx, &l)
	makes := e.Kind.Init() || e.Kind == ncclcall.Split || e.Kind == ncclcall.Shrink || e.Kind == ncclcall.Grow
	if !makes && e.Kind != ncclcall.Device {
		return
	}
	by := r.known(e.PID, e.Time)
	if by != nil && by.Ended { // what has ended calls nothing: another has its number
		by = nil
	}
	if by != nil {
		l = r.standstill.begin(e, by)
		r.tell(&l, time.Now())
		r.takeDevice(e, by)
	}
	if makes && r.config.Events.NcclCallInit.Enabled {
		r.out.Put(r.convert.init(e, by, time.Now()))
	}
}

func (r *ncclCall) judge(ctx context.Context, scan *ncclcall.Scan) {
	l := r.standstill.look(scan)
	r.count(ctx, &l)
	r.communicators.Store(int64(len(scan.Communicators)))
	r.unknown.Store(int64(l.unknown))
	r.refused.Store(int64(scan.Refused))
	r.limited(scan, &l)
	r.seat(scan, &l)
	now := time.Now()
	r.tell(&l, now)
	r.ends(scan.Time, now)
	silence.Tell(silence.Calls, r.standstill.silent())
	r.learned.Note(scan.Time, r.resolver, r.standstill.memory)
}

// limited tells of processes of which other calls are counted than before.
func (r *ncclCall) limited(scan *ncclcall.Scan, l *look) {
	worst := ncclcall.Unlimited
	for _, limit := range scan.Limited {
		worst = max(worst, limit)
	}
	r.limit.Store(int64(worst))
	r.limitedProcesses.Store(int64(len(scan.Limited)))
	if !r.config.Events.NcclCallLimited.Enabled {
		return
	}
	now := time.Now()
	for _, x := range l.limited {
		r.out.Put(r.convert.limited(x, r.known(x.pid, scan.Time), scan.Time, now))
	}
}

// ends tells of processes that have ended while they made a communicator.
func (r *ncclCall) ends(at, now time.Time) {
	if len(r.standstill.inits) == 0 {
		return
	}
	living := r.living()
	for _, born := range r.standstill.initializing() {
		if _, lives := living[born]; !lives {
			l := r.standstill.exited(born, at)
			r.tell(&l, now)
		}
	}
}

// living are the processes of ranks, and those that may be ranks.
func (r *ncclCall) living() map[identity.Born]identity.Process {
	all := map[identity.Born]identity.Process{}
	for _, p := range slices.Concat(r.resolver.Ranks(), r.unranked()) {
		all[p.Born()] = p
	}
	return all
}

// tell makes records of what has changed.
func (r *ncclCall) tell(l *look, now time.Time) {
	e := &r.config.Events
	for i := range l.changes {
		c := &l.changes[i]
		if c.what == stopped || c.what == moving {
			gpuask.Stands(c.pid, c.what == stopped)
		}
		enabled := map[what]bool{
			stopped: e.NcclCallStopped.Enabled, moving: e.NcclCallMoving.Enabled, ended: e.NcclCallEnd.Enabled, doing: e.NcclCallDoing.Enabled,
			waiting: e.NcclCallInitWaiting.Enabled, done: e.NcclCallInitDone.Enabled, arrival: e.NcclCallArrivals.Enabled,
		}
		if enabled[c.what] {
			r.stopper(c)
			r.out.Put(r.convert.change(c, r.of(c), now))
		}
	}
}

// stopper says by which signal the process, or the child that holds it up, was stopped, where
// that is known.
func (r *ncclCall) stopper(c *change) {
	if c.process != nil {
		c.signal = r.proc.Stopper(&c.process.Now, r.resolver)
	}
}

// does looks into these processes. One that the identity extension does not know, or whose
// number another has, is left out.
func (r *ncclCall) does(pids []uint32) map[uint32]*activity.Process {
	if len(pids) == 0 {
		return nil
	}
	known := r.resolver.Ranks()
	ranks, roots, kin := map[uint32]identity.Process{}, map[uint32]bool{}, activity.Kin(known)
	for _, p := range known {
		ranks[p.PID], roots[p.PID] = p, !p.Inherited
	}
	all := make(map[uint32]*activity.Process, len(pids))
	r.proc.Begin()
	for _, pid := range pids {
		p, is := ranks[pid]
		if !is {
			continue
		}
		does := r.proc.Read(p, false)
		does.NCCL = true // it calls it
		r.proc.Inspect(&does, func(pid uint32) bool { return roots[pid] }, kin[p.RankPID]...)
		all[pid] = &does
	}
	r.proc.Keep(func(pid uint32) bool { _, is := ranks[pid]; return is })
	return all
}

// known is what the identity extension says of a process, nil when it says nothing.
func (r *ncclCall) known(pid uint32, at time.Time) *identity.Process {
	if process, found := r.resolver.Lookup(pid, 0, at); found {
		return &process
	}
	return nil
}

// of is whose change it is, as it is known now: another process may have the number of one that has
// ended.
func (r *ncclCall) of(c *change) *identity.Process {
	known := r.known(c.pid, c.at)
	if c.by != nil && (known == nil || known.Born() != c.by.Born()) {
		return c.by
	}
	return known
}

func (r *ncclCall) count(ctx context.Context, l *look) {
	for operation, calls := range l.calls {
		if calls > 0 {
			name := ncclcall.Operation(operation).String()
			r.telemetry.ReceiverNcclcallCalls.Add(ctx, int64(calls), metric.WithAttributes(attribute.String("operation", name)))
		}
	}
}
