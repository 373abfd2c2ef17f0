package stacksreceiver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/stacksreceiver/internal/metadata"
)

var start = probereceivertest.Start

// fake is a process that a test moves.
type fake struct {
	status  procfs.ThreadStatus
	place   pystack.Place
	python  bool
	trains  bool // has libraries of a training mapped
	stack   *stacks.Process
	broken  error          // of its stack
	closed  error          // of preparing it
	wakes   bool           // while its stack is taken
	goes    *pystack.Place // where its stack finds it, where that is not its place any more
	startNS uint64
	usage   usage
	ran     time.Duration
	class   waitclass.Class // of where it is found at work
	does    *activity.Process
	mount   procfs.Mount
	meets   activity.Meeting
}

// fakeSource is a machine whose processes a test moves.
type fakeSource struct {
	*probereceivertest.Probe
	mu        sync.Mutex // guards what follows
	processes map[uint32]*fake
	failing   error // of all processes
	taken     chan uint32
	prepared  map[uint32]int
	released  map[uint32]int
	asked     map[uint32]int // whether it trains
	into      int64          // looks into processes
}

func newFakeSource() *fakeSource {
	return &fakeSource{
		Probe: probereceivertest.NewProbe(), processes: map[uint32]*fake{}, taken: make(chan uint32, 10_000), prepared: map[uint32]int{}, released: map[uint32]int{}, asked: map[uint32]int{},
	}
}

// of calls do with a process that there is.
func (s *fakeSource) of(pid uint32, do func(*fake) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.Closed:
		return probe.ErrClosed
	default:
	}
	if s.failing != nil {
		return s.failing
	}
	if p := s.processes[pid]; p != nil {
		return do(p)
	}
	return procfs.ErrGone
}

func (s *fakeSource) Prepare(pid uint32) (python bool, err error) {
	err = s.of(pid, func(p *fake) error {
		s.prepared[pid]++
		python = p.python
		return p.closed
	})
	return python, err
}

func (s *fakeSource) Trains(pid uint32) (trains bool, err error) {
	err = s.of(pid, func(p *fake) error { s.asked[pid]++; trains = p.trains; return nil })
	return trains, err
}

func (s *fakeSource) Status(pid uint32) (status procfs.ThreadStatus, err error) {
	err = s.of(pid, func(p *fake) error { status = p.status; return nil })
	return status, err
}

func (s *fakeSource) LookAt(pids []uint32) ([]procfs.ThreadLook, error) {
	all := make([]procfs.ThreadLook, len(pids))
	for i, pid := range pids {
		main := &all[i]
		if main.Status, main.Err = s.Status(pid); errors.Is(main.Err, probe.ErrClosed) {
			return nil, main.Err
		}
		main.Ran, main.RanErr = s.OnCPU(pid)
	}
	return all, nil
}

func (s *fakeSource) Place(pid uint32) (place pystack.Place, err error) {
	err = s.of(pid, func(p *fake) error { place = p.place; return nil })
	return place, err
}

func (s *fakeSource) Stack(pid uint32, startNS uint64) (seen *stacks.Process, err error) {
	err = s.of(pid, func(p *fake) error {
		if p.startNS != 0 && p.startNS != startNS {
			return procfs.ErrGone
		}
		seen = p.stack
		if seen != nil {
			at := *seen
			at.Threads = slices.Clone(at.Threads)
			if at.Threads[0].Place = p.place; p.goes != nil || !p.python {
				at.Threads[0].Place = *cmp.Or(p.goes, &nowhere)
			}
			seen = &at
		}
		return p.broken
	})
	s.taken <- pid
	return seen, err
}

func (s *fakeSource) Slept(pid uint32, since procfs.ThreadStatus) (slept bool) {
	err := s.of(pid, func(p *fake) error { slept = !p.wakes && p.status.Switches == since.Switches; return nil })
	return slept && err == nil
}

func (s *fakeSource) OnCPU(pid uint32) (ran time.Duration, err error) {
	err = s.of(pid, func(p *fake) error { ran = p.ran; return nil })
	return ran, err
}

func (s *fakeSource) Usage(pid uint32) (has usage, err error) {
	err = s.of(pid, func(p *fake) error { has = p.usage; return nil })
	return has, err
}

func (s *fakeSource) Class(pid uint32) (class waitclass.Class, err error) {
	err = s.of(pid, func(p *fake) error { class = p.class; return nil })
	return class, err
}

func (s *fakeSource) Does(rest []identity.Process, _ map[uint32]bool) map[uint32]*activity.Process {
	all := map[uint32]*activity.Process{}
	s.mu.Lock()
	s.into++
	s.mu.Unlock()
	for i := range rest {
		_ = s.of(rest[i].PID, func(p *fake) error { all[rest[i].PID] = p.does; return nil })
	}
	return all
}

func (s *fakeSource) Stopper(p *activity.Process, _ identity.Resolver) (signal identity.Signal) {
	if p.State == socketstall.Stopped {
		signal.Number = 19
	}
	return signal
}

func (s *fakeSource) Meets(pid uint32) (m activity.Meeting) {
	_ = s.of(pid, func(p *fake) error { m = p.meets; return nil })
	return m
}

func (s *fakeSource) Mount(pid uint32) (mount procfs.Mount, ok bool) {
	_ = s.of(pid, func(p *fake) error { mount = p.mount; return nil })
	return mount, mount.Point != ""
}

func (s *fakeSource) Release(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released[pid]++
}

// bench is a receiver on fakes, whose clock the test moves.
type bench struct {
	*probereceivertest.Bench
	source *fakeSource
	config *Config
	now    time.Time
	looked chan struct{}
	done   <-chan struct{}
}

func newBench(t testing.TB) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), config: createDefaultConfig().(*Config), source: newFakeSource(), now: start, looked: make(chan struct{}), done: t.Context().Done()}
	b.config.Identity = &probereceivertest.IdentityID
	return b
}

func (b *bench) factory(ticks probereceiver.Ticks, looked func()) receiver.Factory {
	return newFactory(surroundings{ticks: ticks, looked: looked, longest: hosttest.Patience, open: func() (source, error) {
		b.source.Probe = probereceivertest.NewProbe()
		return b.source, b.Open()
	}})
}

func (b *bench) receiver(t *testing.T, next consumer.Logs) receiver.Logs {
	r, err := b.factory(b.Ticks, b.ends).CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) start(t *testing.T) { b.StartAll(t, b.receiver(t, b.Sink)) }

// ends is the end of a look, which a test waits for: no look reads what was changed after it.
func (b *bench) ends() {
	select {
	case b.looked <- struct{}{}:
	case <-b.done:
	}
}

// looks lets the receiver look so often, once a second. The last has ended.
func (b *bench) looks(t *testing.T, n int) {
	t.Helper()
	for range n {
		b.now = b.now.Add(b.config.ScanInterval)
		b.Tick(t, b.config.ScanInterval, b.now)
		select {
		case <-b.looked:
		case <-time.After(hosttest.Patience):
			require.FailNow(t, "the look does not end")
		}
	}
}

// at changes a process.
func (b *bench) at(pid uint32, change func(*fake)) {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	p := b.source.processes[pid]
	if p == nil {
		p = &fake{status: procfs.ThreadStatus{State: 'S', Switches: 1}, python: true, stack: saving(pid), place: pystack.Place{Chain: 11, Calls: 1}}
		b.source.processes[pid] = p
	}
	change(p)
}

// works lets a process run on, somewhere else.
func (b *bench) works(pid uint32) {
	b.at(pid, func(p *fake) {
		p.status.Switches++
		p.place.Chain++
		p.place.Calls++
	})
}

// rank is a rank of a job.
func rank(pid uint32, number int) identity.Process {
	return identity.Process{
		PID: pid, Comm: "python", Rank: number, LocalRank: number, WorldSize: 8, JobID: "job-1", Domain: "user:1000",
		StartTime: start.Add(time.Hour), StartNS: uint64(pid) * 100, RankPID: pid, RankStart: start,
	}
}

// saving is a rank in its own function, in a write that hangs.
func saving(pid uint32) *stacks.Process {
	return &stacks.Process{PID: pid, Python: "CPython 3.12", Threads: []stacks.Thread{{
		TID: pid, Name: "python", Main: true, State: 'S',
		Python: []pystack.Frame{
			{File: "/usr/lib/python3.12/site-packages/torch/serialization.py", Line: 850, Function: "save"},
			{File: "/home/ann/train.py", Line: 120, Function: "save_checkpoint"}, {File: "/home/ann/train.py", Line: 200, Function: "main"},
			{File: "/home/ann/train.py", Line: 210, Function: "<module>"},
		},
		Wait: waitclass.Wait{Class: waitclass.Storage, Function: "request_wait_answer", Owner: "fuse"},
	}}}
}

// waiting is a rank in a collective.
func waiting(pid uint32) *stacks.Process {
	p := saving(pid)
	p.Threads[0].Wait = waitclass.Wait{Class: waitclass.Collective, Function: "futex_do_wait", Owner: "futex"}
	return p
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b := newBench(t)
		b.Resolver.Know(rank(42, 3))
		b.at(42, func(p *fake) { p.python = false })
		b.config.Events.ProcessStackMoving.Enabled = false
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return []component.Component{b.receiver(t, next)}
			},
			Fire: func(t *testing.T) {
				b.works(42)
				b.looks(t, 4)
			},
			Break: func(t *testing.T, err error) {
				b.source.mu.Lock()
				b.source.failing = err
				b.source.mu.Unlock()
				b.looks(t, probereceiver.MaxFailures)
				require.Eventually(t, func() bool { return b.Own(t, "probe_up") == 0 }, hosttest.Patience, time.Millisecond)
				b.source.mu.Lock()
				b.source.failing = nil
				b.source.mu.Unlock()
			},
			NeedsIdentity:   true,
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	b.config.ScanInterval, b.config.LookInterval = time.Millisecond, time.Millisecond
	b.config.Events.ProcessStackMoving.Enabled = false
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "process.pid", Make: func(pid uint32) string {
		b.at(pid, func(*fake) {})
		b.Resolver.Know(rank(pid, 3))
		for <-b.source.taken != pid {
			continue
		}
		b.Resolver.Know()
		return fmt.Sprint(pid)
	}}, b.config, func() receiver.Factory { return b.factory(probereceiver.RealTime, func() {}) })
}

// TestAStackOfAThreadThatWokeMeanwhileIsNotTold: its frames may be of another moment than what
// was seen of it, and would stand for a place that it has left.
func TestAStackOfAThreadThatWokeMeanwhileIsNotTold(t *testing.T) {
	b := newBench(t)
	b.at(42, func(p *fake) { p.wakes = true })
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	b.looks(t, 7)
	b.at(42, func(p *fake) { p.wakes = false })
	b.looks(t, 2)
	require.GreaterOrEqual(t, b.Next(t).Attributes().AsRaw()["process.stack.still_ns"], int64(7*time.Second), "not before")
}

// TestAStackOfAnotherPlaceIsNotToldForTheSameCall: a rank that makes steps is found in its
// collective at most looks. Its stack may be of a moment between two.
func TestAStackOfAnotherPlaceIsNotToldForTheSameCall(t *testing.T) {
	for name, goes := range map[string]pystack.Place{"between two calls": {Chain: 78, Calls: 78}, "its Python was not read": nowhere} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.Patience = 8 * time.Second // it is young: 20 s
			b.at(42, func(p *fake) { p.goes = &goes })
			b.Resolver.Know(rank(42, 3))
			b.start(t)
			for range 25 {
				b.at(42, func(p *fake) { p.status.Switches++; p.status.Sleeps++ })
				b.looks(t, 2)
			}
			require.Equal(t, uint32(42), <-b.source.taken)
			b.at(42, func(p *fake) { p.goes = nil })
			for range 20 {
				b.at(42, func(p *fake) { p.status.Switches++; p.status.Sleeps++ })
				b.looks(t, 2)
			}
			got := b.Next(t).Attributes().AsRaw()
			require.Equal(t, "same_call", got["process.stack.reason"])
			if goes != nowhere {
				require.Less(t, got["process.stack.still_ns"], int64(25*time.Second), "it was elsewhere: its time begins anew")
			}
		})
	}
}

// TestWhatIsToldOfARankIsOverWhenItLeavesThePlaceOfItsStack: not the place in which it was
// found just before.
func TestWhatIsToldOfARankIsOverWhenItLeavesThePlaceOfItsStack(t *testing.T) {
	b := newBench(t)
	b.at(42, func(p *fake) { p.status.State, p.goes = 'R', &pystack.Place{Chain: 78, Calls: 78} })
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	b.looks(t, 2)
	b.Resolver.Exit(t, identity.Exit{Process: rank(43, 4), Signal: 9})
	require.Equal(t, "peer_ended", b.Next(t).Attributes().AsRaw()["process.stack.reason"])
	b.at(42, func(p *fake) { p.goes = nil; p.status.Switches++ })
	b.looks(t, 2)
	require.Equal(t, "process.stack.moving", b.Next(t).EventName())
}

// TestARankThatStoodAndEndedStandsNoMore: else a job that was killed while it waited would be told
// to stand still a minute later.
func TestARankThatStoodAndEndedStandsNoMore(t *testing.T) {
	told, stop := gpuask.Ranks()
	defer stop()
	b := newBench(t)
	b.at(42, func(p *fake) { p.stack = waiting(42) })
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	b.looks(t, 4)
	require.Equal(t, "process.stack", b.Next(t).EventName())
	b.source.mu.Lock()
	delete(b.source.processes, 42)
	b.source.mu.Unlock()
	b.looks(t, 2)
	require.Equal(t, "process.stack.moving", b.Next(t).EventName())
	require.Equal(t, gpuask.Rank{PID: 42, Stands: true}, <-told, "its GPU is looked at meanwhile")
	require.Equal(t, gpuask.Rank{PID: 42}, <-told)
}

// Where a rank stands is taken back when nobody looks any more whether it does: else it would be told
// to stand for as long as it lives.
func TestARankThatIsFollowedNoMoreIsNotSaidToStand(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 1
	b.at(42, func(p *fake) { p.stack = waiting(42) })
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	b.looks(t, 4)
	require.Equal(t, "process.stack", b.Next(t).EventName())
	b.at(41, func(*fake) {})
	b.works(41)
	b.Resolver.Know(rank(41, 2), rank(42, 3))
	b.now = b.now.Add(b.config.LookInterval)
	b.looks(t, 1)
	moving := b.Next(t)
	require.Equal(t, "process.stack.moving", moving.EventName())
	require.Equal(t, int64(42), moving.Attributes().AsRaw()["process.pid"])
	require.Contains(t, moving.Body().AsString(), "is no longer known to stand where it stood for")
}

// Processes that fail, each a rank of another job, leave nothing behind.
func TestEndsOfJobsThatNobodyFollowsAreForgotten(t *testing.T) {
	b := newBench(t)
	r, err := build(b.Settings, b.config, b.Sink, surroundings{ticks: b.Ticks, looked: func() {}})
	require.NoError(t, err)
	defer r.telemetry.Shutdown()
	w := newWatch(r, b.source)
	b.at(42, func(*fake) {})
	p := rank(42, 3)
	w.now, w.follows[processOf(&p)] = start, newFollower(p)
	for i := range 1000 {
		w.peerEnded(t.Context(), job{id: fmt.Sprint(i)})
	}
	require.Empty(t, w.ended)
	w.peerEnded(t.Context(), jobOf(&p))
	require.Len(t, w.ended, 1)
}

func TestARankThatStandsStillBecomesARecordWithItsLine(t *testing.T) {
	b := newBench(t)
	b.at(42, func(*fake) {})
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	b.looks(t, 4)
	r := b.Next(t)
	require.Equal(t, "process.stack", r.EventName())
	a := r.Attributes().AsRaw()
	require.Equal(t, "train.py:120 in save_checkpoint < main", a["process.stack.where"])
	require.Equal(t, []any{"/home/ann/train.py", "save_checkpoint", int64(120)}, []any{a["code.file.path"], a["code.function.name"], a["code.line.number"]})
	require.Equal(t, []any{"storage", "request_wait_answer", "fuse"}, []any{a["process.stack.wait_class"], a["process.stack.kernel_function"], a["process.stack.kernel_owner"]})
	require.Len(t, a["process.stack.frames"], 4)
	require.Equal(t, []any{int64(42), int64(4200), int64(3), "job-1"}, []any{a["process.pid"], a["process.start_ns"], a["gen_ai.training.rank"], a["gen_ai.training.job_id"]})
	require.Equal(t, "claimed", a["tracecore.trust"], "names come from the job")
	require.EqualValues(t, 2*time.Second, a["process.stack.still_ns"])
	b.looks(t, 21)
	b.works(42)
	b.looks(t, 2)
	moving := b.Next(t)
	require.Equal(t, "process.stack.moving", moving.EventName())
	require.Equal(t, a["process.stack.hash"], moving.Attributes().AsRaw()["process.stack.hash"])
	b.looks(t, 4)
	again := b.Next(t).Attributes().AsRaw()
	require.Equal(t, a["process.stack.hash"], again["process.stack.hash"])
	require.NotContains(t, again, "process.stack.frames", "they left before")
	require.Equal(t, a["process.stack.where"], again["process.stack.where"])
	b.Accepted(t, 3)
	require.EqualValues(t, 2, b.Own(t, "taken", attribute.String("reason", "asleep")))
}

// Where another thread does the work of a rank, that is followed, which says nothing of the rank: neither that
// it stood where its main thread waits, nor that it went on.
func TestARankWhoseThreadDoesItsWork(t *testing.T) {
	b := newBench(t)
	older := rank(42, 3)
	older.StartTime = start.Add(-time.Hour)
	b.at(42, func(p *fake) { p.stack.Turned = true })
	b.Resolver.Know(older)
	b.start(t)
	b.looks(t, 3)
	require.Equal(t, uint32(42), <-b.source.taken)
	b.at(42, func(p *fake) {
		p.stack.Turned, p.status.Switches, p.place = false, 4242, pystack.Place{Chain: 7, Calls: 7}
	})
	b.looks(t, 4)
	r := b.Next(t)
	require.Equal(t, "process.stack", r.EventName())
	require.Equal(t, int64(2*time.Second), r.Attributes().AsRaw()["process.stack.still_ns"])
	b.Accepted(t, 1)
}

// A main thread that is woken again and again while it waits for the one that does the work.
func TestARankThatPollsForItsThread(t *testing.T) {
	b := newBench(t)
	b.at(42, func(p *fake) { p.stack.Turned, p.class = true, waitclass.Lock })
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	for range 12 {
		b.at(42, func(p *fake) { p.status.Switches++; p.status.Sleeps++ })
		b.looks(t, 1)
	}
	require.Equal(t, uint32(42), <-b.source.taken)
	b.Accepted(t, 0)
}

// Which of its threads does the work shows only after its stack was told as that of a main thread that sleeps.
func TestARankOfWhichTheWorkingThreadIsKnownLater(t *testing.T) {
	b := newBench(t)
	older := rank(42, 3)
	older.StartTime = start.Add(-time.Hour)
	b.at(42, func(p *fake) { p.class = waitclass.Lock })
	b.Resolver.Know(older)
	b.start(t)
	b.looks(t, 4)
	require.Equal(t, "process.stack", b.Next(t).EventName())
	require.Equal(t, uint32(42), <-b.source.taken)
	b.at(42, func(p *fake) { p.stack.Turned, p.class = true, waitclass.Collective })
	b.looks(t, 2)
	require.Equal(t, uint32(42), <-b.source.taken, "while it sleeps on")
}

// A look-up of a name that fails after 10 s is tried again a second later. It stands on until it is tried no more.
func TestALookUpThatIsTriedAgainStandsOn(t *testing.T) {
	b := newBench(t)
	lookUp, pauses := pystack.Place{Chain: 7, Calls: 7}, pystack.Place{Chain: 9, Calls: 9}
	begins := func(in pystack.Place) func(*fake) {
		return func(p *fake) {
			p.status.Switches, p.status.Sleeps, p.place = p.status.Switches+3, p.status.Sleeps+3, in
		}
	}
	b.at(42, func(p *fake) { p.class, p.stack.Threads[0].Wait.Class = waitclass.NameServer, waitclass.NameServer })
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	for range 4 {
		b.at(42, begins(lookUp))
		b.at(42, func(p *fake) { p.stack.Threads[0].Place = lookUp })
		b.looks(t, 9)
		b.at(42, begins(lookUp)) // the next server
		b.looks(t, 9)
		b.at(42, begins(pauses))
		b.looks(t, 2)
	}
	require.Equal(t, "process.stack", b.Next(t).EventName())
	require.Empty(t, b.Records)
	b.looks(t, 4)
	require.Empty(t, b.Records)
	b.looks(t, 1)
	r := b.Next(t)
	require.Equal(t, "process.stack.moving", r.EventName())
	require.Greater(t, r.Attributes().AsRaw()["process.stack.still_ns"], int64(60*time.Second))
	b.looks(t, 1)
	require.Equal(t, "process.stack", b.Next(t).EventName(), "it stands where it pauses")
}

// The ranks of one job that stand in one place say its frames once. Another job says its own, and so
// does a process of which nobody knows whose it is.
func TestRanksOfOneJobSayTheFramesOfAPlaceOnce(t *testing.T) {
	b := newBench(t)
	other, owner, unowned, jobless := rank(50, 0), rank(51, 0), rank(52, 0), rank(53, 0)
	other.JobID, owner.Domain, unowned.Domain, jobless.JobID = "job-2", "user:1001", "", ""
	ranks := []identity.Process{rank(42, 0), rank(43, 1), rank(44, 2), other, owner, unowned, jobless}
	for _, p := range ranks {
		b.at(p.PID, func(*fake) {})
	}
	b.Resolver.Know(ranks...)
	b.start(t)
	b.looks(t, 4)
	b.Accepted(t, int64(len(ranks)))
	hashes, said := map[any]bool{}, map[any]int{}
	for range ranks {
		a := b.Next(t).Attributes().AsRaw()
		hashes[a["process.stack.hash"]] = true
		require.NotEmpty(t, a["process.stack.where"])
		if a["process.stack.frames"] != nil {
			said[[2]any{a["gen_ai.training.job_domain"], a["gen_ai.training.job_id"]}]++
		}
	}
	require.Len(t, hashes, 1)
	require.Equal(t, map[any]int{
		[2]any{"user:1000", "job-1"}: 1, [2]any{"user:1000", "job-2"}: 1, [2]any{"user:1001", "job-1"}: 1, [2]any{nil, "job-1"}: 1, [2]any{"user:1000", nil}: 1,
	}, said)
	require.Zero(t, b.Own(t, "limited", attribute.String("limit", "text")))
}

func TestOfARankThatWaitsInACollectiveNoNameLeaves(t *testing.T) {
	for mode, named := range map[Mode]bool{Culprit: false, All: true} {
		b := newBench(t)
		b.config.Stacks = mode
		b.at(42, func(p *fake) { p.stack = waiting(42) })
		b.Resolver.Know(rank(42, 3))
		b.start(t)
		b.looks(t, 4)
		r := b.Next(t)
		a := r.Attributes().AsRaw()
		require.Equal(t, "collective", a["process.stack.wait_class"])
		require.NotEmpty(t, a["process.stack.hash"])
		for _, key := range []string{"process.stack.where", "process.stack.frames", "code.file.path", "code.function.name", "code.line.number", "thread.name"} {
			require.Equal(t, named, a[key] != nil, key)
		}
		require.Equal(t, named, strings.Contains(r.Body().AsString(), "save_checkpoint"))
	}
}

// TestARankThatWaitsTooLongInACollectiveSaysItsLine: nothing else of its names, and only then. Where all ranks wait,
// their lines are the place of the fault.
func TestARankThatWaitsTooLongInACollectiveSaysItsLine(t *testing.T) {
	b := newBench(t)
	b.at(42, func(p *fake) {
		p.stack, p.class = waiting(42), waitclass.Collective
		p.stack.Threads[0].Wait.Call = "all_reduce"
		p.does = &activity.Process{Process: rank(42, 3), State: socketstall.Sleeping, Inside: &activity.Inside{Compared: true}}
	})
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	for range 15 { // until its pauses are known
		b.at(42, func(p *fake) { p.status.Switches++; p.place.Chain++ })
		b.looks(t, 1)
	}
	b.looks(t, 2)
	first := b.Next(t).Attributes().AsRaw()
	require.Equal(t, []any{"all_reduce", nil}, []any{first["process.stack.call"], first["process.stack.where"]})
	b.looks(t, 2)
	r := b.Next(t)
	require.Equal(t, "process.stack.doing", r.EventName())
	a := r.Attributes().AsRaw()
	require.Equal(t, []any{"overdue", "train.py:120 in save_checkpoint < main"}, []any{a["nccl.rank.silence"], a["process.stack.where"]})
	for _, key := range []string{"process.stack.frames", "code.file.path", "code.function.name", "thread.name"} {
		require.Nil(t, a[key], key)
	}
}

// TestWhereARankMeetsOthersIsTold: the address of the store by its environment, and the socket for which it waits. Of a rank that
// waits in another collective, nobody asks.
func TestWhereARankMeetsOthersIsTold(t *testing.T) {
	keys := []string{"server.address", "server.port", "network.peer.address", "network.peer.port", "network.connection.state"}
	peer := netip.MustParseAddrPort("10.0.0.9:29500")
	for name, tc := range map[string]struct {
		wait  waitclass.Wait
		meets activity.Meeting
		want  []any
	}{
		"it asks": {
			waitclass.Wait{Class: waitclass.Collective, Call: "init_process_group"}, activity.Meeting{Connection: procfs.Connection{Peer: peer, State: procfs.SynSent}},
			[]any{"master-0", int64(29500), "10.0.0.9", int64(29500), "syn_sent"},
		},
		"it is connected": {
			waitclass.Wait{Class: waitclass.Store}, activity.Meeting{Connection: procfs.Connection{Peer: peer, State: procfs.Established}},
			[]any{"master-0", int64(29500), "10.0.0.9", int64(29500), "established"},
		},
		"it tries again": {
			waitclass.Wait{Class: waitclass.Collective, Call: "init_process_group"}, activity.Meeting{Pauses: true}, []any{"master-0", int64(29500), nil, nil, "closed"},
		},
		"it waits for something else": {waitclass.Wait{Class: waitclass.Collective, Call: "initialize"}, activity.Meeting{}, []any{"master-0", int64(29500), nil, nil, nil}},
		"it ends a connection": {
			waitclass.Wait{Class: waitclass.Collective, Call: "init_process_group"}, activity.Meeting{Connection: procfs.Connection{Peer: peer, State: 4}},
			[]any{"master-0", int64(29500), "10.0.0.9", int64(29500), nil},
		},
		"it is in another collective": {waitclass.Wait{Class: waitclass.Collective, Call: "all_reduce"}, activity.Meeting{Pauses: true}, []any{nil, nil, nil, nil, nil}},
		"it reads a file":             {waitclass.Wait{Class: waitclass.Storage}, activity.Meeting{Pauses: true}, []any{nil, nil, nil, nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.at(42, func(p *fake) { p.stack.Threads[0].Wait, p.meets = tc.wait, tc.meets })
			p := rank(42, 3)
			p.MasterAddr, p.MasterPort = "master-0", 29500
			b.Resolver.Know(p)
			b.start(t)
			b.looks(t, 3)
			a := b.Next(t).Attributes().AsRaw()
			var got []any
			for _, key := range keys {
				got = append(got, a[key])
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestWhatARankDoesThatStandsIsTold: at first, and when it changes.
func TestWhatARankDoesThatStandsIsTold(t *testing.T) {
	b := newBench(t)
	does := func(state socketstall.State, cpu time.Duration) {
		b.at(42, func(p *fake) {
			p.does = &activity.Process{Process: rank(42, 3), State: state, CPU: cpu, MainCPU: 0, Inside: &activity.Inside{Compared: true, Syscall: "read", File: "/data/part-7"}}
		})
	}
	b.at(42, func(p *fake) {
		p.class, p.mount = waitclass.Collective, procfs.Mount{Point: "/data", Source: "filer:/vol", Type: "nfs4"}
	})
	does(socketstall.Sleeping, 0)
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	for range 15 { // until its pauses are known
		b.at(42, func(p *fake) { p.status.Switches++; p.place.Chain++ })
		b.looks(t, 1)
	}
	b.looks(t, 2)
	first := b.Next(t).Attributes().AsRaw()
	require.Equal(t, []any{"usual", "idle", "read", "/data/part-7"}, []any{first["nccl.rank.silence"], first["nccl.rank.activity"], first["nccl.rank.syscall"], first["nccl.rank.file"]})
	require.Equal(t, []any{"/data", "filer:/vol", "nfs4"}, []any{first["process.stack.mount_point"], first["process.stack.mount_source"], first["process.stack.mount_type"]})
	b.looks(t, 1)
	r := b.Next(t)
	require.Equal(t, "process.stack.doing", r.EventName())
	a := r.Attributes().AsRaw()
	require.Equal(t, []any{"overdue", first["process.stack.hash"]}, []any{a["nccl.rank.silence"], a["process.stack.hash"]})
	b.looks(t, 21)
	does(socketstall.Stopped, 0)
	b.looks(t, 1)
	a = b.Next(t).Attributes().AsRaw()
	require.Equal(t, []any{"stopped", "SIGSTOP"}, []any{a["nccl.rank.state"], a["signal.name"]})
	b.looks(t, 21)
	require.Empty(t, b.Records)
}

// TestHowOftenProcessesAreLookedInto: each second in the first time, more and more rarely where all
// have stood for long. While a rank waits for others as it does in each step, only where it was told to stand, which is seldom.
func TestHowOftenProcessesAreLookedInto(t *testing.T) {
	looks := func(b *bench, seconds int) int64 {
		b.source.mu.Lock()
		before := b.source.into
		b.source.mu.Unlock()
		b.looks(t, seconds)
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		return b.source.into - before
	}
	b := newBench(t)
	b.at(42, func(p *fake) { p.class = waitclass.Collective })
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	step := func() {
		for _, call := range []uint64{77, 5} {
			b.at(42, func(p *fake) {
				p.status.Switches++
				p.place = pystack.Place{Chain: call, Calls: call}
			})
			b.looks(t, 1)
		}
	}
	asUsual, steps := int64(0), 60
	for i := range 20 + steps { // each waits for five seconds
		step()
		if n := looks(b, 4); i >= 20 {
			asUsual += n
		}
	}
	require.LessOrEqual(t, asUsual, int64(6*steps/30+4)*3, "one of five waits, each for three looks")
	step()
	b.looks(t, 4)
	require.GreaterOrEqual(t, looks(b, 15), int64(14))
	require.LessOrEqual(t, looks(b, 600), int64(600/10+40))
	b.at(43, func(*fake) {})
	b.Resolver.Know(rank(42, 3), rank(43, 4))
	b.looks(t, 6)
	require.GreaterOrEqual(t, looks(b, 10), int64(9), "another rank has begun to stand")
}

// TestARankThatWasFoundAtRestIsOverdueSooner: it was there before the receiver, and has not run since.
func TestARankThatWasFoundAtRestIsOverdueSooner(t *testing.T) {
	for name, tc := range map[string]struct {
		older bool
		after int // looks
	}{"older": {true, 30}, "younger": {false, 60}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			p := rank(42, 3)
			if tc.older {
				p.StartTime = start.Add(-time.Hour)
			}
			b.at(42, func(f *fake) {
				f.class = waitclass.OwnCode
				f.does = &activity.Process{Process: p, State: socketstall.Sleeping, Inside: &activity.Inside{Compared: true}}
			})
			b.Resolver.Know(p)
			b.start(t)
			b.looks(t, 4)
			require.Equal(t, "usual", b.Next(t).Attributes().AsRaw()["nccl.rank.silence"])
			b.looks(t, tc.after-7)
			require.Empty(t, b.Records)
			b.looks(t, 7)
			require.Equal(t, "overdue", b.Next(t).Attributes().AsRaw()["nccl.rank.silence"])
		})
	}
}

// TestOfAYoungRankNothingIsOverdueForLong: it may load its program or its data.
func TestOfAYoungRankNothingIsOverdueForLong(t *testing.T) {
	b := newBench(t)
	b.at(42, func(p *fake) {
		p.class = waitclass.OwnCode
		p.does = &activity.Process{Process: rank(42, 3), State: socketstall.Sleeping, Inside: &activity.Inside{Compared: true}}
	})
	b.Resolver.Know(rank(42, 3))
	b.start(t)
	for range 30 {
		b.works(42)
		b.looks(t, 1)
	}
	b.looks(t, 2)
	require.Equal(t, "usual", b.Next(t).Attributes().AsRaw()["nccl.rank.silence"])
	b.looks(t, 56)
	require.Empty(t, b.Records)
	b.looks(t, 6)
	require.Equal(t, "overdue", b.Next(t).Attributes().AsRaw()["nccl.rank.silence"])
}

// TestARankThatWaitsForOthersIsOverdueSoon: in its first step, too, and whatever its own pauses are. It does not start up
// itself. What its threads or children do counts as before.
func TestARankThatWaitsForOthersIsOverdueSoon(t *testing.T) {
	for name, tc := range map[string]struct {
		class  waitclass.Class
		works  time.Duration // CPU of its threads, each second
		pauses bool          // it often rests in its own code
		soon   bool
	}{
		"in its first step":                   {class: waitclass.Collective, soon: true},
		"and it often pauses itself":          {class: waitclass.Collective, pauses: true, soon: true},
		"another thread of it compiles":       {class: waitclass.Collective, works: 500 * time.Millisecond},
		"it waits for its GPU":                {class: waitclass.GPU},
		"it waits for threads of its own":     {class: waitclass.Backward},
		"it waits for a lock in a first step": {class: waitclass.Lock},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			cpu := time.Duration(0)
			looks := func(n int) {
				for range n {
					cpu += tc.works
					b.at(42, func(p *fake) {
						p.does = &activity.Process{Process: rank(42, 3), State: socketstall.Sleeping, CPU: cpu, Inside: &activity.Inside{Compared: true}}
					})
					b.looks(t, 1)
				}
			}
			stands := func(class waitclass.Class, call uint64) {
				b.at(42, func(p *fake) {
					p.status.Switches++
					p.place, p.class = pystack.Place{Chain: call, Calls: call}, class
					p.stack = waiting(42)
					p.stack.Threads[0].Wait.Class, p.stack.Threads[0].Place = class, p.place
				})
			}
			stands(waitclass.OwnCode, 7)
			b.Resolver.Know(rank(42, 3))
			b.start(t)
			looks(1)
			for range 4 {
				if tc.pauses {
					stands(waitclass.OwnCode, 7)
					looks(20)
					stands(waitclass.Collective, 8)
					looks(1)
				}
			}
			stands(tc.class, 9)
			looks(3)
			r := b.Next(t)
			for r.EventName() != "process.stack" || r.Attributes().AsRaw()["process.stack.wait_class"] != string(tc.class) {
				r = b.Next(t)
			}
			require.Equal(t, "usual", r.Attributes().AsRaw()["nccl.rank.silence"])
			looks(2)
			if !tc.soon {
				looks(20)
				require.Empty(t, b.Records)
				return
			}
			a := b.Next(t).Attributes().AsRaw()
			require.Equal(t, []any{"overdue", "train.py:120 in save_checkpoint < main"}, []any{a["nccl.rank.silence"], a["process.stack.where"]})
		})
	}
}

func TestOffReadsNothing(t *testing.T) {
	b := newBench(t)
	b.config.Stacks = Off
	b.start(t)
	require.Zero(t, b.Opened())
}

func TestWhenARankEndsTheOthersAreTaken(t *testing.T) {
	b := newBench(t)
	other := rank(44, 0)
	other.JobID = "job-2"
	b.Resolver.Know(rank(42, 3), rank(43, 4), other)
	for pid := range uint32(3) {
		b.at(42+pid, func(*fake) {})
	}
	b.start(t)
	for _, pid := range []uint32{42, 43, 44} {
		b.works(pid)
	}
	b.looks(t, 2)
	for _, pid := range []uint32{42, 43, 44} {
		b.works(pid)
	}
	b.Resolver.Exit(t, identity.Exit{Process: rank(41, 2), Signal: 9})
	for range 2 {
		r := b.Next(t)
		a := r.Attributes().AsRaw()
		require.Equal(t, "peer_ended", a["process.stack.reason"])
		require.Contains(t, []any{int64(42), int64(43)}, a["process.pid"])
	}
	for _, exit := range []identity.Exit{
		{Process: rank(40, 1), Signal: 9}, // of the same job, which is known to end
		{Process: other},                  // without a failure
		{Process: identity.Process{Rank: -1, JobID: "job-2"}, Code: 1}, // of no rank
		{Process: other, Code: 1, Helper: true},
		{Process: other, Code: 1, Late: true},
	} {
		b.Resolver.Exit(t, exit)
	}
	b.works(44)
	b.looks(t, 2)
	for range 2 { // who has not run since stands
		a := b.Next(t).Attributes().AsRaw()
		require.Equal(t, "asleep", a["process.stack.reason"])
		require.Contains(t, []any{int64(42), int64(43)}, a["process.pid"])
	}
	b.Accepted(t, 4)
	require.Empty(t, b.Records)
}

func TestAProcessThatEndsWhileItIsReadIsForgotten(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(rank(42, 3), rank(43, 4))
	b.at(42, func(p *fake) { p.startNS = 1 }) // another process has its number
	b.at(43, func(*fake) {})
	b.start(t)
	b.looks(t, 4)
	require.EqualValues(t, 43, b.Next(t).Attributes().AsRaw()["process.pid"])
	require.Zero(t, b.Own(t, "failed"))
	b.source.mu.Lock()
	require.Equal(t, 1, b.source.released[42])
	delete(b.source.processes, 43)
	b.source.mu.Unlock()
	b.Resolver.Know()
	b.looks(t, 7)
	require.Equal(t, "process.stack.moving", b.Next(t).EventName())
	require.Zero(t, b.Own(t, "processes"))
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	require.NotZero(t, b.source.released[43], "its files are closed")
	require.Empty(t, b.Records)
}

func TestAStackThatCannotBeReadIsTriedAgain(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(rank(42, 3))
	b.at(42, func(p *fake) { p.broken = fmt.Errorf("its memory: %w", procfs.ErrHung) })
	b.start(t)
	b.looks(t, 64)
	require.EqualValues(t, 6, b.Own(t, "failed"), "after 1, 2, 4, 8, 16 seconds")
	b.at(42, func(p *fake) { p.broken = nil })
	b.looks(t, 60)
	require.Equal(t, "process.stack", b.Next(t).EventName())
}

// members are told who trains.
type members struct {
	*probereceivertest.Resolver
	trains chan identity.Process
}

func (m *members) Trains(p identity.Process) { m.trains <- p }

func (*members) Joined(identity.Process) {}

func (*members) Led(identity.Process) {}

// A launcher in Python is followed until its child trains, of which the identity extension is told. A rank that trains is asked once, and its children are not.
func TestALauncherIsFollowedUntilItsChildTrains(t *testing.T) {
	b := newBench(t)
	launcher, child := rank(42, 0), rank(50, 0)
	child.RankPID, child.ParentPID, child.Inherited = 42, 42, true
	said := &members{b.Resolver, make(chan identity.Process, 8)}
	b.Host.Extensions[probereceivertest.IdentityID] = said
	b.at(42, func(*fake) {})
	b.at(50, func(*fake) {})
	b.Resolver.Know(launcher, child)
	told := func(event string, pid uint32) {
		t.Helper()
		r := b.Next(t)
		require.Equal(t, []any{event, int64(pid)}, []any{r.EventName(), r.Attributes().AsRaw()["process.pid"]})
	}
	b.start(t)
	b.looks(t, 6)
	told("process.stack", 42)
	b.at(50, func(p *fake) { p.trains = true })
	b.looks(t, 10)
	told("process.stack.moving", 42)
	told("process.stack", 50)
	require.Len(t, said.trains, 1, "once")
	require.EqualValues(t, 50, (<-said.trains).PID)
	b.at(42, func(p *fake) { p.trains = true })
	b.looks(t, 10)
	told("process.stack.moving", 50)
	told("process.stack", 42)
	asked := maps.Clone(b.source.asked)
	b.looks(t, 20)
	require.Equal(t, asked, b.source.asked)
}

func TestProcessesArePreparedAgainWhileTheyMove(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(rank(42, 3))
	b.at(42, func(p *fake) { p.python = false })
	b.start(t)
	for range 60 {
		b.works(42)
		b.looks(t, 2)
	}
	count := func() int {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		return b.source.prepared[42]
	}
	require.Equal(t, 4, count(), "after 5, 15 and 45 seconds")
	b.looks(t, 1000)
	require.Equal(t, 4, count(), "what stands still is left alone")
}

// An interpreter that does not run is a problem where that stands: a process that starts or
// ends has none for a moment.
func TestAnInterpreterThatDoesNotRunIsToldWhereThatStands(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		looks int // with that
		told  int
	}{
		"for a moment":          {pystack.ErrNotRunning, 4, 0},
		"twice":                 {pystack.ErrNotRunning, 14, 0},
		"all the time":          {fmt.Errorf("its files: %w", pystack.ErrNotRunning), 60, 1},
		"what cannot be read":   {errors.New("its memory"), 1, 1},
		"what is that for long": {errors.New("its memory"), 60, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			core, logged := observer.New(zap.WarnLevel)
			b.Settings.Logger = zap.New(core)
			b.Resolver.Know(rank(42, 3))
			b.at(42, func(p *fake) { p.closed = tc.err })
			b.start(t)
			for look := range 120 {
				if look == tc.looks {
					b.at(42, func(p *fake) { p.closed = nil })
				}
				b.works(42)
				b.looks(t, 1)
			}
			require.Equal(t, tc.told, logged.FilterMessage("stacks of some ranks may lack a part").Len())
		})
	}
}

// hangs counts the looks until a process that does not run any more is told.
func (b *bench) hangs(t *testing.T, pid uint32) (looks int) {
	t.Helper()
	told := func() int64 { return b.Own(t, "taken", attribute.String("reason", "asleep")) }
	for before := told(); told() == before; looks++ {
		require.Less(t, looks, 100)
		b.looks(t, 1)
	}
	for { // what came before it comes first
		r := b.Next(t)
		if r.Timestamp().AsTime().Equal(b.now) && r.EventName() == "process.stack" && r.Attributes().AsRaw()["process.pid"] == int64(pid) {
			return looks
		}
	}
}

// TestAHangIsToldSoonAfterPausesInEachStep: the waits of a healthy job do not use up the stack that
// tells of its hang.
func TestAHangIsToldSoonAfterPausesInEachStep(t *testing.T) {
	for name, tc := range map[string]struct {
		class waitclass.Class
		state byte
		moves bool // each pause is in a place of its own
	}{
		"it waits for others":             {waitclass.Collective, 'S', false},
		"in a place of its own":           {waitclass.OwnCode, 'S', false},
		"in a new place each time":        {waitclass.OwnCode, 'S', true},
		"in a file system, and no signal": {waitclass.Storage, 'D', false},
	} {
		for _, pause := range []int{3, 5, 10} {
			for _, after := range []int{600, 607, 613, 619, 626} { // at any moment between two refills
				t.Run(fmt.Sprint(name, " ", pause, " ", after), func(t *testing.T) {
					b := newBench(t)
					b.at(42, func(p *fake) { p.class, p.status.State = tc.class, tc.state })
					b.Resolver.Know(rank(42, 3))
					b.start(t)
					runs := func(call uint64) {
						b.at(42, func(p *fake) {
							p.status.Switches++
							p.place = pystack.Place{Chain: call, Calls: call}
						})
					}
					call := uint64(100)
					for waited := 0; waited < after; waited += pause + 1 {
						runs(77) // it works, and then it rests in one place
						b.looks(t, 1)
						if tc.moves {
							call++
						}
						runs(call)
						b.looks(t, pause)
					}
					taken := b.Own(t, "taken", attribute.String("reason", "asleep"))
					require.LessOrEqual(t, taken, int64(takesAtOnce+after/30+1), "it is bounded")
					runs(5)
					require.LessOrEqual(t, b.hangs(t, 42), pause+2, "its usual pause, and two looks")
				})
			}
		}
	}
}

// TestARankThatIsElsewhereAtEachLookIsBounded: each sleep is longer than all before, or as long as
// it must be, and in a new place. Another rank is told as if it were alone.
func TestARankThatIsElsewhereAtEachLookIsBounded(t *testing.T) {
	b := newBench(t)
	b.at(42, func(*fake) {})
	b.at(43, func(*fake) {})
	b.Resolver.Know(rank(42, 3), rank(43, 4))
	b.start(t)
	looked := 0
	for i := uint64(0); looked < 600; i++ {
		b.at(42, func(p *fake) {
			p.status.Switches++
			p.place = pystack.Place{Chain: 100 + i, Calls: 100 + i}
			p.stack.Threads[0].Python[0].Line = int(i)
		})
		for range 3 + i%9 {
			b.works(43)
			b.looks(t, 1)
			looked++
		}
	}
	require.LessOrEqual(t, b.Own(t, "taken", attribute.String("reason", "asleep")), int64(takesAtOnce+looked/30+1))
	b.at(42, func(p *fake) { p.status.State = 'R' })
	require.LessOrEqual(t, b.hangs(t, 43), 3)
}

// TestWhomAllWaitForIsToldBesideThem: those that wait for others use up no more than their part of what
// a domain may say.
func TestWhomAllWaitForIsToldBesideThem(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 4096
	culprit := rank(9000, 600)
	ranks := []identity.Process{culprit}
	for i := range uint32(600) {
		ranks = append(ranks, rank(1000+i, int(i)))
		b.at(1000+i, func(p *fake) { p.class, p.stack = waitclass.Collective, waiting(1000+i) })
	}
	b.at(9000, func(*fake) {})
	b.Resolver.Know(ranks...)
	b.start(t)
	b.looks(t, 3)
	told := map[any]bool{}
	for !told[int64(9000)] {
		told[b.Next(t).Attributes().AsRaw()["process.pid"]] = true
	}
	require.Less(t, len(told), 600)
}

// TestTheEndOfAStandstillIsAlwaysTold: who is not told to go on is taken to stand.
func TestTheEndOfAStandstillIsAlwaysTold(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 4096
	var ranks []identity.Process
	for i := range uint32(700) {
		ranks = append(ranks, rank(1000+i, int(i)))
		b.at(1000+i, func(*fake) {})
	}
	b.Resolver.Know(ranks...)
	b.start(t)
	b.looks(t, 4)
	for i := range uint32(700) {
		b.works(1000 + i)
	}
	b.looks(t, 2)
	stands, ends := map[any]bool{}, map[any]bool{}
	b.Accepted(t, 2*b.Own(t, "taken"))
	for len(b.Records) > 0 {
		r := b.Next(t)
		of := map[string]map[any]bool{"process.stack": stands, "process.stack.moving": ends}[r.EventName()]
		of[r.Attributes().AsRaw()["process.pid"]] = true
	}
	require.GreaterOrEqual(t, len(stands), recordsAtOnce/2)
	require.Less(t, len(stands), 700)
	for pid := range stands {
		require.True(t, ends[pid], pid)
	}
}

func TestManyRanksAtATimeAndOneThatMakesTooMany(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 4096
	var ranks []identity.Process
	for i := range uint32(600) {
		ranks = append(ranks, rank(1000+i, int(i)))
		b.at(1000+i, func(p *fake) {
			one := saving(1000 + i)
			for j := range one.Threads[0].Python {
				one.Threads[0].Python[j].File += fmt.Sprintf("/%0500d", i)
			}
			for range 200 {
				one.Threads[0].Python = append(one.Threads[0].Python, one.Threads[0].Python[1])
			}
			p.stack = one
		})
	}
	other := rank(9, 0)
	other.JobID, other.Domain = "job-2", "user:1001"
	ranks = append(ranks, other)
	b.at(9, func(*fake) {})
	b.Resolver.Know(ranks...)
	b.start(t)
	b.looks(t, 4)
	b.looks(t, 41)
	b.Accepted(t, b.Own(t, "taken"))
	records, text, mine := 0, 0, 0
	for len(b.Records) > 0 {
		a := b.Next(t).Attributes().AsRaw()
		records++
		if a["process.pid"] == int64(9) {
			mine++
			require.Contains(t, a, "process.stack.frames")
			continue
		}
		if frames, ok := a["process.stack.frames"].([]any); ok {
			text++
			require.Len(t, frames, 32)
			require.True(t, a["process.stack.cut"].(bool))
		}
	}
	require.Equal(t, 1, mine)
	require.Less(t, records, 600)
	require.Less(t, text, 200)
	require.GreaterOrEqual(t, b.Own(t, "postponed"), int64(601-records))
	require.EqualValues(t, records-mine-text, b.Own(t, "limited", attribute.String("limit", "text")))
}

func TestEventsSwitchedOffAreReadAndNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.ProcessStack.Enabled, b.config.Events.ProcessStackMoving.Enabled, b.config.Events.ProcessStackDoing.Enabled = false, false, false
	b.Resolver.Know(rank(42, 3))
	b.at(42, func(*fake) {})
	b.start(t)
	b.looks(t, 4)
	for range 2 { // it moves on before each look: it never stands still again
		b.works(42)
		b.looks(t, 1)
	}
	require.EqualValues(t, 1, b.Own(t, "taken"))
	require.Empty(t, b.Records)
}

func TestWhatAllProcessesRefuseBreaksTheSource(t *testing.T) {
	b := newBench(t)
	b.config.ErrorMode = record.Ignore
	b.Resolver.Know(rank(42, 3))
	b.at(42, func(*fake) {})
	b.start(t)
	b.looks(t, 2)
	broken := errors.New("no proc")
	b.source.mu.Lock()
	b.source.failing = broken
	b.source.mu.Unlock()
	b.looks(t, probereceiver.MaxFailures)
	require.ErrorIs(t, b.Host.Status(t).Err(), broken)
}
