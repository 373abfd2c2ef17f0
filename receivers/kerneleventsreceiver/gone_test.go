package kerneleventsreceiver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

// worker4 is a rank of a job of four that began a minute before the first agent.
func worker4(rank int) identity.Process {
	began := start.Add(-time.Minute)
	pid := uint32(100 + rank)
	return identity.Process{
		PID: pid, RankPID: pid, Comm: "python", Rank: rank, LocalRank: rank, WorldSize: 4, JobID: "llm", Domain: "user 1000",
		StartNS: uint64(1000 + rank), StartTime: began, RankStart: began,
	}
}

func workers4(ranks ...int) (all []identity.Process) {
	for _, rank := range ranks {
		all = append(all, worker4(rank))
	}
	return all
}

// agents are processes of the receiver, one after another, on one storage.
type agents struct {
	*bench
	t      *testing.T
	folder string
}

func newAgents(t *testing.T) *agents { return &agents{bench: newBench(t), t: t, folder: t.TempDir()} }

// records are what one tells in its life, in which it does that once all ranks were told of.
func (a *agents) records(living []identity.Process, do func(told func() plog.LogRecord)) (events []string) {
	a.Resolver.Know(living...)
	a.run(a.t, a.folder, func() {
		do(func() plog.LogRecord {
			r := a.Next(a.t)
			events = append(events, fmt.Sprint(r.EventName(), " ", r.Attributes().AsRaw()["gen_ai.training.rank"]))
			return r
		})
	})
	return events
}

func starts4(n int) func(told func() plog.LogRecord) {
	return func(told func() plog.LogRecord) {
		for range n {
			told()
		}
	}
}

func TestARankThatIsGoneAtTheNextStartIsTold(t *testing.T) {
	a := newAgents(t)
	require.Equal(t, []string{"process.start 0", "process.start 1", "process.start 2", "process.start 3"}, a.records(workers4(0, 1, 2, 3), starts4(4)))
	before := time.Now()
	a.records(workers4(0, 1, 3), func(told func() plog.LogRecord) {
		r := told()
		require.Equal(t, "process.gone", r.EventName())
		require.WithinRange(t, r.Timestamp().AsTime(), before, time.Now(), "when it was found")
		require.Contains(t, r.Body().Str(), "rank 2 (python, pid 102) ended within ")
		got := r.Attributes().AsRaw()
		require.Positive(t, got["process.gone.unwatched_ns"])
		require.Less(t, got["process.gone.unwatched_ns"], int64(time.Minute))
		require.Subset(t, got, map[string]any{
			"tracecore.trust": "proven", "process.pid": int64(102), "process.start_ns": int64(1002), "gen_ai.training.rank": int64(2), "gen_ai.training.world_size": int64(4),
			"gen_ai.training.job_id": "llm", "gen_ai.training.job_domain": "user 1000", "gen_ai.training.rank_pid": int64(102),
			"gen_ai.training.rank_start_unix_nano": start.Add(-time.Minute).UnixNano(),
		})
		require.NotContains(t, got, "process.gone.again")
		starts4(3)(told)
	})
	require.Equal(t, []string{"process.start 0", "process.start 1", "process.start 3"}, a.records(workers4(0, 1, 3), starts4(3)), "it is told once")
}

// The end of a rank that was seen is none that nobody saw, also where the agent is killed after it.
func TestAnEndThatWasToldIsNotTellingAgain(t *testing.T) {
	a := newAgents(t)
	a.records(workers4(0, 1, 2, 3), func(told func() plog.LogRecord) {
		starts4(4)(told)
		a.Resolver.Know(workers4(0, 1, 3)...)
		a.Resolver.Exit(t, identity.Exit{Process: worker4(2), Signal: 9})
		require.NotContains(t, told().Attributes().AsRaw(), "process.exit.watched_ns", "all ranks lived at its start")
	})
	require.Equal(t, []string{"process.start 0", "process.start 1", "process.start 3"}, a.records(workers4(0, 1, 3), starts4(3)))
}

// Without a note, or with that of another job, an end says since when its job is watched, unless all ranks live.
func TestAnEndSaysSinceWhenItsJobIsWatched(t *testing.T) {
	watched := func(a *agents, living []identity.Process, of int) (says bool) {
		a.records(living, func(told func() plog.LogRecord) {
			starts4(len(living))(told)
			a.Resolver.Exit(t, identity.Exit{Process: worker4(of), Code: 1})
			_, says = told().Attributes().AsRaw()["process.exit.watched_ns"]
		})
		return says
	}
	a := newAgents(t)
	require.True(t, watched(a, workers4(0, 1, 3), 0), "rank 2 may have died before")
	require.True(t, watched(a, workers4(1, 3), 1), "the next agent knows no more")
	require.False(t, watched(newAgents(t), workers4(0, 1, 2, 3), 0))
	young := workers4(0, 1, 3)
	for i := range young {
		young[i].StartNS = uint64(kmsg.Now()) + uint64(time.Hour)
	}
	a = newAgents(t)
	a.records(young, func(told func() plog.LogRecord) {
		starts4(3)(told)
		a.Resolver.Exit(t, identity.Exit{Process: young[0], Code: 1})
		require.NotContains(t, told().Attributes().AsRaw(), "process.exit.watched_ns", "it began while somebody watched")
	})
}

func TestWithoutAStorageNobodyIsGone(t *testing.T) {
	b := newBench(t)
	b.Resolver.Know(workers4(0, 1, 3)...)
	b.start(t)
	for range 3 {
		require.Equal(t, "process.start", b.Next(t).EventName())
	}
	b.Resolver.Exit(t, identity.Exit{Process: worker4(0), Code: 1})
	require.Contains(t, b.Next(t).Attributes().AsRaw(), "process.exit.watched_ns")
}

// ledger is a roll over a storage, with a clock.
type ledger struct {
	*roll
	t     *testing.T
	clock kmsg.Moment
}

const minute = kmsg.Moment(time.Minute)

// newLedger looks at ranks at a minute, and gives what the next agent finds then.
func newLedger(t *testing.T, living ...identity.Process) *ledger {
	b := newBench(t)
	t.Cleanup(b.keeps(t, t.TempDir()))
	w := newWatched(b.Settings, &storageID, "BOOT")
	require.NoError(t, w.open(t.Context(), b.Host))
	t.Cleanup(w.close)
	l := &ledger{t: t, clock: minute}
	l.next(w)
	l.look(living)
	l.note(start)
	l.clock = 3 * minute
	l.next(w)
	return l
}

func (l *ledger) next(w *watched) {
	l.roll = newRoll(w)
	l.now = func() kmsg.Moment { return l.clock }
	l.open()
}

// gone is which ranks are gone where these live.
func (l *ledger) gone(living ...identity.Process) (said []string) {
	var r probereceivertest.Resolver
	r.Know(living...)
	for _, p := range l.absent(living, r.EndedUnseen) {
		said = append(said, strings.TrimSpace(fmt.Sprint(p.Rank, " ", p.unwatched, map[bool]string{true: " again"}[p.again])))
	}
	return said
}

func TestWhoIsGone(t *testing.T) {
	after := func(rank int, startNS kmsg.Moment) identity.Process {
		p := worker4(rank)
		p.PID, p.RankPID, p.StartNS = p.PID+100, p.PID+100, uint64(startNS)
		return p
	}
	other := worker4(2)
	other.StartNS = uint64(2 * minute) // another process has its pid
	elsewhere := after(2, 2*minute)
	elsewhere.Domain = "user 1001"
	shell := worker4(2)
	shell.Comm = "bash"
	wrapped, wrapper := worker4(2), shell
	wrapped.Comm, wrapped.PID, wrapped.StartNS, wrapped.Wrapped = "trainer", wrapped.PID+50, wrapped.StartNS+1, true
	sleep := after(2, 2*minute)
	sleep.Inherited, sleep.Comm = true, "sleep"
	young := worker4(3)
	young.StartNS = uint64(minute) + 5
	for name, tc := range map[string]struct{ before, living, want any }{
		"all live":                           {workers4(0, 1, 2, 3), workers4(0, 1, 2, 3), nil},
		"one is gone":                        {workers4(0, 1, 2, 3), workers4(0, 1, 3), []string{"2 2m0s"}},
		"all are gone":                       {workers4(2, 3), workers4(), []string{"2 2m0s", "3 2m0s"}},
		"its pid is another process's":       {workers4(2), []identity.Process{other}, []string{"2 2m0s again"}},
		"it was started again":               {workers4(2), []identity.Process{after(2, 2*minute)}, []string{"2 2m0s again"}},
		"a shell's child of before goes on":  {[]identity.Process{shell}, []identity.Process{after(2, minute-1)}, nil},
		"its wrapper goes on":                {[]identity.Process{wrapped}, []identity.Process{wrapper}, []string{"2 2m0s"}},
		"its wrapper waits":                  {[]identity.Process{wrapped}, []identity.Process{wrapper, sleep}, []string{"2 2m0s"}},
		"its wrapper starts it again":        {[]identity.Process{wrapped}, []identity.Process{wrapper, after(2, 2*minute)}, []string{"2 2m0s again"}},
		"a worker of before looks for it":    {workers4(2), []identity.Process{after(2, minute-1)}, []string{"2 2m0s"}},
		"another user's rank of that number": {workers4(2), []identity.Process{elsewhere}, []string{"2 2m0s"}},
		"it had begun as that was noted":     {[]identity.Process{young}, workers4(), []string{"3 1m59.999999995s"}},
		"nobody lived":                       {workers4(), workers4(0), nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t, tc.before.([]identity.Process)...)
			require.Equal(t, minute, l.seen)
			living, _ := tc.living.([]identity.Process)
			want, _ := tc.want.([]string)
			require.Equal(t, want, l.gone(living...))
		})
	}
}

// The end of what a wrapper wraps is the rank's, also where the wrapper has ended before.
func TestTheEndOfAWrappedRankIsNoted(t *testing.T) {
	wrapped := worker4(2)
	wrapped.PID, wrapped.StartNS, wrapped.Wrapped = wrapped.PID+50, wrapped.StartNS+1, true
	for name, by := range map[string]*identity.Wrapper{"its wrapper lives": nil, "its wrapper has ended": {PID: wrapped.RankPID, Outlived: true}} {
		l := newLedger(t)
		l.look([]identity.Process{wrapped, worker4(3)})
		l.living[wrapped.PID].Since = 2 * minute
		e := identity.Exit{Process: wrapped, Code: 1, Wrapper: by}
		require.Equal(t, time.Minute, l.watchedFor(&e), name)
		l.ended(&e)
		require.Len(t, l.living, 1, name)
	}
}

// wrappers is a resolver that is told who was the rank.
type wrappers struct {
	probereceivertest.Resolver
	led []uint32
}

func (w *wrappers) Joined(identity.Process) {}
func (w *wrappers) Trains(identity.Process) {}
func (w *wrappers) Led(p identity.Process)  { w.led = append(w.led, p.PID) }

// The identity probe of the next agent is told which processes were the ranks, but of one whose end it has told as that.
func TestTheNextAgentIsToldWhoWasTheRank(t *testing.T) {
	wrapped := identity.Exit{Process: worker4(2)}
	wrapped.Inherited = true // its wrapper was not known as one by then
	for name, tc := range map[string]struct {
		ended []identity.Exit
		led   []uint32
	}{
		"none has ended":        {nil, []uint32{101, 102}},
		"ranks have ended":      {[]identity.Exit{{Process: worker4(1)}}, []uint32{102}},
		"a wrapped one has too": {[]identity.Exit{{Process: worker4(1)}, wrapped}, []uint32{102}},
	} {
		t.Run(name, func(t *testing.T) {
			resolver := &wrappers{}
			w := &worker{resolver: resolver, roll: newLedger(t, workers4(1, 2)...).roll, config: &Config{ProcessExits: true}, convert: newTestConverter(), put: func(plog.Logs) {}, putThen: func(plog.Logs, func()) {}}
			w.exits, _ = probereceiver.WatchExits(resolver, pendingExits, nil, nil)
			for _, e := range tc.ended {
				resolver.Exit(t, e)
			}
			w.tellGone(start)
			require.ElementsMatch(t, tc.led, resolver.led)
		})
	}
}

// keeper is a resolver that knows what processes were sent.
type keeper struct {
	probereceivertest.Resolver
	sent map[uint32]identity.Sent
	told map[uint32]identity.Sent
}

func (k *keeper) Sent(p identity.Process) (identity.Sent, bool) {
	s, is := k.sent[p.PID]
	return s, is
}

func (k *keeper) WasSent(p identity.Process, s identity.Sent) { k.told[p.PID] = s }

// The identity probe of the next agent is told what the ranks were sent, also where the agent is killed as soon as it has looked.
func TestTheNextAgentIsToldWhatARankWasSent(t *testing.T) {
	sent := identity.Sent{
		Stopped: identity.Signal{Number: 19, Time: start.UTC(), Sender: identity.Sender{PID: 7, Comm: "kill", ContainerID: "c1", Relation: identity.RelationOther}}, Switches: 42,
	}
	a, first := newAgents(t), probereceivertest.NewStorage()
	a.config.Storage = &storageID
	a.Host.Extensions[storageID] = first
	resolver := &keeper{sent: map[uint32]identity.Sent{102: sent}, told: map[uint32]identity.Sent{}}
	a.Host.Extensions[probereceivertest.IdentityID] = resolver
	resolver.Know(workers4(1, 2)...)
	r := a.receiver(t, a.Sink)
	require.NoError(t, r.Start(t.Context(), a.Host))
	a.Next(t) // a start, of the first look
	a.Next(t)
	require.NoError(t, r.Shutdown(t.Context()))
	require.Empty(t, resolver.told)
	a.next(t, first, 2)
	require.Equal(t, map[uint32]identity.Sent{102: sent}, resolver.told)
}

// What is not there is not gone where nothing shows it: a container that does not see the host's processes.
func TestWhatNothingShowsIsNotGone(t *testing.T) {
	l := newLedger(t, workers4(0, 1, 2, 3)...)
	require.Empty(t, l.absent(nil, func(identity.Born) bool { return false }))
}

func TestANoteOfRanksThatMakesNoSenseIsNone(t *testing.T) {
	good, err := json.Marshal([]onRoll{{Process: worker4(2)}})
	require.NoError(t, err)
	many := "[" + strings.TrimSuffix(strings.Repeat("{},", mostOnRoll+1), ",") + "]"
	for name, tc := range map[string]struct{ text, seen string }{
		"of the future":  {string(good), "9223372036854775807"},
		"of no time":     {string(good), "-1"},
		"another kind":   {`{"a":1}`, "1"},
		"of a wrong pid": {`[{"PID":"x"}]`, "1"},
		"too many":       {many, "1"},
		"too long":       {`["` + strings.Repeat("x", mostRollText) + `"]`, "1"},
	} {
		l := newLedger(t)
		require.NoError(t, l.watched.keep(rollKey, []byte(tc.text)), name)
		require.NoError(t, l.watched.keep(rollSeenKey, []byte(tc.seen)), name)
		l.next(l.watched)
		require.Empty(t, l.gone(), name)
	}
	l := newLedger(t)
	require.NoError(t, l.watched.keep(rollKey, good))
	l.next(l.watched)
	require.Len(t, l.gone(), 1)
	l.watched.boot = "another"
	l.next(l.watched)
	require.Empty(t, l.gone(), "a reboot ends all, and says so itself")
}

// Two starts in short order: the second finds what the first found and noted.
func TestTwoRestarts(t *testing.T) {
	l := newLedger(t, workers4(0, 1, 2, 3)...)
	require.Equal(t, []string{"2 2m0s"}, l.gone(workers4(0, 1, 3)...))
	l.clock += minute
	l.next(l.watched)
	require.Equal(t, []string{"2 3m0s"}, l.gone(workers4(0, 1, 3)...), "the first was killed before it looked")
	l.look(workers4(0, 1, 3))
	l.note(start)
	l.next(l.watched)
	require.Empty(t, l.gone(workers4(0, 1, 3)...))
}

// One user with thousands of ranks takes no room from another.
func TestTheRollIsBounded(t *testing.T) {
	var flood []identity.Process
	for i := range uint32(3 * mostOnRoll) {
		p := worker4(1)
		p.PID, p.JobID = 1000+i, strings.Repeat("<", 256)
		flood = append(flood, p)
	}
	mine := worker4(2)
	mine.Domain = "user 1001"
	l := newLedger(t, append([]identity.Process{mine}, flood...)...)
	require.LessOrEqual(t, len(l.before), mostOnRoll)
	require.Contains(t, l.gone(flood...), "2 2m0s")
}

func TestAnEndIsNotedAtOnceAndAFloodOfThemLater(t *testing.T) {
	const many = 2 * mostEndsNoted
	var all []identity.Process
	for i := range uint32(many) {
		p := worker4(1)
		p.PID += i
		all = append(all, p)
	}
	l := newLedger(t, all...)
	l.look(all)
	l.note(start)
	r := l.roll
	for i := range all {
		require.Len(t, r.ended(&identity.Exit{Process: all[i]}), 1)
		r.changed(start)
	}
	kept := func() int {
		l.next(l.watched)
		return len(l.before)
	}
	require.Equal(t, many-mostEndsNoted, kept())
	r.note(start)
	require.Zero(t, kept())
}
