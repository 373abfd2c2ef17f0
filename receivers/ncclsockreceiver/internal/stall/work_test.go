package stall

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// hang lets rank 2 be the first to fall silent: the others have entered the next
// collective and wait for it.
func (w *world) hang() {
	w.pass(time.Second)
	for r, l := range w.links {
		l.send(48, 100*time.Millisecond)
		if r == 2 {
			l.out.LastSentAge = 300 * time.Millisecond
		}
	}
	require.Empty(w.t, w.look())
}

// busy makes rank 2 do something for so many seconds, and returns what was told.
func (w *world) busy(seconds int, each func(p *Process)) []Event {
	var events []Event
	for range seconds {
		each(w.ranks[2])
		events = append(events, w.idle(1)...)
	}
	return events
}

// rest lets data move again.
func (w *world) rest() {
	w.pass(time.Second)
	for _, l := range w.links {
		l.send(1, 0)
		l.read()
	}
	w.look()
}

// of returns the last that was told of rank 2.
func of(t *testing.T, events []Event) RankFacts {
	t.Helper()
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Process.Rank == 2 {
			return events[i].Rank
		}
	}
	require.FailNow(t, "nothing was told of rank 2", "%v", short(events))
	return RankFacts{}
}

// healthy are the ways in which the process tree of a rank makes progress.
var healthy = map[string]struct {
	how  socketstall.Activity
	each func(w *world, p *Process)
}{
	"its main thread computes":        {socketstall.Computing, func(_ *world, p *Process) { p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+time.Second }},
	"a thread computes, joined":       {socketstall.ThreadComputing, func(_ *world, p *Process) { p.CPU += time.Second }},
	"a child computes":                {socketstall.ChildComputing, func(w *world, _ *Process) { w.inside[2] = Inside{Children: 1} }},
	"it writes a checkpoint":          {socketstall.IO, func(w *world, _ *Process) { w.inside[2] = Inside{IO: 60e6} }},
	"one long write that is answered": {socketstall.IO, func(w *world, _ *Process) { w.inside[2] = Inside{Answered: true} }},
	"it has a fifth of a busy CPU": {socketstall.Starved, func(_ *world, p *Process) {
		p.CPU, p.MainCPU, p.Delayed = p.CPU+50*time.Millisecond, p.MainCPU+50*time.Millisecond, p.Delayed+800*time.Millisecond
	}},
	"a thread that has a tenth of a busy CPU": {socketstall.Starved, func(w *world, p *Process) {
		p.CPU += 100 * time.Millisecond
		w.inside[2] = Inside{Starved: 0.9}
	}},
	"it uploads to an object store": {socketstall.IO, func(w *world, _ *Process) { w.extra[0].BytesSent += 10e6 }},
}

func TestARankThatMakesProgressIsNeverAccused(t *testing.T) {
	for name, tc := range healthy {
		for _, script := range []bool{false, true} { // under one that has the rank in its environment
			t.Run(fmt.Sprintf("%s, under a launch script: %t", name, script), func(t *testing.T) {
				w := newWorld(t, 4, Defaults())
				w.ranks[2].Inherited = script
				w.add(2, 900, "10.0.0.3:41000", "10.9.9.9:443")
				w.train(12)
				w.hang()
				require.Empty(t, w.busy(18, func(p *Process) { tc.each(w, p) }), "a pause that is not told")
				events := w.busy(100, func(p *Process) { tc.each(w, p) })
				require.Empty(t, accusing(events))
				told := of(t, events)
				require.Equal(t, socketstall.Long, told.Silence)
				require.Equal(t, tc.how, told.Activity)
			})
		}
	}
}

// TestARankThatStopsReadingIsNamedOnABusyHost: threads that poll wait for a CPU as those that
// compute do. Of all ranks, one has bytes that it does not read.
func TestARankThatStopsReadingIsNamedOnABusyHost(t *testing.T) {
	for name, tc := range map[string]struct {
		others bool // it is another thread than the main one that polls
		named  bool
		each   func(w *world, rank int, p *Process)
	}{
		"their main threads poll": {named: true, each: func(_ *world, _ int, p *Process) { p.Polls = true }},
		"another thread polls":    {others: true, named: true, each: func(*world, int, *Process) {}},
		"they compute":            {each: func(*world, int, *Process) {}},
		"their threads compute":   {others: true, each: func(w *world, rank int, _ *Process) { w.inside[rank] = Inside{Starved: 0.9} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			w.pass(time.Second)
			for _, l := range w.links {
				l.send(48, 100*time.Millisecond)
			}
			w.links[1].deliver(4096, 100*time.Millisecond)
			require.Empty(t, w.look())
			named := 0
			for second := 1; second <= 60 && named == 0; second++ {
				for rank, p := range w.ranks {
					p.CPU += 10 * time.Millisecond
					if !tc.others {
						p.MainCPU, p.Delayed = p.MainCPU+10*time.Millisecond, p.Delayed+900*time.Millisecond
					}
					tc.each(w, rank, p)
				}
				for _, e := range accusing(w.idle(1)) {
					require.Equal(t, socketstall.NotReading, e.Cause)
					require.Equal(t, 2, e.Process.Rank)
					named = second
				}
			}
			require.Equal(t, tc.named, named > 0)
			require.LessOrEqual(t, named, 4)
		})
	}
}

// TestAnAnswerThatNoLookSawIsNoRest: a slow file system answers each second or two. The first
// comparison of two looks may fall between two answers, and says nothing of the time before.
func TestAnAnswerThatNoLookSawIsNoRest(t *testing.T) {
	for name, tc := range map[string]struct {
		inside  Inside
		accused int // after so many seconds, 0 never
	}{
		"a file that answers now and then": {Inside{OnFile: true}, 0},
		"a file that answers no more":      {Inside{OnFile: true}, 4},
		"a lock":                           {Inside{}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			w.hang()
			accused := 0
			for second := 1; second <= 12 && accused == 0; second++ {
				w.inside[2] = tc.inside
				if tc.accused == 0 {
					w.inside[2] = Inside{OnFile: true, Answered: second%3 == 1}
				}
				if len(accusing(w.idle(1))) > 0 || w.tracker.silence(w.tracker.ranks[w.ranks[2].PID]) == socketstall.Overdue {
					accused = second
				}
			}
			require.Equal(t, tc.accused, accused)
		})
	}
}

// TestAnAnswerForWhichARankWaitedIsProgress: a service answers after a while. The rank then goes on with its step, and has not
// moved data of its job at the next look. For how long it waited is no rest of its own.
func TestAnAnswerForWhichARankWaitedIsProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		answers func(w *world, s *ncclsock.Socket)
		then    Inside
		rests   bool // the answer changes nothing
	}{
		"it sleeps in its step":      {func(_ *world, s *ncclsock.Socket) { s.LastReceivedAge = 300 * time.Millisecond }, Inside{Syscall: "clock_nanosleep"}, false},
		"it has not got a CPU since": {func(_ *world, s *ncclsock.Socket) { s.ReceiveQueueBytes = 10 }, Inside{Syscall: "recvfrom"}, false},
		"it has closed":              {func(_ *world, s *ncclsock.Socket) { s.State = ncclsock.Established + 7 }, Inside{Syscall: "futex"}, false},
		"it has asked again": {func(_ *world, s *ncclsock.Socket) {
			s.LastSentAge, s.LastReceivedAge = 100*time.Millisecond, 300*time.Millisecond
		}, Inside{Syscall: "recvfrom"}, false},
		"nobody has answered":         {func(*world, *ncclsock.Socket) {}, Inside{Syscall: "recvfrom"}, true},
		"nobody, and it waits in D":   {func(*world, *ncclsock.Socket) {}, Inside{Syscall: "fsync"}, true},
		"it reports, and is answered": {func(*world, *ncclsock.Socket) {}, Inside{Syscall: "futex"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			service := w.add(2, 900, "10.0.0.3:41000", "10.0.0.9:8000")
			w.train(12)
			w.hang()
			service.BytesSent, service.BytesAcked, service.LastSentAge = 4096, 4096, 100*time.Millisecond
			service.BytesReceived, service.BytesRead, service.LastReceivedAge = 10, 10, 10*time.Second
			reports := name == "it reports, and is answered"
			wait := func() {
				w.inside[2] = Inside{Syscall: "recvfrom", Compared: true}
				if reports { // each second, and the answer takes a moment: some looks fall between
					w.inside[2] = Inside{Syscall: "futex", Compared: true}
					service.LastSentAge, service.LastReceivedAge = 20*time.Millisecond-time.Second, 10*time.Millisecond-time.Second
					if w.tracker.round%2 == 0 {
						service.LastReceivedAge = 900*time.Millisecond - time.Second
					}
				}
			}
			silence := func() socketstall.Silence { return w.tracker.silence(w.tracker.ranks[w.ranks[2].PID]) }
			for range 13 {
				wait()
				w.idle(1)
			}
			require.Equal(t, socketstall.Overdue, silence())
			if reports {
				return
			}
			w.inside[2] = tc.then
			w.pass(time.Second)
			tc.answers(w, service)
			w.look()
			require.Equal(t, tc.rests, silence() == socketstall.Overdue)
			for range 3 { // and rests then
				w.inside[2] = tc.then
				w.idle(1)
			}
			require.Equal(t, socketstall.Overdue, silence())
		})
	}
}

func TestARankThatMakesProgressForLongerThanAnybodyMayIsOverdue(t *testing.T) {
	o := Defaults()
	o.Computing = 60 * time.Second
	w := newWorld(t, 4, o)
	w.train(12)
	w.hang()
	compute := func(p *Process) { p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+time.Second }
	require.Equal(t, socketstall.Long, of(t, w.busy(55, compute)).Silence)
	told := of(t, w.busy(10, compute))
	require.Equal(t, socketstall.Overdue, told.Silence)
	require.Equal(t, socketstall.Computing, told.Activity)
}

// TestThreadsOfNCCLThatPollAreNoProgress: the proxy of a rank that hangs goes on asking
// its sockets, in the kernel for the most part.
func TestThreadsOfNCCLThatPollAreNoProgress(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.ranks[2].NCCL = true
	w.train(12)
	w.hang()
	told := of(t, w.busy(5, func(p *Process) { p.CPU, p.Polling = p.CPU+time.Second, p.Polling+600*time.Millisecond }))
	require.Equal(t, socketstall.Overdue, told.Silence)
	require.Equal(t, socketstall.Idle, told.Activity)
}

// TestAHangIsNamedAsSoonAfterAPause: what the job did before, and how often it hung,
// makes no difference.
func TestAHangIsNamedAsSoonAfterAPause(t *testing.T) {
	for name, pause := range healthy {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.add(2, 900, "10.0.0.3:41000", "10.9.9.9:443")
			w.train(12)
			for range 5 {
				w.hang()
				w.busy(28, func(p *Process) { pause.each(w, p) })
				w.inside = map[int]Inside{}
				w.rest()
				w.train(3)
			}
			w.hang()
			events, seconds := w.firstAfter(10)
			require.LessOrEqual(t, seconds, 3)
			require.Equal(t, socketstall.Overdue, of(t, events).Silence)
		})
	}
}

func TestTheSameHangIsNamedEachTime(t *testing.T) {
	for name, hold := range map[string]func(p *Process, held bool){
		"asleep": func(*Process, bool) {},
		"frozen": func(p *Process, held bool) {
			if p.State = socketstall.Sleeping; held {
				p.State = socketstall.Frozen
			}
		},
		"in a file system that does not answer": func(p *Process, held bool) {
			if p.State = socketstall.Sleeping; held {
				p.State = socketstall.DiskSleep
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			for range 6 {
				w.hang()
				hold(w.ranks[2], true)
				events, seconds := w.firstAfter(10)
				require.LessOrEqual(t, seconds, 3)
				require.Equal(t, socketstall.Overdue, of(t, events).Silence)
				w.idle(14)
				hold(w.ranks[2], false)
				w.rest()
				w.train(3)
			}
		})
	}
}

// TestRanksThatWaitTeachNoPause: the others fall silent within a tick of the rank that makes
// the pause, and rest while it works. Of a pause that they make themselves that says nothing.
func TestRanksThatWaitTeachNoPause(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	together := func() {
		w.pass(time.Second)
		for _, l := range w.links {
			l.send(48, 100*time.Millisecond)
		}
		require.Empty(t, w.look())
	}
	for range 4 {
		together()
		require.Empty(t, w.busy(15, func(*Process) { w.inside[2] = Inside{Children: 1} }), "one of them works: nobody is accused")
		w.inside = map[int]Inside{}
		w.rest()
		w.train(3)
	}
	together()
	_, seconds := w.firstAfter(10)
	require.LessOrEqual(t, seconds, 3)
}

// TestARankThatWorksIsTheOneThatAllWaitFor: in a collective of few bytes a rank that waits may
// have sent its last data long before the rank that all wait for.
func TestARankThatWorksIsTheOneThatAllWaitFor(t *testing.T) {
	for name, nccl := range map[string]bool{"Gloo": false, "NCCL, whose threads may spin while they wait": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			for _, p := range w.ranks {
				p.NCCL = nccl
			}
			w.train(12)
			w.pass(time.Second)
			for r, l := range w.links {
				l.send(48, time.Duration(100+100*r)*time.Millisecond) // rank 3 was the first
			}
			require.Empty(t, w.look())
			events := w.busy(15, func(p *Process) { p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+time.Second })
			require.Equal(t, nccl, overdue(events))
		})
	}
}

// TestARankThatGoesOnIsTakenBack: it rests, is told as a fault, and then goes on.
func TestARankThatGoesOnIsTakenBack(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.hang()
	require.Equal(t, socketstall.Overdue, of(t, w.idle(5)).Silence)
	compute := func(p *Process) { p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+time.Second }
	told := of(t, w.busy(3, compute))
	require.Equal(t, socketstall.Usual, told.Silence)
	require.Equal(t, socketstall.Computing, told.Activity)
}

// TestAKilledRankTeachesNoPause: what a kill ended was no pause.
func TestAKilledRankTeachesNoPause(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(2) // nothing is learned: silences of a minute are not told
	for range 4 {
		w.hang()
		require.Empty(t, w.idle(30))
		w.ranks[2].PID += 100 // the launcher starts it anew
		w.ranks[2].StartTime = w.at
		for _, l := range []*link{w.links[1], w.links[2]} {
			l.in.PID, l.out.PID = w.ranks[rankAfter(l.in)].PID, w.ranks[rankAfter(l.out)].PID
		}
		w.rest()
	}
	w.train(8)
	w.hang()
	_, seconds := w.firstAfter(10)
	require.LessOrEqual(t, seconds, 4)
}

// rankAfter is the rank whose address a socket has.
func rankAfter(s *ncclsock.Socket) int { return int(s.Local.Addr().As4()[3]) - 1 }

// TestAJobOnSeveralNodesTellsWhoWaits: here all ranks compute or wait for a rank of
// another node. Nobody is accused, and the reader of all nodes learns what they do.
func TestAJobOnSeveralNodesTellsWhoWaits(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.remote[3] = true
	w.train(12)
	w.hang()
	events := w.busy(6, func(p *Process) { p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+time.Second })
	require.Empty(t, accusing(events))
	require.Equal(t, socketstall.Usual, of(t, events).Silence)
}

// TestAHangOfHoursCostsLittle: a rank that rests for long is looked into now and then, and
// what was seen of it stays told.
func TestAHangOfHoursCostsLittle(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.hang()
	w.inside[2] = Inside{Syscall: "futex"}
	looks := 0
	for range 400 {
		events := w.idle(1)
		if w.looked[w.ranks[2].PID] {
			looks++
		}
		for _, e := range events {
			if e.Process.Rank == 2 {
				require.Equal(t, "futex", e.Rank.Inside.Syscall)
			}
		}
	}
	require.Less(t, looks, 150)
	w.inside[2] = Inside{Children: 1}
	require.Equal(t, socketstall.Long, of(t, w.idle(25)).Silence, "it goes on")
}

// TestStartInTheMiddleOfAHang: the kernel knows how old the silence is, and the tracker
// says for how long it has watched.
func TestStartInTheMiddleOfAHang(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	w.hang()
	w.idle(100)
	w.tracker, w.looked = New(w.tracker.o), map[uint32]bool{}
	events, seconds := w.firstAfter(10)
	require.LessOrEqual(t, seconds, 5)
	told := of(t, events)
	require.Equal(t, socketstall.Overdue, told.Silence)
	require.Less(t, told.Watched, 6*time.Second)
	require.Greater(t, told.LastSentAge, 100*time.Second)
}

// TestARankThatWasFoundSilentIsToldSoon: of a job whose pauses nobody knows. What it is found in may be a pause, so it is
// told once the silence is 30 s old and the rank has rested for 10 s under watch. What begins under watch is given a minute.
func TestARankThatWasFoundSilentIsToldSoon(t *testing.T) {
	for name, tc := range map[string]struct {
		before int                 // seconds of silence before the tracker begins
		does   func(*Process)      // each second since
		after  int                 // seconds until it is told
		as     socketstall.Silence // "" where it is not, in that time
	}{
		"just now":                 {1, func(*Process) {}, 29, socketstall.Overdue},
		"for 22 s":                 {22, func(*Process) {}, 10, socketstall.Overdue},
		"for 50 s":                 {50, func(*Process) {}, 10, socketstall.Overdue},
		"for longer than a minute": {65, func(*Process) {}, 5, socketstall.Overdue},
		"it computes":              {22, func(p *Process) { p.CPU, p.MainCPU = p.CPU+time.Second, p.MainCPU+time.Second }, 25, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			w.train(12)
			w.hang()
			w.tracker, w.looked = New(w.tracker.o), map[uint32]bool{} // who sees nothing of that
			w.pass(time.Duration(tc.before) * time.Second)
			w.look()
			var events []Event
			second := 0
			for ; second < 60 && len(events) == 0; second++ {
				tc.does(w.ranks[2])
				events = w.idle(1)
				if tc.as == "" && second == tc.after {
					return
				}
			}
			require.InDelta(t, tc.after, second, 2)
			require.Equal(t, tc.as, of(t, events).Silence)
			require.EqualValues(t, Unknown, of(t, events).UsualPhase)
		})
	}
	t.Run("a silence that is seen to begin", func(t *testing.T) {
		w := newWorld(t, 4, Defaults())
		w.train(5)
		w.hang()
		_, seconds := w.firstAfter(70)
		require.InDelta(t, 60, seconds, 2)
	})
}

// A job that is started again under its id starts up as it did at first: a rank that still loads
// its libraries has read nothing of what the others greet it with.
func TestAJobThatIsStartedAgainStartsUp(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	for r, p := range w.ranks {
		p.StartTime = p.StartTime.Add(30 * time.Minute)
		w.links[r] = w.connect(r, (r+1)%4, uint64(300+2*r), 41000, 51000)
	}
	require.Empty(t, w.idle(3))
	w.links[1].deliver(10, 0)
	require.Empty(t, accusing(w.idle(20)), "rank 2 sleeps with ten unread bytes")
	w.links[1].read()
	w.train(12)
	w.hang()
	require.Equal(t, socketstall.Overdue, of(t, w.idle(5)).Silence, "it trains: a hang is told as soon as ever")
}

// A launch script exports the rank, runs the training in the background and sleeps until it has ended,
// five seconds at a time, or asks nvidia-smi as often: none of these starts the job again.
func TestWhatRunsBesideARankStartsNoJobAgain(t *testing.T) {
	for name, outermost := range map[string]uint32{"of the rank that the training began": 1001, "of a rank whose first process is not known": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, Defaults())
			for pid := range uint32(8) {
				beside := *w.ranks[1]
				beside.PID, beside.StartTime, beside.Comm, beside.RankPID = 5000+pid, w.at, "sleep", outermost
				w.ranks = append(w.ranks[:4:4], &beside)
				w.train(5)
			}
			events, after := w.firstAfter(90)
			require.NotEmpty(t, events)
			require.LessOrEqual(t, after, 6, "a deadlock is told as soon as ever")
		})
	}
}

// The last start of a rank may not have ended where the next one begins.
// A monitor that a launch script has begun before the training outlives it, and the next training is of another start.
func TestATrainingBeginsAgainBesideAMonitor(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	monitor := *w.ranks[1]
	monitor.PID, monitor.StartTime, monitor.Comm, monitor.RankPID = 5000, w.at, "monitor", 5000
	w.ranks = append(w.ranks, &monitor)
	w.train(20)
	j := w.tracker.ranks[w.ranks[1].PID].job
	require.NotZero(t, j.phases.traffic)
	w.ranks[1].PID, w.ranks[1].StartTime, w.ranks[1].RankPID = 6000, w.at, 5000
	w.idle(1)
	require.Zero(t, j.phases.traffic, "it starts up, as at first")
}

func TestAJobIsStartedAgainBesideItsLastStart(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	w.train(12)
	next := *w.ranks[1]
	next.PID, next.RankPID, next.StartTime = 6001, 6001, w.at
	w.ranks = append(w.ranks, &next)
	w.train(1)
	w.links[1].deliver(10, 0)
	require.Empty(t, accusing(w.idle(20)), "rank 2 sleeps with ten unread bytes, as at a start")
}

// TestAJobIsSaidToBeWatched: when its data moves, again while it does, and of each start.
func TestAJobIsSaidToBeWatched(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	said := func() (ranks []int) {
		for _, one := range w.tracker.Watched() {
			ranks = append(ranks, one.Process.Rank)
		}
		return ranks
	}
	require.Empty(t, w.idle(3))
	require.Empty(t, said(), "nothing has moved")
	w.train(1)
	require.Equal(t, []int{0}, said())
	w.train(1)
	require.Empty(t, said(), "that is known")
	for range int(socketstall.WatchedAgain/time.Second) - 2 {
		w.train(1)
		require.Empty(t, said())
	}
	w.train(1)
	require.Equal(t, []int{0}, said(), "it still moves")
	w.idle(2 * int(socketstall.WatchedAgain/time.Second))
	require.Empty(t, said(), "of sockets that stand nothing is said")
	for _, l := range w.links {
		l.send(1<<20, 10*time.Millisecond)
	}
	w.look()
	require.Equal(t, []int{0}, said())
	for _, p := range w.ranks {
		p.StartTime = p.StartTime.Add(30 * time.Minute)
	}
	w.train(1)
	require.Equal(t, []int{0}, said(), "another start of the job")
}

// TestAJobIsSaidToMoveWhole: once all of its ranks here have moved data since they are watched, in no one snapshot.
func TestAJobIsSaidToMoveWhole(t *testing.T) {
	w := newWorld(t, 4, Defaults())
	move := func(links ...int) []Watched {
		w.pass(time.Second)
		for _, l := range links {
			w.links[l].send(1<<20, 10*time.Millisecond)
		}
		w.look()
		return w.tracker.Watched()
	}
	for _, l := range w.links { // what moved before the first snapshot says nothing of the time since
		l.send(1<<20, 10*time.Millisecond)
	}
	w.look()
	first := w.at
	said := w.tracker.Watched()
	require.Len(t, said, 1)
	require.Zero(t, said[0].Since)
	require.Empty(t, move(0), "ranks 2 and 3 have not moved") // a link has two ends
	require.Empty(t, move())
	said = move(2)
	require.Len(t, said, 1, "it is said at once")
	require.Equal(t, first, said[0].Since)
	require.Empty(t, move(0, 1, 2, 3), "that is known")
	for range int(socketstall.WatchedAgain / time.Second) {
		if said = move(0); len(said) > 0 {
			break
		}
	}
	require.Len(t, said, 1, "it still moves")
	require.Equal(t, first, said[0].Since)

	w.ranks[3].StartTime = w.ranks[3].StartTime.Add(30 * time.Minute) // is started again, alone
	w.ranks[3].StartNS++
	said = move(0)
	require.Len(t, said, 1, "a start of the job")
	require.Zero(t, said[0].Since)
	said = move(3)
	require.Len(t, said, 1)
	require.Equal(t, first, said[0].Since, "the others have been watched for longer")
}

// TestAWorkerWithSocketsOfItsRankDoesNotMove: a process that was forked holds them, too, and uses none.
func TestAWorkerWithSocketsOfItsRankDoesNotMove(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	worker := *w.ranks[1]
	worker.PID, worker.Inherited, worker.StartNS = 2000, true, 2000
	w.ranks = append(w.ranks, &worker)
	for i := range 2 {
		s := *w.links[i].out
		s.PID, s.Cookie = worker.PID, uint64(900+i)
		w.extra = append(w.extra, &s)
	}
	require.Empty(t, w.look())
	w.train(1)
	said := w.tracker.Watched()
	require.Len(t, said, 1)
	require.False(t, said[0].Since.IsZero())
}

// TestSocketsOfOtherUseAreNotWatched: what says nothing of a job's collectives is not waited for.
func TestSocketsOfOtherUseAreNotWatched(t *testing.T) {
	w := newWorld(t, 2, Defaults())
	w.links = nil
	store := w.add(1, 900, "10.0.0.2:40100", "10.0.0.1:29500")
	for range 3 {
		w.pass(time.Second)
		store.BytesSent, store.BytesAcked, store.LastSentAge = store.BytesSent+100, store.BytesAcked+100, 0
		require.Empty(t, w.look())
		require.Empty(t, w.tracker.Watched())
	}
}
