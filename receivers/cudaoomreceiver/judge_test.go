package cudaoomreceiver

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
)

const (
	settle = 3 * time.Second
	gib    = 1 << 30
)

// step is an event, the end of a process or a look at the clock, so many seconds
// after the start.
type step struct {
	at      float64
	event   *cudaoom.Event
	exit    uint32
	told    int // findings of this step
	retried bool
}

func after(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func refused(thread uint32) *cudaoom.Event {
	return &cudaoom.Event{PID: 42, Thread: thread, Function: cudaoom.MemAlloc, SizeBytes: gib, Device: cudaoom.DeviceUnknown}
}

func granted(thread uint32) *cudaoom.Event {
	e := refused(thread)
	e.Succeeded = true
	return e
}

func (s step) take(j *judge) []finding {
	switch {
	case s.exit != 0:
		return j.exited(s.exit, after(s.at))
	case s.event == nil:
		return j.due(after(s.at))
	}
	s.event.Time = after(s.at)
	if f := j.observe(s.event); f != nil {
		return []finding{*f}
	}
	return nil
}

func TestRefusalsAreJudgedByWhatComesAfterThem(t *testing.T) {
	for name, tc := range map[string]struct {
		steps    []step
		attempts []int // of the findings, in order
		retried  int
	}{
		"PyTorch tries again and gets it": {
			[]step{{at: 0, event: refused(1)}, {at: 0.5, event: granted(1)}, {at: 60}}, nil, 1,
		},
		"PyTorch tries twice and raises": {
			[]step{{at: 0, event: refused(1)}, {at: 0.5, event: refused(1)}, {at: 3.4}, {at: 3.5, told: 1}, {at: 60}}, []int{2}, 0,
		},
		"refused three times, then granted": {
			[]step{{at: 0, event: refused(1)}, {at: 1, event: refused(1)}, {at: 3.5, event: refused(1)}, {at: 4, event: granted(1)}, {at: 60}}, nil, 1,
		},
		"once, while a graph is captured": {
			[]step{{at: 0, event: refused(1)}, {at: 3, told: 1}}, []int{1}, 0,
		},
		"the rank dies of it": {
			[]step{{at: 0, event: refused(1)}, {at: 0.1, event: refused(1)}, {at: 0.9, exit: 42, told: 1}, {at: 60}}, []int{2}, 0,
		},
		"somebody else dies": {
			[]step{{at: 0, event: refused(1)}, {at: 0.9, exit: 43}, {at: 1, event: granted(1)}}, nil, 1,
		},
		"granted to another thread": {
			[]step{{at: 0, event: refused(1)}, {at: 0.5, event: granted(2)}, {at: 3, told: 1}}, []int{1}, 0,
		},
		"two threads, each for itself": {
			[]step{{at: 0, event: refused(1)}, {at: 1, event: refused(2)}, {at: 4, told: 2}}, []int{1, 1}, 0,
		},
		"asks on and on, and is told before it stops": {
			[]step{
				{at: 0, event: refused(1)}, {at: 2, event: refused(1)}, {at: 4, event: refused(1)}, {at: 6, event: refused(1)}, {at: 8, event: refused(1)},
				{at: 10, event: refused(1)}, {at: 12, event: refused(1)}, {at: 14, event: refused(1)}, {at: 14.5}, {at: 15, told: 1},
			}, []int{8}, 0,
		},
		"told, then told again only after a minute": {
			[]step{
				{at: 0, event: refused(1)}, {at: 3, told: 1}, {at: 10, event: refused(1)}, {at: 30, event: refused(1)}, {at: 62.9}, {at: 63, told: 1}, {at: 200},
			}, []int{1, 2}, 0,
		},
		"granted after it was told": {
			[]step{{at: 0, event: refused(1)}, {at: 3, told: 1}, {at: 40, event: granted(1), told: 1, retried: true}, {at: 50, event: granted(1)}}, []int{1, 0}, 0,
		},
		"granted long after": {
			[]step{{at: 0, event: refused(1)}, {at: 3, told: 1}, {at: 601}, {at: 602, event: granted(1)}}, []int{1}, 0,
		},
		"granted, and the refusal was lost": {
			[]step{{at: 0, event: granted(1)}, {at: 60}}, nil, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJudge(settle, func(*cudaoom.Event) string { return "" })
			var attempts []int
			for _, s := range tc.steps {
				findings := s.take(j)
				require.Len(t, findings, s.told, "at %v", s.at)
				for _, f := range findings {
					attempts = append(attempts, f.attempts)
					require.Equal(t, s.retried, f.retried)
				}
			}
			require.Equal(t, tc.attempts, attempts)
			retried, dropped := j.counts()
			require.Equal(t, tc.retried, retried)
			require.Zero(t, dropped)
			again, _ := j.counts()
			require.Zero(t, again)
		})
	}
}

func TestFindingHasTheLastRefusal(t *testing.T) {
	j := newJudge(settle, func(*cudaoom.Event) string { return "" })
	for i, size := range []uint64{1000, 900, 810} { // XLA gives up
		e := refused(1)
		e.Time, e.SizeBytes = after(float64(i)), size
		require.Nil(t, j.observe(e))
	}
	findings := j.due(after(60))
	require.Len(t, findings, 1)
	require.EqualValues(t, 810, findings[0].SizeBytes)
	require.Equal(t, after(2), findings[0].Time)
}

// Threads without end of one user, each of a process of its own, hide no refusal of another.
func TestThreadsOfOneUserHideNoRefusalOfAnother(t *testing.T) {
	j := newJudge(settle, func(e *cudaoom.Event) string {
		return map[bool]string{true: "user 1000", false: "user 1001"}[e.PID == 1]
	})
	flood := func(round uint32) {
		for i := range uint32(maxThreads + 10) {
			e := refused(1)
			e.PID, e.Thread, e.Time = 2+i, 2+i+round, after(0)
			require.Nil(t, j.observe(e))
		}
	}
	flood(0)
	mine := refused(1)
	mine.PID, mine.Time = 1, after(1)
	require.Nil(t, j.observe(mine))
	flood(1 << 20)
	require.True(t, slices.ContainsFunc(j.due(after(60)), func(f finding) bool { return f.PID == 1 }))
	require.LessOrEqual(t, len(j.threads), maxThreads)
}

func TestThreadsBeyondTheCapAreCounted(t *testing.T) {
	j := newJudge(settle, func(*cudaoom.Event) string { return "" })
	for i := range uint32(maxThreads + 10) {
		e := refused(i + 1)
		e.Time = after(0)
		require.Nil(t, j.observe(e))
	}
	_, dropped := j.counts()
	require.Equal(t, 10, dropped)
	require.Len(t, j.due(after(3)), maxThreads)
	require.Empty(t, j.due(after(602)))
	require.Empty(t, j.threads, "forgotten")
}
