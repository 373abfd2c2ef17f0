package ncclcall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is what limits look at: processes by number, and the files that they call on.
type world struct {
	limits *limits
	at     time.Time
	slots  map[uint32]slot
	calls  map[uint32]Communicator
}

func newWorld() *world {
	return &world{limits: newLimits(100, 1000, 10), at: time.Unix(100, 0), slots: map[uint32]slot{1: {}}, calls: map[uint32]Communicator{}}
}

// call has a process of an owner make calls on a file.
func (w *world) call(pid, slot uint32, owner uint16, sends, collectives uint64) {
	c := w.calls[pid]
	c.PID, c.slot, c.owner = pid, slot, [2]uint16{owner, owner}
	c.Collectives += collectives
	c.Calls[Send] += sends
	w.calls[pid] = c
}

// after passes time and looks.
func (w *world) after(d time.Duration) map[uint32]Limit {
	w.at = w.at.Add(d)
	var list []Communicator
	for _, c := range w.calls {
		list = append(list, c)
	}
	w.limits.judge(w.at, list, w.slots, func(pid uint32) bool { _, there := w.calls[pid]; return !there })
	return w.limits.limited(list, w.slots)
}

func TestRatesAskForLimits(t *testing.T) {
	w := newWorld()
	look := func(sends, collectives uint64) map[uint32]Limit {
		w.call(1, 1, 1, sends, collectives)
		w.call(2, 2, 2, 0, 1)
		return w.after(time.Second)
	}
	require.Empty(t, look(1_000_000, 0), "since when is not known")
	require.Empty(t, look(100, 800))
	require.Equal(t, map[uint32]Limit{1: NoPointToPoint}, look(101, 0))
	require.Equal(t, map[uint32]Limit{1: NoCalls}, look(0, 1001))
	for l, want := range map[Limit]string{Unlimited: "none", NoPointToPoint: "point_to_point", NoCalls: "calls"} {
		require.Equal(t, want, l.String())
	}
	require.True(t, NoCalls.traces(lifetimes))
	require.False(t, NoCalls.traces(collectives))
	require.True(t, NoPointToPoint.traces(collectives))
	require.False(t, NoPointToPoint.traces(pointToPoint))
}

// Who calls too often is counted again after a minute, then after two, until an hour; who
// does so no more is forgotten.
func TestLimitsEndAndComeBackForLonger(t *testing.T) {
	w := newWorld()
	w.call(1, 1, 1, 0, 1)
	w.after(time.Second)
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		w.call(1, 1, 1, 0, 2000)
		require.Equal(t, NoCalls, w.after(time.Second)[1])
		w.call(1, 1, 1, 0, 1_000_000)
		require.Equal(t, NoCalls, w.after(pause*time.Minute - time.Second)[1])
		require.Empty(t, w.after(time.Second), "after %d minutes", pause)
		require.Empty(t, w.after(time.Second))
	}
	require.Empty(t, w.after(3*time.Hour))
	require.Empty(t, w.limits.processes)
	require.Empty(t, w.limits.libraries)
	w.call(1, 1, 1, 0, 1_000_000)
	w.after(time.Second)
	delete(w.calls, 1)
	require.Empty(t, w.after(time.Second))
	require.Empty(t, w.limits.processes, "it has ended")
}

func TestAFileIsLeftOnlyWhileNobodyElseUsesIt(t *testing.T) {
	one, other := Process{PID: 1, Owner: "user 1"}, Process{PID: 2, Owner: "user 2"}
	for name, tc := range map[string]struct {
		users []Process
		calls func(*world)
		left  bool
	}{
		"its own":                         {users: []Process{one}, left: true},
		"its own, with another process":   {users: []Process{one, {PID: 2, Owner: "user 1"}}, left: true},
		"another has it mapped":           {users: []Process{one, other}},
		"another calls on it":             {users: []Process{one}, calls: func(w *world) { w.call(2, 1, 2, 0, 1) }},
		"it is no rank, and another is":   {users: []Process{other}},
		"no user is known, and none else": {left: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.slots[1] = slot{users: tc.users}
			w.slots[2] = slot{}
			if tc.calls != nil {
				tc.calls(w)
			}
			w.call(1, 1, 1, 0, 1)
			w.after(time.Second)
			w.call(1, 1, 1, 0, 2000)
			require.Equal(t, NoCalls, w.after(time.Second)[1])
			require.Equal(t, tc.left, w.limits.libraryLimit(1) == NoCalls)
			require.Equal(t, Unlimited, w.limits.libraryLimit(2))
		})
	}
}

// Somebody else comes: the file is traced at once, and not left again for as long as it had
// been.
func TestAFileIsTracedAgainForWhoComes(t *testing.T) {
	w := newWorld()
	w.slots[1] = slot{users: []Process{{PID: 1, Owner: "user 1"}}}
	w.call(1, 1, 1, 0, 1)
	w.after(time.Second)
	w.call(1, 1, 1, 0, 2000)
	w.after(time.Second)
	require.Equal(t, NoCalls, w.limits.libraryLimit(1))
	alone := w.slots[1]
	w.slots[1] = slot{users: append(alone.users, Process{PID: 2, Owner: "user 2"})}
	require.Equal(t, map[uint32]Limit{1: NoCalls}, w.after(time.Second), "the other is counted")
	require.Equal(t, Unlimited, w.limits.libraryLimit(1))
	w.slots[1] = alone
	w.after(firstPause - 2*time.Second)
	require.Equal(t, Unlimited, w.limits.libraryLimit(1))
	w.after(2 * time.Second)
	w.call(1, 1, 1, 0, 2000)
	w.after(time.Second)
	require.Equal(t, NoCalls, w.limits.libraryLimit(1))
}

// What the kernel steps over costs more, and has a cap of its own, on average: many calls at once are no
// more than the same calls one after the other.
func TestWhatIsSteppedOverHasACapOnAverage(t *testing.T) {
	w := newWorld()
	w.slots[2] = slot{stepped: true, users: []Process{{PID: 2}, {PID: 3}}}
	steps := func(calls uint64, seconds int) (last map[uint32]Limit) {
		for range seconds {
			w.call(1, 1, 1, 0, 500) // on another library
			w.call(2, 2, 2, 0, calls)
			w.call(3, 2, 2, 0, 1)
			last = w.after(time.Second)
		}
		return last
	}
	require.Empty(t, steps(10, 31))
	require.Empty(t, steps(60, 1), "for a moment")
	require.Empty(t, steps(0, 9))
	require.Empty(t, steps(11, 9), "not for long enough")
	require.Equal(t, map[uint32]Limit{2: NoCalls, 3: NoCalls}, steps(11, 1), "the file is left: all who use it are one owner's")
	require.Equal(t, map[uint32]Limit{2: NoCalls, 3: NoCalls}, steps(0, 59))
	require.Empty(t, steps(0, 1), "a minute later")
	require.Empty(t, steps(11, 10), "it is judged by what it does since")
	require.Equal(t, NoCalls, steps(11, 1)[2])
	require.Equal(t, NoCalls, steps(0, 119)[2])
	require.Empty(t, steps(0, 1), "two minutes later")
	delete(w.calls, 2)
	w.after(time.Second)
	require.NotContains(t, w.limits.began, uint32(2))

	w.call(4, 2, 2, 0, 1)
	w.after(time.Second)
	w.call(4, 2, 2, 0, 1000/stepCost+1)
	require.Equal(t, NoCalls, w.after(time.Second)[4], "so many cost as much as the most of another library")
}
