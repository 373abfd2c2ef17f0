//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

//go:generate go tool bpf2go -go-package identity -tags linux -target bpfel -type sent -type owner bpf identity.bpf.c

// drain is how often the ring is read when nothing in it is urgent; catchingUp is
// how long a Lookup waits for what is in it.
const (
	drain      = 100 * time.Millisecond
	catchingUp = 50 * time.Millisecond
)

// maintenance is how often the Tracker forgets what is too old and looks whether
// the ring has dropped anything; healing is how far apart it then reads all of
// /proc, at least.
const (
	maintenance = time.Second
	healing     = 5 * time.Second
)

// Tracker knows the processes of this host. It implements Resolver; all methods
// are safe for concurrent use.
type Tracker struct {
	opts   Options
	source source
	proc   *reader
	report probe.Report
	exits  *exits

	host string // what this machine is called

	mu       sync.RWMutex // guards table and its records, launches, asked, unread, currents and memory
	table    *table
	launches *launches
	asked    askedEnds
	unread   unread
	currents currents
	memory   *memory // of living ranks, for the next process; nil where nothing is pinned

	events, invalid, execs, exitCount, badValues, scans, drops atomic.Uint64

	// Only the goroutine of run uses these, and Open before it.
	healing     time.Duration // see the constant
	healedDrops uint64
	lastScan    time.Time
	behind      waiting[event] // for the end of their first process
	firstEnding time.Duration  // see the constant
	atOnce      uint64         // boot clock: no look waits for no round before
	late        bool           // what is handled happened while nobody looked
	since       uint64         // boot clock: what was before has been handled, as late

	speakers speakers

	drained atomic.Uint64 // boot clock: events before it were handled
	waiting struct {
		sync.Mutex // guards the fields
		readers    []chan struct{}
		second     uint64 // boot clock: since when count is
		count      int
	}

	closing chan struct{}
	done    chan struct{}
	once    sync.Once
	err     error
}

var (
	_ Resolver = (*Tracker)(nil)
	_ Endings  = (*Tracker)(nil)
	_ Failing  = (*Tracker)(nil)
)

// source delivers events: the kernel's ring does, and in tests a list.
type source interface {
	// next waits for an event. It returns os.ErrDeadlineExceeded at the deadline
	// when there is none, errFlushed after flush, os.ErrClosed after close, and
	// errInvalid for a record that is none.
	next(e *event, deadline time.Time) error
	// flush lets next return; false when no event can be waiting.
	flush() bool
	dropped() uint64
	close() error
	// tellsExits is false when ends of processes must be found in /proc.
	tellsExits() bool
	// signalsTo returns the last signals to a process that lives, nil for none.
	signalsTo(pid uint32, startNS uint64) *signals
	// tidy forgets signals that explain no end any more, where there are many.
	tidy(now uint64, ended func(pid uint32, startNS uint64) bool)
	// unnoted is how many signals found no room.
	unnoted() uint64
}

var (
	errInvalid = errors.New("invalid record")
	errFlushed = errors.New("flushed")
	errMore    = errors.New("there are always more events")
)

// Open starts to watch processes, reads those that are already running, and
// returns when both is done. Without BPF it reads /proc again and again; only
// when that too is impossible there is an error. Report says what it came to.
func Open(opts Options) (*Tracker, error) {
	t, _, err := Try(opts)
	return t, err
}

// Try is Open that returns the report also when no rung works.
func Try(opts Options) (*Tracker, probe.Report, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, probe.Report{Probe: Name}, err
	}
	proc := newReader(opts.ProcRoot)
	source, report, err := ladder.Climb(Name, opts.Rung, rungs(proc))
	if err != nil {
		return nil, report, err
	}
	explain(&report, proc)
	t := newTracker(opts, source, proc, report)
	t.inherit()
	t.start()
	return t, report, nil
}

func newTracker(opts Options, source source, proc *reader, report probe.Report) *Tracker {
	host, _ := os.Hostname() // without it a loopback address is that of "": of one machine still
	t := &Tracker{
		opts: opts, source: source, proc: proc, report: report, healing: healing, firstEnding: firstEnding, host: host,
		exits: newExits(), table: newTable(opts.MaxProcesses, opts.Retention), unread: unread{}, currents: currents{of: map[uint32]*fairlru.Element[*current]{}},
		closing: make(chan struct{}), done: make(chan struct{}),
	}
	t.launches = newLaunches(t.tell, t.isAsked)
	t.behind.most, t.asked.most, t.asked.of = maxBehind, maxAsked, map[jobKey]int{}
	return t
}

// start reads /proc once, with the events waiting in the ring meanwhile, so that
// no process falls between the two.
func (t *Tracker) start() {
	t.scan()
	go t.exits.run()
	go t.run()
}

// Report says which rung is in use and why not a better one.
func (t *Tracker) Report() probe.Report { return t.report }

// Stats returns the counters every probe has; after Close, their last values.
func (t *Tracker) Stats() probe.Stats {
	select {
	case <-t.closing:
	default:
		t.drops.Store(max(t.drops.Load(), t.source.dropped()))
	}
	return probe.Stats{Events: t.events.Load(), Dropped: t.drops.Load(), Invalid: t.invalid.Load()}
}

// Counters returns the Tracker's own counters.
func (t *Tracker) Counters() Counters {
	t.mu.RLock()
	c := Counters{Processes: t.table.len(), Ranks: t.table.ranks(), Evicted: t.table.evicted + t.launches.evicted, Unremembered: t.memory.unkept()}
	t.mu.RUnlock()
	c.Execs, c.Exits, c.Scans = t.execs.Load(), t.exitCount.Load(), t.scans.Load()
	c.ExitsDropped, c.BadValues, c.SendersUnnoted = t.exits.dropped.Load(), t.badValues.Load(), t.source.unnoted()
	c.Truncated, c.Unreadable = t.proc.truncated.Load(), t.proc.unreadable.Load()
	return c
}

// Exits calls fn for each exit of a rank process, and of a descendant of one,
// until cancel is called; after cancel has returned fn is not called any more.
// The calls come one at a time, from one goroutine
// for all callbacks: fn must not block, and must call neither cancel nor Close.
// When the callbacks fall 4,096 exits behind, further ones are dropped and counted.
func (t *Tracker) Exits(fn func(Exit)) (cancel func()) { return t.exits.subscribe(fn) }

// Close stops watching, delivers the exits already seen and returns when both
// goroutines have ended. Closing twice is fine. Lookup goes on to answer from
// what is known.
func (t *Tracker) Close() error {
	t.once.Do(func() {
		t.drops.Store(max(t.drops.Load(), t.source.dropped()))
		close(t.closing)
		t.err = t.source.close()
		<-t.done
		t.onExits(t.behind.all())
		t.mu.Lock()
		t.launches.flush()
		t.flushAsked()
		t.memory = t.memory.close()
		t.mu.Unlock()
		t.exits.close()
	})
	return t.err
}

// run handles events, and between them what has to be done now and then.
func (t *Tracker) run() {
	defer close(t.done)
	due, looks := time.Now().Add(maintenance), time.Now().Add(whileYoung)
	for {
		began := bootNow()
		switch err := t.handleUntil(time.Now().Add(drain)); {
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.drained.Store(began)
		case errors.Is(err, errFlushed):
			t.answer()
		case errors.Is(err, errMore):
		default: // a ring that cannot be read: do not spin on it
			t.invalid.Add(1)
			t.pause(drain)
		}
		t.onExits(t.behind.due(bootNow())) // the end of their first process was lost
		t.tellAsked(bootNow())
		if now := time.Now(); !now.Before(looks) {
			t.lookAgain()
			looks = time.Now().Add(whileYoung)
		}
		if now := time.Now(); !now.Before(due) {
			t.maintain(now)
			due = time.Now().Add(maintenance)
		}
	}
}

// handleUntil handles events until there is none at the deadline, and returns why
// it ended: errMore when that does not happen for so long that maintenance is due.
func (t *Tracker) handleUntil(deadline time.Time) error {
	var e event
	for {
		err := t.source.next(&e, deadline)
		switch {
		case err == nil && e.timeNS < t.since: // an earlier process's ring had it, too
		case err == nil:
			t.handle(&e)
		case errors.Is(err, errInvalid):
			t.invalid.Add(1)
		default:
			return err
		}
		if time.Since(deadline) > maintenance {
			return errMore
		}
	}
}

func (t *Tracker) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.closing:
	}
}

func (t *Tracker) handle(e *event) {
	t.events.Add(1)
	switch e.kind {
	case kindExec:
		t.execs.Add(1)
		t.onExec(e)
	case kindExecNotice:
		t.execs.Add(1)
		t.learn(e.pid, maxAncestors, true)
	case kindExit:
		t.exitCount.Add(1)
		if t.waitsForFirst(e) {
			return
		}
		t.onExit(e)
		t.firstEnded(e.pid, e.startNS)
	}
}

// maintain forgets, and makes good what the ring has dropped.
func (t *Tracker) maintain(now time.Time) {
	t.askWork(bootNow())
	t.mu.Lock()
	t.table.expire(bootNow())
	t.launches.expire(bootNow())
	t.memory.prune(t.table)
	again := t.unread.due()
	t.mu.Unlock()
	for _, pid := range again {
		t.learn(pid, maxAncestors, true)
	}
	t.source.tidy(bootNow(), t.hasEnded)

	drops := t.source.dropped()
	t.drops.Store(max(t.drops.Load(), drops))
	since := now.Sub(t.lastScan)
	if drops > t.healedDrops && since >= t.healing || !t.source.tellsExits() && since >= t.opts.ScanInterval {
		t.healedDrops = drops
		t.scan()
	}
}

// bootNow is the boot clock; 0, which only makes everything look young, when the
// kernel does not have one.
func bootNow() uint64 {
	offset, err := bootclock.Offset()
	if err != nil {
		return 0
	}
	return uint64(time.Now().UnixNano() - offset)
}

// wall is the wall-clock time of a boot-clock reading.
func wall(ns uint64) time.Time {
	offset, err := bootclock.Offset()
	if err != nil {
		return time.Time{}
	}
	return bootclock.Time(ns, offset)
}

// explain adds to the report what the rung taken cannot do.
func explain(report *probe.Report, proc *reader) {
	last := &report.Attempts[len(report.Attempts)-1]
	switch {
	case proc.Foreign():
		last.Hint = fmt.Sprintf("%s shows another pid namespace than the kernel's: set hostPID, or mount the host's /proc and set HOST_PROC; until then processes already running, cgroups, pods and containers stay unknown", proc.Root())
	case !last.Fired:
		last.Hint = "not tested: no child could be traced; allow ptrace (kernel.yama.ptrace_scope below 3, seccomp profile) to have it tested"
	case report.Rung == RungTracing:
		last.Hint = "exits do not tell who sent the signal that ended a process"
	case report.Rung == RungNotice:
		last.Hint = "without kernel BTF no exits are reported, and a process that ends before /proc is read stays unknown"
	case report.Rung == RungScan:
		last.Hint = "without BPF processes are found by reading /proc now and then: short ones stay unknown and no exits are reported"
	}
}
