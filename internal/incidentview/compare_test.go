package incidentview

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// one is an incident that hit that many ranks for so long.
func one(id, pattern, host, rank string, since, took time.Duration, ranks int) View {
	v := View{
		ID: id, Pattern: pattern, Headline: pattern + " on " + host, Culprit: map[string]string{"host": host, "rank": rank}, Since: began.Add(since),
		Ranks: Ranks{Count: ranks}, Status: verdict.Open,
	}
	v.Lost = &Lost{Ranks: ranks, Seconds: took.Seconds(), RankHours: took.Hours() * float64(ranks)}
	return v
}

func sides() (a, b Side) {
	a = Side{Name: "run-41.json", First: began, Last: began.Add(2 * time.Hour), Incidents: []View{
		one("a1", "fuse_stall", "node-064", "517", 0, 10*time.Minute, 1024),
		one("a2", "straggler", "node-001", "8", 5*time.Minute, 10*time.Minute, 1024),
	}}
	b = Side{Name: "run-42.json", First: began, Last: began.Add(time.Hour), Incidents: []View{
		one("b1", "straggler", "node-001", "8", 0, 6*time.Minute, 1024),
		one("b2", "straggler", "node-001", "8", 10*time.Minute, 6*time.Minute, 1024),
		one("b3", "gpu_lost", "node-007", "", 30*time.Minute, 3*time.Minute, 512),
	}}
	return a, b
}

func TestCompareSaysWhatIsWorseAndNew(t *testing.T) {
	c := Compare(sides())
	require.InDelta(t, 900, c.A.Standing, 0.001, "what overlaps counts once")
	require.InDelta(t, 7.5, *c.A.PerHour, 0.001)
	require.InDelta(t, 15, *c.B.PerHour, 0.001)
	require.Equal(t, "B stands 15.0 min of each hour, A 7.5: straggler", c.Headline)
	require.Equal(t, []string{"straggler", "gpu_lost", "fuse_stall"}, []string{c.Causes[0].Pattern, c.Causes[1].Pattern, c.Causes[2].Pattern})
	require.Equal(t, []Finding{{ID: "b3", Pattern: "gpu_lost", Headline: "gpu_lost on node-007", Since: began.Add(30 * time.Minute)}}, c.New)
	require.Equal(t, "a1", c.Gone[0].ID)
	require.Len(t, c.Gone, 1)
	require.Equal(t, []RankDiff{{"rank 8", 1, 2}, {"rank 517", 1, 0}}, c.Ranks)
	require.Equal(t, []RankDiff{{"node-001", 1, 2}, {"node-007", 0, 1}, {"node-064", 1, 0}}, c.Nodes)
	page, plain, jsonText := compared(t, c)
	golden(t, "compare.html", page)
	golden(t, "compare.txt", plain)
	golden(t, "compare.json", jsonText)
}

func compared(t *testing.T, c Comparison) (page, plain, jsonText []byte) {
	t.Helper()
	var buffers [3]bytes.Buffer
	require.NoError(t, WriteCompareHTML(&buffers[0], c))
	require.NoError(t, WriteCompareText(&buffers[1], c))
	require.NoError(t, WriteCompareJSON(&buffers[2], c))
	valid(t, buffers[0].Bytes())
	require.True(t, json.Valid(buffers[2].Bytes()))
	return buffers[0].Bytes(), buffers[1].Bytes(), buffers[2].Bytes()
}

func TestTheOtherWayRoundIsBetter(t *testing.T) {
	a, b := sides()
	c := Compare(b, a)
	require.Equal(t, "B stands less: 7.5 min of each hour, A 15.0", c.Headline)
	require.Equal(t, "b3", c.Gone[0].ID)
}

// Nothing is known of what lies between incidents where only a report is there.
func TestCompareOfReportsHasNoShares(t *testing.T) {
	a, b := sides()
	a.First, a.Last, a.Incidents, b.First, b.Last, b.Incidents = time.Time{}, time.Time{}, a.Incidents[:1], time.Time{}, time.Time{}, b.Incidents[2:]
	c := Compare(a, b)
	require.Nil(t, c.A.PerHour)
	require.Equal(t, "B lost less: 25 rank hours, A 170", c.Headline)
	require.Len(t, c.Not, 2)
	compared(t, c)
}

func TestCompareOfNothing(t *testing.T) {
	c := Compare(Side{Name: "a"}, Side{Name: "b"})
	require.Equal(t, "Nothing is wrong in either that tracecore can see", c.Headline)
	compared(t, c)
	a, _ := sides()
	require.Equal(t, "A and B lost the same: 341 rank hours", Compare(a, a).Headline)
}

// A drill on one side makes it no worse: it costs nothing, names nobody, and is counted apart.
func TestDrillsAreNoIncidentsOfEitherSide(t *testing.T) {
	a, b := sides()
	want := Compare(a, b)
	drill := b.Incidents[2]
	drill.ID, drill.Pattern, drill.Drill = "drill", "nvlink_degradation", true
	drill.Culprit = map[string]string{"host": "node-100", "rank": "900"}
	b.Incidents = append([]View{drill}, b.Incidents...)
	got := Compare(a, b)
	require.Contains(t, got.Not, "drills: A has 0, B has 1")
	got.Not = slices.DeleteFunc(got.Not, func(not string) bool { return strings.HasPrefix(not, "drills") })
	require.Equal(t, want, got)
	require.Equal(t, "Nothing is wrong in either that tracecore can see", Compare(Side{Name: "a"}, Side{Name: "b", Incidents: []View{drill}}).Headline)
}

func TestHostileTextInAComparison(t *testing.T) {
	for _, text := range poison {
		v := Build(poisoned(text), Options{Now: began})
		_, b := sides()
		page, plain, jsonText := compared(t, Compare(Side{Name: text, Incidents: []View{v}}, b))
		for _, out := range [][]byte{page, plain, jsonText} {
			require.Less(t, len(out), 1<<20)
			require.Regexp(t, `^[\P{C}\n\t]*$`, string(out))
		}
		require.NotContains(t, string(jsonText), "<")
	}
}

// What two ranks lose in a minute would be shown as 0.0 rank hours, and has no line; but the
// minute counts. It does not reach beyond the end of a recording.
func TestASmallJobStandsAsLongAsALargeOne(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC)
	side := func(ranks []int, until time.Time) Side {
		v := Build([]verdict.Verdict{{
			ID: "v", IncidentID: "i", Pattern: "fuse_stall", Role: verdict.RootCause, Status: verdict.Open, Severity: verdict.Error, Confidence: verdict.Full,
			Headline: "a mount does not answer", Onset: at, Updated: at.Add(time.Minute), BlastRadius: ranks,
		}}, Options{Now: at.Add(time.Hour), Until: until})
		return Side{Name: "x", Incidents: []View{v}, First: at, Last: at.Add(2 * time.Minute)}
	}
	few, many := side([]int{0, 1}, time.Time{}), side([]int{0, 1, 2, 3, 4, 5, 6, 7}, time.Time{})
	require.Nil(t, few.Incidents[0].LostOrNone())
	require.NotNil(t, many.Incidents[0].LostOrNone())
	c := Compare(few, many)
	require.InDelta(t, 30, *c.A.PerHour, 1e-9)
	require.InDelta(t, 30, *c.B.PerHour, 1e-9)
	cut := side([]int{0, 1}, at.Add(20*time.Second))
	require.InDelta(t, 20, cut.Incidents[0].Lost.Seconds, 1e-9)
}

// Why shares of time are not known is said of the side that lacks them.
func TestWhySharesOfTimeAreNotKnown(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC)
	whole, moment, empty := Side{Name: "a", First: at, Last: at.Add(time.Hour)}, Side{Name: "b", First: at, Last: at}, Side{Name: "c"}
	require.Contains(t, Compare(whole, moment).Not, "shares of time: B has records of one moment alone")
	require.Contains(t, Compare(empty, whole).Not, "shares of time: A has no record with a time")
}
