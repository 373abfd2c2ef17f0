package ncclcallreceiver

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// worker is a job of one process that calls once a second, and what it does besides.
type worker struct {
	*standstill
	at    float64
	calls uint64
	last  float64
	cpu   time.Duration
	main  float64 // cores that its main thread uses
	state socketstall.State
	ends  bool // it is a zombie, and the whole process ends
}

func newWorker() *worker {
	w := &worker{standstill: newStandstill(2*time.Second, time.Minute), state: socketstall.Sleeping}
	w.does = func(pids []uint32) map[uint32]*activity.Process {
		all := map[uint32]*activity.Process{}
		for _, pid := range pids {
			all[pid] = &activity.Process{CPU: w.cpu, MainCPU: w.cpu, State: w.state, Ending: w.ends, Inside: &activity.Inside{Compared: true}}
		}
		return all
	}
	return w
}

// second lets a second pass, in which it calls or not, and returns what is told.
func (w *worker) second(call bool) []change {
	w.at++
	w.cpu += time.Duration(w.main * float64(time.Second))
	if call {
		w.calls++
		w.last = w.at - 0.5
	}
	return w.look(scanAt(w.at, calling(w.calls, w.last))).changes
}

func (w *worker) work(seconds int) {
	for range seconds {
		w.second(true)
	}
}

func TestSilenceOfAProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(*worker)
		seconds int
		want    map[what]int // what is told, and after how many seconds
		silence socketstall.Silence
	}{
		"asleep":                       {func(w *worker) {}, 10, map[what]int{stopped: 2, doing: 3}, socketstall.Overdue},
		"stopped":                      {func(w *worker) { w.state = socketstall.Stopped }, 10, map[what]int{stopped: 2}, socketstall.Overdue},
		"its main thread has ended":    {func(w *worker) { w.state = socketstall.Zombie }, 10, map[what]int{stopped: 2}, socketstall.Overdue},
		"it ends":                      {func(w *worker) { w.state, w.ends = socketstall.Zombie, true }, 100, map[what]int{stopped: 2}, socketstall.Usual},
		"it hangs in its end":          {func(w *worker) { w.state, w.ends = socketstall.Zombie, true }, 140, map[what]int{stopped: 2, doing: 121}, socketstall.Overdue},
		"it computes":                  {func(w *worker) { w.main = 1 }, 19, map[what]int{stopped: 2}, socketstall.Usual},
		"it computes for long":         {func(w *worker) { w.main = 1 }, 30, map[what]int{stopped: 2, doing: 20}, socketstall.Long},
		"it computes for far too long": {func(w *worker) { w.main = 1 }, 700, map[what]int{stopped: 2, doing: 600}, socketstall.Overdue},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker()
			w.work(15)
			tc.edit(w)
			got := map[what]int{}
			for second := range tc.seconds {
				for _, c := range w.second(false) {
					require.LessOrEqual(t, got[c.what], second)
					got[c.what] = second + 1
				}
			}
			require.Equal(t, tc.silence, w.processes[42].Silence)
			require.Equal(t, tc.want, got)
		})
	}
}

// One that stands before anybody could look into it is told of as soon as somebody can.
func TestWhatAProcessDoesIsToldWhereTheFirstLooksFail(t *testing.T) {
	w := newWorker()
	w.work(15)
	does := w.does
	w.does = func([]uint32) map[uint32]*activity.Process { return nil }
	require.Empty(t, w.second(false))
	told := w.second(false)
	require.Len(t, told, 1)
	require.Equal(t, stopped, told[0].what)
	require.Empty(t, w.second(false))
	w.does = does
	for range 6 {
		told = append(told, w.second(false)...)
	}
	require.Len(t, told, 2)
	require.Equal(t, doing, told[1].what)
	require.Equal(t, socketstall.Overdue, told[1].process.Silence)
}

// A process of which little is known yet may compile, or load its data.
func TestAYoungProcessIsGivenTime(t *testing.T) {
	w := newWorker()
	w.work(3)
	for range 55 {
		w.second(false)
		require.Equal(t, socketstall.Usual, w.processes[42].Silence)
	}
	for range 10 {
		w.second(false)
	}
	require.Equal(t, socketstall.Overdue, w.processes[42].Silence)
}

// A pause that comes again and again is usual, and after the third is told no more.
func TestUsualPausesAreLearned(t *testing.T) {
	w := newWorker()
	w.work(15)
	told := func() (n int) {
		w.main = 1 // it evaluates
		for range 8 {
			n += len(w.second(false))
		}
		w.main = 0
		w.work(15)
		return n
	}
	for range activity.Repeats {
		require.Positive(t, told())
	}
	require.Zero(t, told())
	for range 20 {
		w.second(false)
	}
	require.Equal(t, socketstall.Overdue, w.processes[42].Silence, "twice that is not")
}

// What was told as a fault teaches no pause: the fourth hang is told as the first was.
func TestTheSameHangIsToldEachTime(t *testing.T) {
	for name, hold := range map[string]socketstall.State{"asleep": socketstall.Sleeping, "stopped": socketstall.Stopped} {
		t.Run(name, func(t *testing.T) {
			w := newWorker()
			w.work(15)
			for range 2 * activity.Repeats {
				w.state = hold
				at := map[what]int{}
				overdue := 0
				for second := range 20 {
					for _, c := range w.second(false) {
						at[c.what] = cmp.Or(at[c.what], second+1)
					}
					if overdue == 0 && w.processes[42].Silence == socketstall.Overdue {
						overdue = second + 1
					}
				}
				require.Equal(t, 2, at[stopped])
				require.LessOrEqual(t, overdue, 3)
				require.Positive(t, overdue)
				w.state = socketstall.Sleeping
				w.work(15)
			}
		})
	}
}

// A hang that lasts for days is told again now and then: else its verdict would be over.
func TestAStandstillThatLastsIsToldAgain(t *testing.T) {
	w := newWorker()
	w.work(15)
	at := map[what][]int{}
	for second := range 2*int(activity.Again/time.Second) + 60 {
		for _, c := range w.second(false) {
			at[c.what] = append(at[c.what], second)
		}
	}
	require.Len(t, at[stopped], 1)
	require.Len(t, at[doing], 3, "that it rests too long, and after each half an hour: %v", at[doing])
	require.Equal(t, int(activity.Again/time.Second), at[doing][2]-at[doing][1])
	w.work(15)
	for range int(activity.Again/time.Second) + 60 {
		w.work(1)
	}
}

// Nor is it the measure of a communicator that is used rarely.
func TestAHangIsNoMeasureOfARareCommunicator(t *testing.T) {
	w := newWorker()
	others := uint64(0)
	second := func(one, other bool) (stops int) {
		w.at++
		if one {
			w.calls, w.last = w.calls+1, w.at-0.5
		}
		if other {
			others++
		}
		second := calling(others, w.at-0.4)
		second.Address, second.Hash = 2, 8
		for _, c := range w.look(scanAt(w.at, calling(w.calls, w.last), second)).changes {
			if c.what == stopped && c.Address == 1 {
				stops++
			}
		}
		return stops
	}
	pass := func(seconds int, one, other bool) (stops int) {
		for range seconds {
			stops += second(one, other)
		}
		return stops
	}
	pass(15, true, true)
	pass(600, false, false)
	pass(15, true, true)
	require.Zero(t, pass(11, false, true))
	require.Equal(t, 1, pass(2, false, true), "six times the patience, as before the hang")

	for range activity.Repeats { // its process goes on: it is used rarely
		pass(1, true, true)
		pass(40, false, true)
	}
	pass(1, true, true)
	require.Zero(t, pass(60, false, true))
	require.Equal(t, 1, pass(30, false, true), "twice what it usually rests")
}

func TestCommunicatorThatIsUsedRarelyIsToldLater(t *testing.T) {
	s := newStandstill(2*time.Second, time.Minute)
	rarely := calling(3, 0)
	rarely.Address = 2
	for second := range 11 {
		at := float64(second + 1)
		require.Empty(t, s.look(scanAt(at, calling(uint64(second+5), at-0.5), rarely)).changes, second)
	}
	l := s.look(scanAt(12, calling(30, 11.5), rarely))
	require.Len(t, l.changes, 1)
	require.EqualValues(t, 3, l.changes[0].Collectives)
}

func TestEndOfWhatStoodIsTold(t *testing.T) {
	for reason, end := range map[string]*ncclcall.Event{
		"exited": nil, "destroyed": {Kind: ncclcall.Destroy, PID: 42, Address: 1}, "aborted": {Kind: ncclcall.Abort, PID: 42, Address: 1},
	} {
		s := newStandstill(2*time.Second, time.Minute)
		s.look(scanAt(1, calling(5, 0)))
		require.Len(t, s.look(scanAt(2, calling(5, 0))).changes, 1)
		if end != nil {
			s.ended(end)
		}
		l := s.look(scanAt(3))
		require.Len(t, l.changes, 1)
		require.Equal(t, ended, l.changes[0].what)
		require.Equal(t, reason, l.changes[0].reason)
		require.EqualValues(t, 5, l.changes[0].Collectives)
	}
	s := newStandstill(2*time.Second, time.Minute)
	s.look(scanAt(1, calling(5, 0)))
	require.Empty(t, s.look(scanAt(2)).changes, "it was not said to stand")
}

// TestEndOfWhatIsUsedIsTold: others may wait in it for this rank. It has called what it called until then.
func TestEndOfWhatIsUsedIsTold(t *testing.T) {
	unknown, alone := calling(5, 0.9), calling(5, 0.9)
	unknown.Identity, alone.Rank, alone.Size = ncclcall.Unread, 0, 1
	for name, tc := range map[string]struct {
		is    []ncclcall.Communicator
		tells int
	}{
		"used": {[]ncclcall.Communicator{calling(5, 0.9)}, 1}, "nobody knows whose": {[]ncclcall.Communicator{unknown}, 0}, "of one rank": {[]ncclcall.Communicator{alone}, 0},
		"one of two that nobody can tell apart": {[]ncclcall.Communicator{calling(5, 0.9), func() ncclcall.Communicator { c := calling(7, 0.9); c.Address = 2; return c }()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandstill(2*time.Second, time.Minute)
			require.Empty(t, s.look(scanAt(1, tc.is...)).changes)
			end := &ncclcall.Event{Time: seconds(1.5), Kind: ncclcall.Destroy, PID: 42, Address: 1, Collectives: 6}
			end.Calls[ncclcall.AllReduce] = 6
			s.ended(end)
			require.Empty(t, s.look(scanAt(1.4, tc.is...)).changes, "a scan from before it")
			l := s.look(scanAt(2, tc.is[1:]...))
			require.Len(t, l.changes, tc.tells)
			for _, c := range l.changes {
				require.Equal(t, []any{ended, "destroyed", uint64(6), int32(5)}, []any{c.what, c.reason, c.Collectives, c.Rank})
			}
			require.Empty(t, s.look(scanAt(2.5, tc.is[1:]...)).changes, "once")
		})
	}
}

// TestEndIsToldWhereItsAddressIsUsedAgain: at once, and with more calls.
func TestEndIsToldWhereItsAddressIsUsedAgain(t *testing.T) {
	s := newStandstill(2*time.Second, time.Minute)
	s.look(scanAt(1, calling(5, 0.9)))
	s.ended(&ncclcall.Event{Time: seconds(1.1), Kind: ncclcall.Abort, PID: 42, Address: 1, Collectives: 5})
	next := calling(50, 1.9)
	next.Hash, next.First = 8, seconds(1.2)
	l := s.look(scanAt(2, next))
	require.Len(t, l.changes, 1)
	require.Equal(t, []any{ended, "aborted", uint64(5), uint64(7)}, []any{l.changes[0].what, l.changes[0].reason, l.changes[0].Collectives, l.changes[0].Hash})
	l = s.look(scanAt(3))
	require.Empty(t, l.changes, "the other one was not ended, and did not stand")
}

func TestCommunicatorsThatNobodyCanTellApart(t *testing.T) {
	s := newStandstill(2*time.Second, time.Minute)
	twin, other := calling(5, 0), calling(7, 0)
	twin.Address, other.Address, other.Hash = 2, 3, 8
	s.look(scanAt(1, calling(5, 0), twin, other))
	l := s.look(scanAt(2, calling(5, 0), twin, other))
	require.Len(t, l.changes, 3)
	require.Equal(t, []bool{true, true, false}, []bool{l.changes[0].twins, l.changes[1].twins, l.changes[2].twins})
}

// Processes of one user that make communicators without end hide none of another that waits.
func TestInitsOfOneUserHideNoneOfAnother(t *testing.T) {
	s := newStandstill(2*time.Second, time.Minute)
	begin := func(e *ncclcall.Event) look {
		return s.begin(e, &identity.Process{PID: e.PID, Domain: map[bool]string{true: "user 1000", false: "user 1001"}[e.PID == 42]})
	}
	flood := func(at float64) {
		for n := range uint32(2 * maxInitialize) {
			begin(&ncclcall.Event{Time: seconds(at), Kind: ncclcall.InitRank, PID: 1000 + n, Thread: 1000 + n, Rank: 0, Size: 8, Hash: 10})
		}
	}
	flood(0)
	begin(&ncclcall.Event{Time: seconds(1), Kind: ncclcall.InitRank, PID: 42, Thread: 42, Rank: 3, Size: 8, Hash: 9})
	flood(2)
	require.LessOrEqual(t, len(s.inits), maxInitialize)
	l := s.look(scanAt(30))
	require.True(t, slices.ContainsFunc(l.changes, func(c change) bool { return c.what == waiting && c.pid == 42 }))

	// Who was told to wait, and is forgotten, is told to wait no more.
	waits := map[uint32]bool{}
	told := func(l look) {
		for _, c := range l.changes {
			waits[c.pid] = c.what == waiting
		}
	}
	told(l)
	for n := range uint32(maxInitialize) {
		told(begin(&ncclcall.Event{Time: seconds(31), Kind: ncclcall.InitRank, PID: 50_000 + n, Thread: 50_000 + n, Rank: 0, Size: 8, Hash: 10}))
	}
	require.True(t, waits[42])
	ends := 0
	for pid, does := range waits {
		require.Equal(t, does, s.inits[identity.Born{PID: pid}] != nil, pid)
		if !does {
			ends++
		}
	}
	require.NotZero(t, ends)
}

func TestRankThatWaitsForOthersToJoinIsTold(t *testing.T) {
	init := func(thread uint32, at float64) *ncclcall.Event {
		return &ncclcall.Event{Time: seconds(at), Kind: ncclcall.InitRank, PID: 42, Thread: thread, Rank: 3, Size: 8, Hash: 9}
	}
	rank := &identity.Process{PID: 42, StartNS: 70}
	for name, tc := range map[string]struct {
		over func(*standstill) look
		want string
	}{
		"it calls": {func(s *standstill) look {
			c := calling(1, 20)
			c.First = seconds(20)
			return s.look(scanAt(20, c))
		}, ""},
		"it makes another": {func(s *standstill) look { return s.begin(init(42, 20), rank) }, ""},
		"it ends":          {func(s *standstill) look { return s.exited(rank.Born(), seconds(20)) }, "exited"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandstill(2*time.Second, time.Minute)
			s.begin(init(42, 0), rank)
			require.Empty(t, s.look(scanAt(9)).changes)
			l := s.look(scanAt(10))
			require.Len(t, l.changes, 1)
			require.Equal(t, waiting, l.changes[0].what)
			require.Equal(t, 10*time.Second, l.changes[0].idle)
			require.Empty(t, s.look(scanAt(11)).changes, "once")
			old := calling(4, 12)
			old.First = seconds(-5)
			require.Empty(t, s.look(scanAt(12, old)).changes, "on a communicator that is older")
			require.Empty(t, s.begin(init(43, 12), rank).changes, "another thread makes another")

			l = tc.over(s)
			require.Len(t, l.changes, 1)
			require.Equal(t, done, l.changes[0].what)
			require.Equal(t, tc.want, l.changes[0].reason)
		})
	}
	s := newStandstill(2*time.Second, time.Minute)
	s.begin(init(42, 0), rank)
	c := calling(1, 1)
	c.First = seconds(1)
	s.look(scanAt(2, c))
	require.Empty(t, s.inits, "nobody was told")

	s.begin(init(42, 20), rank)
	times := 0
	for second := 21; second <= 20+10+int(activity.Again/time.Second); second++ {
		times += len(s.look(scanAt(float64(second))).changes)
	}
	require.Equal(t, 2, times, "it waits for long, without a timeout")
}

// TestWhoWaitsInASplitIsTold: with the rank and size in the communicator that is split, by its calls or
// by the call that made it.
func TestWhoWaitsInASplitIsTold(t *testing.T) {
	event := func(kind ncclcall.Kind, at float64, hash uint64) *ncclcall.Event {
		e := &ncclcall.Event{Time: seconds(at), Kind: kind, PID: 42, Thread: 42, Rank: -1, Hash: hash, Address: 1}
		if kind == ncclcall.InitRank {
			e.Rank, e.Size, e.Address = 3, 16, 0
		}
		return e
	}
	for name, tc := range map[string]struct {
		events []*ncclcall.Event
		calls  func(at float64) []ncclcall.Communicator
		told   []int32 // rank and size; nil: nothing
	}{
		"by its calls": {
			[]*ncclcall.Event{event(ncclcall.Split, 1, 7)}, func(float64) []ncclcall.Communicator { return []ncclcall.Communicator{calling(5, 0.5)} }, []int32{5, 8},
		},
		"by the call that made it": {
			[]*ncclcall.Event{event(ncclcall.InitRank, 0.8, 7), event(ncclcall.Split, 1, 7)}, func(float64) []ncclcall.Communicator { return nil }, []int32{3, 16},
		},
		"the second of it": {
			[]*ncclcall.Event{event(ncclcall.InitRank, 0.8, 7), event(ncclcall.Split, 0.9, 7), event(ncclcall.Grow, 1, 7)}, func(float64) []ncclcall.Communicator { return nil }, []int32{3, 16},
		},
		"of another at its address": {
			[]*ncclcall.Event{event(ncclcall.Shrink, 1, 8)}, func(float64) []ncclcall.Communicator { return []ncclcall.Communicator{calling(5, 0.5)} }, nil,
		},
		"it goes on, and does not use the new one": {
			[]*ncclcall.Event{event(ncclcall.Split, 1, 7)}, func(at float64) []ncclcall.Communicator {
				return []ncclcall.Communicator{calling(uint64(5+at), at-0.1)}
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandstill(time.Minute, time.Minute)
			for _, e := range tc.events {
				require.Empty(t, s.begin(e, &identity.Process{PID: e.PID}).changes)
			}
			var told []change
			for at := 2.0; at < 20; at++ {
				for _, c := range s.look(scanAt(at, tc.calls(at)...)).changes {
					if c.what == waiting {
						told = append(told, c)
					}
				}
			}
			if tc.told == nil {
				require.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			require.Equal(t, tc.told, []int32{told[0].init.Rank, told[0].init.Size})
			require.Equal(t, 10*time.Second, told[0].idle)
		})
	}
}
