package timeline

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const second = int64(time.Second)

func newTimeline() *Timeline {
	return New(Options{Lateness: 10 * time.Second, MaxDelay: time.Minute, MaxAhead: 10 * time.Second, Series: 4, Points: 8}, func() bool { return false })
}

func TestAdmitPlacesARecordOrDropsIt(t *testing.T) {
	now := 10_000 * second
	for name, tc := range map[string]struct {
		in, want Span
		dropped  bool
		now      int64
	}{
		"the newest moves time": {in: Span{Time: now + second, Last: now + second}, want: Span{Time: now + second, Last: now + second}, now: now + second},
		"in its place":          {in: Span{Time: now - 9*second, Last: now - 9*second}, want: Span{Time: now - 9*second, Last: now - 9*second}, now: now},
		"held by its sender":    {in: Span{Time: now - 30*second, Last: now - 30*second}, want: Span{Time: now - 30*second, Last: now - 30*second, Overdue: now}, now: now},
		"too late":              {in: Span{Time: now - 61*second, Last: now - 61*second}, dropped: true, now: now},
		"its clock is ahead":    {in: Span{Time: now + 11*second, Last: now + 11*second}, want: Span{Time: now, Last: now}, now: now},
		"it has no time":        {in: Span{}, want: Span{Time: now, Last: now}, now: now},
		"the end of time":       {in: Span{Time: 5, Last: math.MaxInt64}, want: Span{Time: now, Last: now}, now: now},
		"it covers hours":       {in: Span{Time: now - 9000*second, Last: now}, want: Span{Time: now - 3600*second, Last: now}, now: now},
	} {
		t.Run(name, func(t *testing.T) {
			line := newTimeline()
			line.Advance(time.Unix(0, now))
			got := tc.in
			require.Equal(t, !tc.dropped, line.Admit(&got))
			if !tc.dropped {
				require.Equal(t, tc.want, got)
			}
			require.Equal(t, tc.now, line.Now())
		})
	}
}

// waiter notes when it was called and waits again as often as it is told to.
type waiter struct {
	line  *Timeline
	name  string
	again []int64
	wait  int64
	log   *[]string
}

func (w *waiter) Wait() *int64 { return &w.wait }

func (w *waiter) Fire() {
	*w.log = append(*w.log, w.name)
	if len(w.again) > 0 {
		at := w.again[0]
		w.again = w.again[1:]
		w.line.Call(w, at)
	}
}

func TestWaitersAreCalledInOrderOfTime(t *testing.T) {
	line, log := newTimeline(), []string{}
	a, b, c := &waiter{line: line, name: "a", log: &log}, &waiter{line: line, name: "b", log: &log, again: []int64{6, 20}}, &waiter{line: line, name: "c", log: &log}
	line.Call(a, 10)
	line.Call(b, 5)
	line.Call(c, 10)
	line.Call(c, 30) // its earlier wait stays
	require.True(t, line.Advance(time.Unix(0, 10)))
	require.Equal(t, []string{"b", "b", "a", "c"}, log)
	require.False(t, line.Advance(time.Unix(0, 19)))
	require.True(t, line.Advance(time.Unix(0, 20)))
	require.Equal(t, []string{"b", "b", "a", "c", "b"}, log)
}

// What waits no longer does not stay in memory until its time comes.
func TestStaleWaitsAreDropped(t *testing.T) {
	line, log := newTimeline(), []string{}
	for i := range 100_000 {
		w := &waiter{line: line, log: &log}
		line.Call(w, int64(i)+1e9)
		w.wait = 0
	}
	require.Less(t, len(line.tasks.heap), 2048)
}

// A state that holds is marked when nothing can come in between any more, and a
// sample that comes late, within the lateness, takes its place.
func TestAStateIsJudgedWhenItIsSettled(t *testing.T) {
	line := newTimeline()
	table := NewTable(line)
	var marks []int64
	op := &Operator{Owner: nobody, Does: rule.Stay, Stays: rule.Stays{For: 30 * time.Second}, Mark: func(_ *Series, shown Shown) { marks = append(marks, shown.Time) }}
	at := func(sec int64, on bool) {
		span := Span{Time: sec * second, Last: sec * second}
		require.True(t, line.Admit(&span))
		table.Sample(op, 1, &Sample{Time: span.Time, On: on})
	}
	at(100, true)
	at(129, true)
	at(122, false)
	line.Advance(time.Unix(0, 141*second))
	require.Empty(t, marks, "it was off at 122")
	line.Advance(time.Unix(0, 169*second))
	require.Empty(t, marks, "an end at 159 may still come")
	line.Advance(time.Unix(0, 169*second+1))
	require.Equal(t, []int64{129 * second}, marks)
}

func TestTheSeriesSilentForLongestLeaves(t *testing.T) {
	line := newTimeline()
	table := NewTable(line)
	op := &Operator{Owner: nobody, Does: rule.Increase, Mark: func(*Series, Shown) {}}
	for i := range uint64(20) {
		table.Sample(op, 1, &Sample{Time: int64(i+1) * second})
		table.Sample(op, 100+i, &Sample{Time: int64(i+1) * second})
	}
	require.Equal(t, 4, table.Len())
	require.NotNil(t, table.series[seriesKey{op, 1}])
	require.Equal(t, uint64(17), line.Stats.EvictedSeries)
	require.NotZero(t, line.Stats.EvictedPoints)
}

func nobody([]string) []string { return nil }
