package pyexceptionreceiver

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/pyexceptionreceiver/internal/metadata"
)

var start = probereceivertest.Start

// fakeSource delivers the events a test gives it and hears what is to be watched.
type fakeSource struct {
	*probereceivertest.EventSource[pyexception.Event]
	watches chan []probe.Process
}

func (f *fakeSource) Watch(processes []probe.Process) (probe.Watched, error) {
	select {
	case <-f.Closed:
		return probe.Watched{}, probe.ErrClosed
	case f.watches <- processes:
		return probe.Watched{Libraries: 4, Over: 5, Failed: 6, Unreadable: 7, Err: errors.New("CPython 3.15 is not known")}, nil
	}
}

// bench is a receiver on fakes, whose clocks the test moves.
type bench struct {
	*probereceivertest.Bench
	source *fakeSource // the last that was opened
	wanted func(uint32) bool
	config *Config
	read   int64
}

var known = identity.Process{PID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1", StartTime: start}

func newBench(t *testing.T) *bench {
	b := &bench{Bench: probereceivertest.NewBench(t, metadata.Type), config: createDefaultConfig().(*Config)}
	b.Resolver.Know(known)
	b.config.Identity = &probereceivertest.IdentityID
	return b
}

func (b *bench) factory(ticks probereceiver.Ticks) receiver.Factory {
	return newFactory(surroundings{ticks: ticks, open: func(_ *Config, wanted func(uint32) bool) (source, error) {
		b.wanted = wanted
		b.source = &fakeSource{probereceivertest.NewEventSource[pyexception.Event](), make(chan []probe.Process, 100)}
		return b.source, b.Open()
	}})
}

func (b *bench) receiver(t *testing.T, next consumer.Logs) receiver.Logs {
	r, err := b.factory(b.Ticks).CreateLogs(t.Context(), b.Settings, b.config, next)
	require.NoError(t, err)
	return r
}

func (b *bench) start(t *testing.T) { b.StartAll(t, b.receiver(t, b.Sink)) }

// raise delivers an exception of a process so long after start and waits until it was taken.
func (b *bench) raise(t *testing.T, pid uint32, after time.Duration) {
	t.Helper()
	e := raised()
	e.PID, e.Thread, e.Time = pid, pid, start.Add(after)
	b.source.Events <- e
	b.read++
	b.Eventually(t, "exceptions", b.read)
}

func TestLife(t *testing.T) {
	probereceivertest.Life(t, func(t *testing.T) *probereceivertest.Subject {
		b, after := newBench(t), time.Duration(0)
		return &probereceivertest.Subject{
			Bench: b.Bench,
			New: func(t *testing.T, mode record.ErrorMode, next consumer.Logs) []component.Component {
				b.config.ErrorMode = mode
				return []component.Component{b.receiver(t, next)}
			},
			Fire: func(t *testing.T) {
				after += window // so many are told of one process
				b.raise(t, 42, after)
			},
			Break:           func(_ *testing.T, err error) { b.source.Broken <- err },
			NeedsIdentity:   true,
			WithoutIdentity: func() { b.config.Identity = nil },
		}
	})
}

func TestConsumeContract(t *testing.T) {
	b := newBench(t)
	ranks := make([]identity.Process, 1000)
	for i := range ranks {
		ranks[i] = identity.Process{PID: uint32(i + 1), Rank: i, StartTime: start}
	}
	b.Resolver.Know(ranks...)
	probereceivertest.Contract(t, b.Bench, &probereceivertest.Generator{Attribute: "process.pid", Make: func(pid uint32) string {
		e := raised()
		e.PID = pid
		b.source.Events <- e
		return fmt.Sprint(pid)
	}}, b.config, func() receiver.Factory { return b.factory(probereceiver.RealTime) })
}

func TestExceptionOfARankBecomesARecord(t *testing.T) {
	b := newBench(t)
	b.start(t)
	b.raise(t, 42, 0)
	r := b.Next(t)
	require.Equal(t, "process.exception", r.EventName())
	a := r.Attributes().AsRaw()
	require.Equal(t, "ValueError", a["exception.type"])
	require.Equal(t, "bad batch 3", a["exception.message"])
	require.Equal(t, "ValueError: bad batch 3 at train.py:5 in step", a["tracecore.exception.summary"])
	require.Equal(t, "/app/train.py", a["code.file.path"])
	require.EqualValues(t, 5, a["code.line.number"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "claimed", a["tracecore.trust"])
	require.NotContains(t, a, "tracecore.exception.class")
}

func TestWhatOthersDisplayIsNobodysBusiness(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(known, identity.Process{PID: 77, Comm: "python", Rank: identity.Unknown})
	b.start(t)
	require.True(t, b.wanted(42))
	require.False(t, b.wanted(77), "no rank")
	require.False(t, b.wanted(99), "not known")
	b.raise(t, 77, 0)
	b.raise(t, 99, 0)
	b.raise(t, 42, 0)
	require.EqualValues(t, 42, b.Next(t).Attributes().AsRaw()["process.pid"])
	require.Empty(t, b.Records)
}

func TestTheLastBeforeAFailureIsToldWithIt(t *testing.T) {
	b := newBench(t)
	b.start(t)
	for i := range mostOfProcess + 3 {
		b.raise(t, 42, time.Duration(i)*time.Millisecond)
	}
	for range mostOfProcess {
		require.NotContains(t, b.Next(t).Attributes().AsRaw(), "tracecore.exception.final")
	}
	require.Empty(t, b.Records)
	b.Eventually(t, "exceptions_untold", 2) // counted after "exceptions"
	b.Resolver.Exit(t, identity.Exit{Process: known, Code: 1, Time: start.Add(time.Second)})
	r := b.Next(t)
	require.Equal(t, start.Add((mostOfProcess+2)*time.Millisecond).UnixNano(), int64(r.Timestamp()))
	require.Equal(t, "status", r.Attributes().AsRaw()["tracecore.exception.final"])
	require.EqualValues(t, 2, b.Own(t, "exceptions_untold"), "it is told")
}

// Processes of one user end without end while the receiver waits for the next consumer, or reads: the end of another's rank is told.
func TestEndsOfOneUserHideNoneOfAnother(t *testing.T) {
	b := newBench(t)
	victim := known
	victim.Domain = "user another"
	b.Resolver.Know(victim)
	b.start(t)
	b.raise(t, 42, 0)
	require.NotContains(t, b.Next(t).Attributes().AsRaw(), "tracecore.exception.final")
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for range 4 {
		flood.Go(func() {
			for pid := uint32(1000); ; pid++ {
				select {
				case <-stop:
					return
				default:
					b.Resolver.Exit(t, identity.Exit{Process: identity.Process{PID: pid, Domain: "user mine", StartNS: uint64(pid)}, Code: 1, Time: start})
				}
			}
		})
	}
	require.Eventually(t, func() bool { return b.Own(t, "exits_dropped") > 0 }, hosttest.Patience, time.Millisecond)
	b.Resolver.Exit(t, identity.Exit{Process: victim, Code: 1, Time: start.Add(time.Second)})
	r := b.Next(t)
	close(stop)
	flood.Wait()
	require.Equal(t, "status", r.Attributes().AsRaw()["tracecore.exception.final"])
}

// Ends that find no room are counted: the last exceptions of these processes are not told with them.
func TestEndsThatFindNoRoomAreCounted(t *testing.T) {
	b := newBench(t)
	b.start(t)
	require.Eventually(t, func() bool {
		for range 100 * pendingExits {
			b.Resolver.Exit(t, identity.Exit{Process: known, Code: 1, Time: start})
		}
		return b.Own(t, "exits_dropped") > 0
	}, hosttest.Patience, time.Millisecond)
}

func TestInterpretersOfTheRanksAreLookedForAgainAndAgain(t *testing.T) {
	b := newBench(t)
	b.config.MaxProcesses = 2
	b.Resolver.Know(identity.Process{PID: 99, StartTime: start}, identity.Process{PID: 44, StartTime: start}, identity.Process{PID: 42, StartTime: start})
	b.start(t)
	want := []probe.Process{{PID: 42, Start: start}, {PID: 44, Start: start}}
	require.Equal(t, want, <-b.source.watches, "at once, and no more than are allowed")
	b.Tick(t, b.config.ScanInterval, time.Time{})
	require.Equal(t, want, <-b.source.watches)
	b.Eventually(t, "processes_skipped", 2*(1+7))
	for name, value := range map[string]int64{
		"probe_up": 1, "probe_dropped": 2, "probe_invalid": 3, "interpreters": 4, "interpreters_skipped": 5, "interpreters_failed": 6,
	} {
		require.Equal(t, value, b.Own(t, name), name)
	}
}

func TestEventSwitchedOffIsReadAndNotEmitted(t *testing.T) {
	b := newBench(t)
	b.config.Events.ProcessException.Enabled = false
	b.start(t)
	b.raise(t, 42, 0)
	require.Empty(t, b.Records)
}

// raisedTo is a resolver that is told of what ends programs.
type raisedTo struct {
	identity.Resolver
	pids []uint32
}

func (r *raisedTo) Raised(p identity.Process) { r.pids = append(r.pids, p.PID) }

func TestTheIdentityIsToldWhatEndsARank(t *testing.T) {
	b := newBench(t)
	to := &raisedTo{Resolver: b.Resolver}
	x := &exceptions{config: &Config{}, resolver: to, displays: newDisplays()}
	for pid, change := range map[uint32]func(*pyexception.Event){
		42: func(*pyexception.Event) {},
		43: func(*pyexception.Event) {},                                               // no rank
		44: func(e *pyexception.Event) { e.Thread++ },                                 // of a thread
		45: func(e *pyexception.Event) { e.Chain[0].Type = "ConnectionRefusedError" }, // it waits
	} {
		rank := known
		if rank.PID = pid; pid == 43 {
			rank.Rank = identity.Unknown
		}
		b.Resolver.Know(rank)
		e := raised()
		e.PID, e.Thread, e.Time = pid, pid, start
		change(&e)
		x.take(&e)
	}
	require.Equal(t, []uint32{42}, to.pids)
}

// What the words of an exception are known for takes long to find out. A program may display without end: what is not told is not looked
// into, but for the last one, with the end of its process.
func TestWhatIsNotToldIsNotLookedInto(t *testing.T) {
	b := newBench(t)
	to := &raisedTo{Resolver: b.Resolver}
	x := &exceptions{config: &Config{}, resolver: to, displays: newDisplays()}
	for i := range 1000 {
		e := raised()
		e.PID, e.Thread, e.Time = 42, 42, start.Add(time.Duration(i)*time.Millisecond)
		x.take(&e)
	}
	require.Len(t, to.pids, mostOfProcess)
	x.ended(&identity.Exit{Process: known, Code: 1, Time: start.Add(time.Second)})
	require.Len(t, to.pids, mostOfProcess+1)
}
