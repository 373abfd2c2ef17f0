package story

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Who reads lines reads each revision. Of one verdict that changes several times before it is given out, the last says all: where an
// earlier one said something else, such as that a death which belongs to a loop was a fault of its own, nobody has to read that. So a
// verdict is given out once at a time. What woke nobody yet, and is over, is told as open first. Causes come before symptoms, and
// no number of a revision is left out. A cause that is found later is told in the incident of which people know.
func TestAVerdictIsGivenOutOnceAtATime(t *testing.T) {
	overdue := 0
	each(t, func(t *testing.T, s told) {
		for _, batch := range []time.Duration{0, 2 * time.Second, time.Minute} { // records so close together come at once
			overdue += s.once(t, batch)
		}
	})
	require.Greater(t, overdue, 10, "the test sees something")
}

// once plays the story, and counts the verdicts that were open and over at once.
func (s told) once(t *testing.T, batch time.Duration) (overdue int) {
	t.Helper()
	revisions, told, incidents := map[string]int{}, map[string]verdict.Verdict{}, map[string]bool{}
	e, end := s.engine(t), start
	give := func() {
		newest, given := map[string]verdict.Verdict{}, e.Verdicts()
		for i, v := range given {
			require.Equal(t, revisions[v.ID]+1, v.Revision, "%s: %s", v.ID, v.Headline)
			revisions[v.ID] = v.Revision
			require.False(t, i > 0 && given[i-1].Role == verdict.Symptom && v.Role == verdict.RootCause, "the cause comes first: %s", v.Headline)
			if before, there := newest[v.ID]; there {
				overdue++
				is := []any{before.Role, before.Status, v.Role, v.Status, v.Headline}
				require.Equal(t, []any{verdict.RootCause, verdict.Open, verdict.RootCause, verdict.Resolved, before.Headline}, is, "%s: %s, then %s", v.ID, before.Headline, v.Headline)
			}
			newest[v.ID] = v
		}
		for id, v := range newest {
			if before := told[id]; before.Role == verdict.RootCause && v.Role == verdict.Symptom && before.IncidentID != v.IncidentID {
				require.True(t, incidents[v.IncidentID], "told as one incident, then as another that is new: %s", v.Headline)
			}
		}
		maps.Copy(told, newest)
		for _, v := range newest {
			incidents[v.IncidentID] = true
		}
	}
	arrivals := s.Input.arrivals()
	for i, a := range arrivals {
		e.Advance(a.at)
		end = a.at
		require.NoError(t, s.feed(e, &a))
		if i+1 == len(arrivals) || arrivals[i+1].at.Sub(a.at) >= batch {
			give()
		}
	}
	for _, at := range s.Input.clock(end) {
		e.Advance(at)
		give()
	}
	s.done(e)
	return overdue
}
