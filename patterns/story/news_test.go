package story

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// number is a count, a size, a time or a duration in words.
var number = regexp.MustCompile(`[0-9]+([.,:][0-9]+)*`)

// read is what an operator reads of a verdict, without counts and times: who is named and
// who is hit, how bad and how sure it is, what was seen and by whom, what was not, what to do.
func read(t *testing.T, v verdict.Verdict) string {
	t.Helper()
	v.Revision, v.Onset, v.Updated = 0, time.Time{}, time.Time{}
	v.Headline = number.ReplaceAllString(v.Headline, "#")
	v.Evidence = slices.Clone(v.Evidence)
	for i := range v.Evidence {
		e := &v.Evidence[i]
		*e = verdict.Evidence{Name: e.Name, Source: e.Source, Trust: e.Trust, Shows: number.ReplaceAllString(e.Shows, "#")}
	}
	slices.SortStableFunc(v.Evidence, func(a, b verdict.Evidence) int { return cmp.Compare(a.Name, b.Name) })
	return text(t, v)
}

const (
	mostVerdict  = 16 << 10
	mostIncident = 16 << 10 // the newest revisions of all its verdicts
	// Counts and times alone are told after a second, then ever more rarely.
	firstCounts, lastCounts = time.Second, 5 * time.Minute
)

// revision is the newest that was given out of a verdict.
type revision struct {
	verdict.Verdict
	at   time.Time
	next time.Duration // until counts may be told alone
}

// timeless is a revision without its number and the time of what was seen last.
func timeless(v verdict.Verdict) verdict.Verdict {
	v.Revision, v.Updated = 0, time.Time{}
	return v
}

// A revision comes with something to read. One of a verdict that is over does not differ in its time alone. Counts and times alone are given out after 1 s,
// 2 s, 4 s, … 5 min, so that a fault that lasts is told with its last value. What one has to
// read of the largest incident of the stories is small.
func TestARevisionComesOnlyWithNews(t *testing.T) {
	largest, where := 0, ""
	each(t, func(t *testing.T, s told) {
		newest := map[string]*revision{}
		s.eachVerdict(t, func(at time.Time, v verdict.Verdict) {
			require.LessOrEqual(t, len(verdict.ToJSON(v)), mostVerdict, v.ID)
			old := newest[v.ID]
			if old == nil {
				newest[v.ID] = &revision{v, at, firstCounts}
				return
			}
			if v.Revision != old.Revision && read(t, old.Verdict) == read(t, v) {
				require.GreaterOrEqual(t, at.Sub(old.at), old.next, "%s: revision %d of %s says nothing new", v.Headline, v.Revision, v.ID)
				old.next = min(2*old.next, lastCounts)
			}
			if v.Revision != old.Revision && v.Status == verdict.Resolved {
				require.NotEqual(t, timeless(old.Verdict), timeless(v), "%s: revision %d of %s differs in its time alone", v.Headline, v.Revision, v.ID)
			}
			old.Verdict, old.at = v, at
		})
		sizes := map[string]int{}
		for _, one := range newest {
			if sizes[one.IncidentID] += len(verdict.ToJSON(one.Verdict)); sizes[one.IncidentID] > largest {
				largest, where = sizes[one.IncidentID], t.Name()
			}
		}
	})
	t.Logf("the largest incident has %d bytes: %s", largest, where)
	require.Less(t, largest, mostIncident, where)
}

// Where all ranks wait for each other, the sockets' guess is no root cause for a moment: it waits for the stacks.
func TestAGuessWaitsForTheStacks(t *testing.T) {
	played := 0
	each(t, func(t *testing.T, s told) {
		if !strings.Contains(t.Name(), "a_pipeline_deadlocks_in_its_first_step") && !strings.Contains(t.Name(), "two_ranks_receive_from_each_other") {
			return
		}
		played++
		s.eachVerdict(t, func(at time.Time, v verdict.Verdict) {
			require.False(t, v.Pattern == "nccl_socket_stall" && v.Role == verdict.RootCause, "%s, at %s", v.Headline, at)
		})
	})
	require.Equal(t, 2, played)
}

// A guess that waited for the stacks when its agent was killed waits for those of the next agent, which take as long as ever.
func TestAGuessWaitsForTheStacksOfTheNextAgent(t *testing.T) {
	played := 0
	each(t, func(t *testing.T, s told) {
		if !strings.HasSuffix(t.Name(), "two_ranks_fell_silent_at_once.txtar") {
			return
		}
		played++
		e, at := s.engine(t), start
		for _, a := range s.Input.arrivals() {
			e.Advance(a.at)
			at = a.at
			require.NoError(t, s.feed(e, &a))
		}
		at = at.Add(2 * time.Second) // records of other ranks are waited for until then
		e.Advance(at)
		require.Empty(t, e.Verdicts())
		saved, err := e.Snapshot()
		require.NoError(t, err)
		s.done(e)
		next := s.engine(t)
		require.NoError(t, next.Restore(saved))
		at = at.Add(10 * time.Second)
		require.True(t, next.Resumed(at))
		for range 2 {
			next.Advance(at)
			require.Empty(t, next.Verdicts())
			at = at.Add(5900 * time.Millisecond)
		}
		next.Advance(at.Add(200 * time.Millisecond))
		require.Len(t, next.Verdicts(), 1)
		require.False(t, next.Resumed(at), "it was told")
		s.done(next)
	})
	require.Equal(t, 1, played)
}

// eachVerdict plays the story and shows each revision with the time at which it came.
func (s told) eachVerdict(t *testing.T, show func(at time.Time, v verdict.Verdict)) {
	t.Helper()
	e, end := s.engine(t), start
	take := func(at time.Time) {
		for _, v := range e.Verdicts() {
			show(at, v)
		}
	}
	for _, a := range s.Input.arrivals() {
		e.Advance(a.at)
		end = a.at
		require.NoError(t, s.feed(e, &a))
		take(a.at)
	}
	for _, at := range s.Input.clock(end) {
		e.Advance(at)
		take(at)
	}
	s.done(e)
}
