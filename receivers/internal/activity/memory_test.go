package activity

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

var noon = time.Unix(1_700_000_000, 0)

// after is a Rest that goes on with what another knew.
func after(t *testing.T, r *Rest, now time.Time) *Rest {
	t.Helper()
	text, err := json.Marshal(r.Memory())
	require.NoError(t, err)
	var m Memory
	require.NoError(t, json.Unmarshal(text, &m))
	next := &Rest{Enough: r.Enough}
	next.Recall(&m, now)
	return next
}

// goes lets a process go on once a second, so often, after a pause.
func goes(r *Rest, at time.Time, pause time.Duration, times int) time.Time {
	at = at.Add(pause)
	for range times {
		r.Goes(at, at, true)
		at = at.Add(time.Second / 2)
	}
	return at
}

// sleeps is after how many seconds of rest it is overdue.
func sleeps(r *Rest, at time.Time) int {
	for second := range 100 {
		r.Look(&Process{State: socketstall.Sleeping, Inside: &Inside{Compared: true}}, at.Add(time.Duration(second)*time.Second))
		if r.Silence == socketstall.Overdue {
			return second
		}
	}
	return 0
}

func TestARestThatIsRecalledKnowsItsPauses(t *testing.T) {
	r := &Rest{}
	at := goes(r, noon, 0, 5)
	for range 3 {
		at = goes(r, at, 20*time.Second, 1)
	}
	at = goes(r, at, 0, 30)
	next := after(t, r, at)
	require.InDelta(t, 40, next.Patience(at).Seconds(), 2, "three pauses of 20 s")
	at = goes(next, at, 0, 1)
	require.InDelta(t, 41, sleeps(next, at), 2)

	r = &Rest{}
	at = goes(r, noon, 0, 30)
	next = after(t, r, at)
	at = goes(next, at, 0, 1)
	require.LessOrEqual(t, sleeps(next, at), 4, "it makes no pauses")
	fresh := &Rest{}
	at = goes(fresh, at, 0, 1)
	require.Greater(t, sleeps(fresh, at), 50, "one that was not recalled")
}

// It makes pauses of 20 s. Time in which nobody watched makes them no older. After more than the hour for
// which they are remembered it has to be learned again that they are known.
func TestAUsualPauseAfterAnAbsence(t *testing.T) {
	for absence, overdue := range map[time.Duration]int{0: 40, time.Minute: 40, 59 * time.Minute: 40, 2 * time.Hour: 60, -time.Minute: 40, -2 * time.Hour: 60} {
		t.Run(absence.String(), func(t *testing.T) {
			r := &Rest{}
			at := goes(r, noon, 0, 5)
			for range 3 {
				at = goes(r, at, 20*time.Second, 1)
			}
			at = goes(r, at, 0, 30)
			m := r.Memory().After(absence)
			next := &Rest{}
			at = at.Add(absence)
			next.Recall(&m, at)
			at = goes(next, at, 0, 1)
			require.InDelta(t, overdue, sleeps(next, at), 2)
			at = goes(next, at.Add(time.Minute), 0, 30)
			require.InDelta(t, 40, sleeps(next, at), 2, "its pauses are known again")
			at = goes(next, at.Add(time.Hour), 0, 1)
			require.LessOrEqual(t, sleeps(next, at), 4, "an hour in which it was watched")
		})
	}
}

// A hang that was told, and stands through a restart, is no pause to learn after it.
func TestAFaultThroughARestartIsNoPause(t *testing.T) {
	r := &Rest{}
	at := goes(r, noon, 0, 30)
	for range 4 {
		require.NotZero(t, sleeps(r, at))
		require.True(t, r.Faulty())
		r = after(t, r, at)
		at = goes(r, at.Add(time.Minute), 0, 1) // the first look
		at = goes(r, at, 2*time.Second, 5)
		require.False(t, r.Faulty())
	}
	require.Zero(t, r.Patience(at))
}

func TestADamagedMemoryOfARestIsNone(t *testing.T) {
	for _, m := range []Memory{
		{}, {AtWork: -5, First: noon.UnixMilli()}, {AtWork: 1 << 62, First: -1}, {AtWork: 100, First: noon.Add(time.Hour).UnixMilli()},
		{Pauses: make([]Kept, 1000)}, {Pauses: []Kept{{1 << 62, 1 << 62, ""}, {-1 << 62, 5000, ""}, {noon.UnixMilli(), -5000, ""}, {noon.UnixMilli() + 1, 5000, ""}}},
	} {
		r := &Rest{}
		r.Recall(&m, noon)
		require.Empty(t, r.pauses)
		require.Zero(t, r.learned)
	}
	for _, absence := range []time.Duration{1 << 62, -1 << 62, time.Minute} {
		r := &Rest{}
		m := Memory{AtWork: 100, Pauses: []Kept{{1<<63 - 1, 5000, ""}, {-1 << 63, 5000, ""}}}.After(absence)
		r.Recall(&m, noon)
		require.Empty(t, r.pauses)
		require.Zero(t, r.learned)
	}
	r := &Rest{}
	r.Recall(&Memory{AtWork: 1 << 62, First: noon.Add(-time.Hour).UnixMilli()}, noon)
	require.Equal(t, learning, r.learned)
}
