package stacksreceiver

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// thread is the main thread of one rank, as a test moves it; a look is each second.
type thread struct {
	*testing.T
	*follower
	now      time.Time
	switches uint64
	slept    uint64
	ran      time.Duration
	place    pystack.Place
	broken   error // of its place
}

func newThread(t *testing.T, python bool) *thread {
	f := newFollower(identity.Process{PID: 42, Rank: 3})
	f.python = python
	f.began = start.Add(-time.Hour)
	return &thread{T: t, follower: f, now: start, place: pystack.Place{Chain: 11, Calls: 1}}
}

// look looks in that state, and notes the stack that is to be taken.
func (t *thread) look(state byte) outcome {
	t.now = t.now.Add(time.Second)
	o := t.follower.look(t.now, procfs.ThreadStatus{State: state, Switches: t.switches, Sleeps: t.slept}, createDefaultConfig().(*Config),
		inquiry{func() (pystack.Place, error) { return t.place, t.broken }, func() (time.Duration, error) { return t.ran, nil }})
	if o.take != "" {
		t.stands(t.now, o.take, t.follower.place.Chain, t.follower.place)
	}
	return o
}

// works wakes the thread, which is somewhere else then.
func (t *thread) works(call uint64) outcome {
	t.switches++
	t.place = pystack.Place{Chain: call * 11, Calls: call}
	return t.look('R')
}

// sleeps looks so often at the thread, which does not run, and returns the looks at which a
// stack was to be taken.
func (t *thread) sleeps(state byte, looks int) (taken []int) {
	t.switches++
	for i := range looks {
		if o := t.look(state); o.take != "" {
			require.Equal(t, asleep, o.take)
			taken = append(taken, i)
		}
	}
	return taken
}

func TestAThreadThatDoesNotRunIsTakenOnce(t *testing.T) {
	for _, python := range []bool{true, false} {
		one := newThread(t, python)
		require.Equal(t, []int{2}, one.sleeps('S', 100))
		require.NotNil(t, one.works(2).moved)
	}
}

func TestARankAtWorkIsNotTaken(t *testing.T) {
	one := newThread(t, true)
	for i := range uint64(100) {
		one.switches += 50 // it sleeps at each look, and has run since the last
		one.place = pystack.Place{Chain: i, Calls: i / 15}
		require.Equal(t, outcome{}, one.look('S'))
	}
}

// What a rank does is told with a new stack, and not with one that is known.
func TestWhatIsNotToldIsNotKnown(t *testing.T) {
	one := newThread(t, true)
	one.sleeps('S', 5)
	one.rest.Looks, one.rest.Now.State = 1, socketstall.Stopped
	require.True(t, one.changed(one.now))
	require.True(t, one.knows(asleep, one.told.hash))
	one.stands(one.now, asleep, one.told.hash, one.place)
	require.True(t, one.changed(one.now), "no record was made of it")
	require.False(t, one.knows(sameCall, one.told.hash))
	one.stands(one.now, sameCall, one.told.hash, one.place)
	require.False(t, one.changed(one.now))
}

// A hang that lasts for days is told again now and then: else its verdict would be over.
func TestAStandstillThatLastsIsToldAgain(t *testing.T) {
	one := newThread(t, true)
	one.sleeps('S', 5)
	one.rest.Looks = 1
	require.False(t, one.changed(one.now.Add(activity.Again-time.Minute)))
	require.True(t, one.changed(one.now.Add(activity.Again)))
	one.works(2)
	require.False(t, one.changed(one.now.Add(activity.Again)), "it moved")
}

func TestAThreadThatSleepsElsewhereIsTakenAgain(t *testing.T) {
	one := newThread(t, true)
	require.Equal(t, []int{2}, one.sleeps('S', 5))
	require.Empty(t, one.sleeps('S', 5), "it woke and sleeps in the same place")
	one.place = pystack.Place{Chain: 12, Calls: 1} // a later line of the same function
	require.Equal(t, []int{2}, one.sleeps('S', 5))
	moved := one.works(2).moved
	require.NotNil(t, moved)
	require.EqualValues(t, 12, moved.hash)
}

// One or two standstills in a place may be the start, or an accident.
func TestAUsualPlaceIsTakenLater(t *testing.T) {
	one := newThread(t, true)
	back := func() {
		one.works(2)
		one.place = pystack.Place{Chain: 11, Calls: 1}
	}
	for range 3 {
		require.Equal(t, []int{2}, one.sleeps('S', 8))
		back()
	}
	require.Equal(t, []int{16}, one.sleeps('S', 60), "it was there for eight seconds several times")
	back()
	for range 2 {
		require.Equal(t, []int{16}, one.sleeps('S', 60))
		back()
	}
	require.Equal(t, []int{30}, one.sleeps('S', 60), "30 s are enough in any place")
	back()
	require.Equal(t, []int{2}, one.sleeps('D', 60), "it takes no signal")
	one.works(2)
	one.place = pystack.Place{Chain: 33, Calls: 3}
	require.Equal(t, []int{2}, one.sleeps('S', 60), "it was never here")
}

// A rank that waits for others, again and again, is told soon when it does again, and none of
// these waits is a usual pause of its own.
func TestAUsualWaitForOthersIsTaken(t *testing.T) {
	one := newThread(t, true)
	one.classes[1] = waitclass.Collective
	for range 5 {
		one.sleeps('S', 20)
		one.works(2)
		one.place = pystack.Place{Chain: 11, Calls: 1}
	}
	require.Equal(t, []int{3}, one.sleeps('S', 60))
	require.Zero(t, one.rest.Patience(one.now))
}

// A wait that is woken now and then, and goes on in the same place, is one.
func TestAThreadThatWakesForAMomentRestsOn(t *testing.T) {
	one := newThread(t, true)
	one.sleeps('S', 5)
	since := one.rest.Last
	one.sleeps('S', 5)
	require.Equal(t, since, one.rest.Last)
	one.place.Chain++
	one.sleeps('S', 5)
	require.True(t, one.rest.Last.After(since))
}

// A rank that makes steps is found in one place at every look where it is nearly all the time.
// What it runs and how often it sleeps tell it from a thread that is woken and waits on.
func TestAThreadThatWorksBetweenLooksGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		asleep int // looks of one sleep
		sleeps uint64
		runs   time.Duration
		goes   bool
	}{
		"it polls each millisecond":             {1, 900, 900 * 60 * time.Microsecond, false},
		"it polls each five seconds":            {5, 1, 80 * time.Microsecond, false},
		"a step in a second":                    {1, 12, 40 * time.Millisecond, true},
		"ten small steps in a second":           {1, 40, 8 * time.Millisecond, true},
		"a long step":                           {5, 12, 40 * time.Millisecond, true},
		"a long step that needs no time":        {5, 2, 80 * time.Microsecond, true},
		"it runs all the time, and never slept": {1, 0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			one := newThread(t, true)
			one.ran = time.Second
			told, moved := 0, 0
			for i := range 60 {
				if i%tc.asleep == 0 {
					one.switches++
					one.slept += tc.sleeps
					one.ran += tc.runs
				}
				o := one.look('S')
				if o.take != "" {
					told++
				}
				if o.moved != nil {
					moved++
				}
			}
			if tc.goes {
				require.Equal(t, told > 0, moved > 0)
				require.True(t, one.told == nil || tc.asleep > 1)
				return
			}
			require.Equal(t, 1, told)
			require.Zero(t, moved)
		})
	}
}

// Where a rank stood may have been told before this receiver began, and its end not.
func TestARankThatIsOlderThanTheReceiverIsToldToMove(t *testing.T) {
	one := newThread(t, true)
	one.older = true
	require.Nil(t, one.look('S').moved, "nobody knows yet")
	require.NotNil(t, one.works(2).moved)
	require.Nil(t, one.works(3).moved, "once")
	one = newThread(t, true)
	one.older = true
	require.Equal(t, []int{2}, one.sleeps('S', 5), "what stands is told anyway")
	require.NotNil(t, one.works(2).moved)
	require.Nil(t, one.works(3).moved)
}

func TestAThreadThatRunsInOneCallIsTakenAfterPatience(t *testing.T) {
	one := newThread(t, true)
	one.works(2)
	for i := range uint64(19) {
		one.place.Chain = 100 + i // its instruction changes
		require.Equal(t, outcome{}, one.look('R'))
	}
	require.Equal(t, outcome{take: sameCall}, one.look('R'))
	require.Equal(t, outcome{}, one.look('R'))
	require.NotNil(t, one.works(3).moved)
}

// What polled in a call and then sleeps in it is told again, once: others judge by what has slept.
func TestAThreadThatPolledAndThenSleepsInItsCallIsTakenAgain(t *testing.T) {
	one := newThread(t, true)
	for one.look('R').take == "" {
	}
	require.Equal(t, sameCall, one.told.why)
	require.Equal(t, []int{2}, one.sleeps('S', 20))
	require.Empty(t, one.sleeps('S', 20), "it woke and sleeps in the same place")
}

// The look that tells of it is the last at which it has run.
func TestAThreadThatSleepsSinceItWasTakenForSomethingElseIsTakenAgain(t *testing.T) {
	for why, wake := range map[reason]func(*thread){
		sameCall: func(one *thread) {
			for one.told == nil {
				one.switches++
				one.look('S')
			}
		},
		peerEnded: func(one *thread) {
			one.peer = true
			one.switches++
			one.look('S')
		},
		spinning: func(one *thread) {
			one.switches++
			one.look('S')
			one.stands(one.now, spinning, one.place.Chain, one.place)
		},
	} {
		one := newThread(t, true)
		wake(one)
		require.Equal(t, why, one.told.why)
		var taken []int
		for i := range 30 {
			if o := one.look('S'); o.take != "" {
				require.Equal(t, asleep, o.take, why)
				taken = append(taken, i)
			}
		}
		require.Equal(t, []int{1}, taken, why)
	}
}

// Steps of 25 s in one call are usual for the rank, whichever calls these are. They are told of
// neither before that is known nor afterwards; a loop without end is.
func TestLongStepsInOneCallAreNotToldAndALoopIs(t *testing.T) {
	for name, call := range map[string]func(step uint64) uint64{
		"the same call in each step": func(uint64) uint64 { return 3 },
		"another in each step":       func(step uint64) uint64 { return 3 + step%2*6 },
	} {
		t.Run(name, func(t *testing.T) {
			one := newThread(t, true)
			one.began = time.Time{}
			for step := range uint64(40) {
				for range 25 {
					require.Empty(t, one.works(call(step)).take, "step %d", step)
				}
				for range 4 {
					require.Empty(t, one.works(2).take)
				}
			}
			looks := 0
			for one.works(call(7)).take == "" {
				looks++
			}
			require.Equal(t, 50, looks, "twice as long as usual")
		})
	}
}

// A rank whose first call has no end may make its first step, for as long as that is likely.
func TestALoopOfAYoungRankIsToldWithinAMinute(t *testing.T) {
	one := newThread(t, true)
	one.began = time.Time{}
	looks := 0
	for one.works(3).take == "" {
		looks++
	}
	require.Equal(t, 50, looks)
}

// A main thread that runs in backward computes itself, without a GPU: its steps may be as long as those
// of any call. One that sleeps there is at its steps.
func TestARankInBackward(t *testing.T) {
	one := newThread(t, true)
	one.began = time.Time{}
	one.classes[3] = waitclass.Backward
	looks := 0
	for one.works(3).take == "" {
		looks++
	}
	require.Equal(t, 50, looks)
	require.True(t, one.atWork())
}

// Others that poll for their GPUs are told as soon in a young job, and after steps of any length.
func TestARankThatPollsForItsGPUIsToldAfterPatience(t *testing.T) {
	one := newThread(t, true)
	one.began = time.Time{}
	one.classes[2] = waitclass.GPU
	for range 5 {
		for range 25 {
			one.works(3)
		}
		one.works(4)
	}
	looks := 0
	for one.works(2).take == "" {
		looks++
	}
	require.Equal(t, 20, looks)
}

func TestStaysAreTheLastOnes(t *testing.T) {
	var s stays
	require.Zero(t, s.reached(time.Time{}, 1))
	for i := range 100 {
		s.note(start.Add(time.Duration(i)*time.Second), time.Duration(i)*time.Minute)
	}
	require.Equal(t, 99*time.Minute, s.reached(time.Time{}, 1))
	require.Equal(t, 97*time.Minute, s.reached(time.Time{}, 3))
	require.Equal(t, 84*time.Minute, s.reached(time.Time{}, 16))
	require.Zero(t, s.reached(time.Time{}, 17))
	require.Equal(t, 98*time.Minute, s.reached(start.Add(97*time.Second), 2))
	require.Zero(t, s.reached(start.Add(97*time.Second), 3), "two are newer")
}

func TestAThreadWhosePlaceIsNotReadIsNeverInOneCall(t *testing.T) {
	one := newThread(t, true)
	one.broken = errors.New("its pages are absent")
	for range 100 {
		one.switches++
		require.Equal(t, outcome{}, one.look('R'))
	}
	require.Equal(t, []int{2}, one.sleeps('S', 100), "its part in the kernel remains")
	require.NotNil(t, one.works(2).moved)
}

func TestAfterAnEndTheOthersAreTakenAtOnce(t *testing.T) {
	one := newThread(t, true)
	one.works(2)
	one.peer = true
	require.Equal(t, outcome{take: peerEnded}, one.works(3))
	require.Equal(t, outcome{}, one.look('R'), "once")
	one = newThread(t, true)
	one.peer = true
	require.Equal(t, peerEnded, one.look('S').take)
}

func TestFailuresAreTriedLaterAndLater(t *testing.T) {
	f := newFollower(identity.Process{})
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		f.failed(start)
		require.Equal(t, start.Add(want*time.Second), f.notUntil)
	}
}

func TestFramesLeaveOncePerHash(t *testing.T) {
	of := texts{}
	require.True(t, of.first(start, 1))
	require.True(t, of.first(start, 2))
	require.False(t, of.first(start.Add(textAgain-time.Second), 1))
	require.True(t, of.first(start.Add(textAgain), 1), "who reads them may have begun later")
	require.False(t, of.first(start.Add(textAgain+time.Second), 1))
	for i := range uint64(10_000) {
		of.first(start, i)
	}
	require.LessOrEqual(t, len(of), maxTexts)
}

func TestHabitsAreBounded(t *testing.T) {
	one := newThread(t, true)
	for i := range uint64(100) {
		one.place = pystack.Place{Chain: i, Calls: i}
		one.sleeps('S', 4)
		one.works(1000 + i)
	}
	require.LessOrEqual(t, len(one.habits), maxHabits)
	for range 100 {
		one.place = pystack.Place{Chain: 1, Calls: 1}
		one.sleeps('D', 4)
		one.works(1000)
	}
	require.Len(t, one.habits[1], maxTimes)
}

// A hang that was told as a fault is no habit: its place is looked at as soon the next time.
func TestAFaultIsNoHabit(t *testing.T) {
	for fault, want := range map[bool]int{true: 0, false: 1} {
		one := newThread(t, true)
		one.place = pystack.Place{Chain: 1, Calls: 1}
		one.sleeps('S', 4)
		require.NotNil(t, one.told)
		if fault {
			one.rest.Look(&activity.Process{State: socketstall.Stopped}, one.told.since.Add(time.Minute))
			require.True(t, one.rest.Faulty())
		}
		one.place = pystack.Place{Chain: 2, Calls: 2}
		one.works(1000)
		require.Nil(t, one.told)
		require.Len(t, one.habits[1], want)
		require.False(t, one.rest.Faulty(), "it goes on")
	}
}

func TestABucketFillsWithTime(t *testing.T) {
	b := bucket{size: 3, each: time.Second}
	for range 3 {
		require.True(t, b.take(start, 1))
	}
	require.False(t, b.take(start.Add(900*time.Millisecond), 1))
	require.True(t, b.take(start.Add(1100*time.Millisecond), 1))
	require.False(t, b.take(start.Add(1900*time.Millisecond), 1))
	require.True(t, b.take(start.Add(2100*time.Millisecond), 1), "parts of a pause count")
	require.True(t, b.take(start.Add(time.Hour), 3))
	require.False(t, b.take(start, 1), "a clock that goes back gives nothing")
	require.True(t, b.take(start.Add(time.Minute), 3))
	require.False(t, b.take(start.Add(time.Hour), 4))
	require.False(t, b.takeKeeping(start.Add(time.Hour), 2, 2))
	require.True(t, b.takeKeeping(start.Add(time.Hour), 1, 2))
	require.False(t, b.takeKeeping(start.Add(time.Hour), 1, 2), "two are kept")
	require.True(t, b.take(start.Add(time.Hour), 2))
}
