package judge

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var began = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

func line(after time.Duration, id, role, status, severity, rank, headline string) Line {
	return Line{
		At: began.Add(after), ID: id, Incident: "i" + id, Pattern: "nccl_socket_stall", Role: role, Status: status, Severity: severity,
		Headline: headline, Culprit: map[string]string{"rank": rank},
	}
}

func stopped(rank string) Truth {
	return Truth{
		Began: began, Healed: began.Add(5 * time.Second),
		Right: []Answer{{Pattern: "nccl_socket_stall", Culprit: map[string]string{"rank": rank}, Says: regexp.MustCompile("stopped")}},
	}
}

func TestTheRightStatementCountsFromTheFault(t *testing.T) {
	o := Judge(stopped("2"), []Line{
		line(2*time.Second, "a", "root_cause", "open", "error", "2", "rank 2 is stopped"),
		line(6*time.Second, "a", "root_cause", "resolved", "error", "2", "rank 2 was stopped"),
	})
	require.True(t, o.Culprit)
	require.True(t, o.Cause)
	require.Equal(t, 2*time.Second, o.First)
	require.True(t, o.Resolved)
	require.Equal(t, time.Second, o.Resolve)
	require.Empty(t, o.Wrong)
	require.Zero(t, o.Doubled)
}

func TestWhatIsOpenedAgainIsNotOver(t *testing.T) {
	lines := []Line{
		line(2*time.Second, "a", "root_cause", "open", "error", "2", "rank 2 is stopped"),
		line(3*time.Second, "a", "root_cause", "resolved", "error", "2", "rank 2 was stopped"),
		line(4*time.Second, "a", "root_cause", "open", "error", "2", "rank 2 is stopped"),
		line(9*time.Second, "a", "root_cause", "resolved", "error", "2", "rank 2 was stopped"),
	}
	require.False(t, Judge(stopped("2"), lines[:3]).Resolved)
	o := Judge(stopped("2"), lines)
	require.True(t, o.Resolved)
	require.Equal(t, 4*time.Second, o.Resolve)
}

func TestTheRightRankForTheWrongReasonIsHalfRight(t *testing.T) {
	o := Judge(stopped("2"), []Line{line(2*time.Second, "a", "root_cause", "open", "error", "2", "rank 2: a file system does not answer")})
	require.True(t, o.Culprit)
	require.False(t, o.Cause)
	require.Empty(t, o.Wrong)
}

func TestAnotherCulpritIsWrong(t *testing.T) {
	for name, lines := range map[string][]Line{
		"another rank":            {line(2*time.Second, "a", "root_cause", "open", "error", "1", "rank 1 is stopped")},
		"the same verdict before": {line(2*time.Second, "a", "root_cause", "open", "error", "1", ""), line(3*time.Second, "a", "root_cause", "open", "error", "2", "stopped")},
		"of a healthy job":        {line(2*time.Second, "a", "root_cause", "open", "warning", "0", "")},
	} {
		truth := stopped("2")
		if name == "of a healthy job" {
			truth.Right = nil
		}
		require.Len(t, Judge(truth, lines).Wrong, 1, name)
	}
}

// TestTimeWithoutAnAgentIsNotCounted: as far as it lies between the fault and what is told of it.
func TestTimeWithoutAnAgentIsNotCounted(t *testing.T) {
	at := func(from, to time.Duration) Span { return Span{began.Add(from), began.Add(to)} }
	for name, tc := range map[string]struct {
		away []Span
		want time.Duration
	}{
		"always one":           {nil, 6 * time.Second},
		"between":              {[]Span{at(2*time.Second, 5*time.Second)}, 3 * time.Second},
		"since before":         {[]Span{at(-2*time.Second, 1*time.Second)}, 5 * time.Second},
		"told before it is up": {[]Span{at(5*time.Second, 8*time.Second)}, 5 * time.Second},
		"before and after":     {[]Span{at(-5*time.Second, -2*time.Second), at(7*time.Second, 9*time.Second)}, 6 * time.Second},
		"twice":                {[]Span{at(1*time.Second, 2*time.Second), at(3*time.Second, 4*time.Second)}, 4 * time.Second},
	} {
		truth := stopped("2")
		truth.Away = tc.away
		o := Judge(truth, []Line{line(6*time.Second, "a", "root_cause", "open", "error", "2", "stopped")})
		require.Equal(t, tc.want, o.First, name)
	}
}

func TestInformationAndSymptomsAccuseNobody(t *testing.T) {
	o := Judge(Truth{Began: began}, []Line{
		line(1, "a", "root_cause", "open", "info", "0", "the job waits for rank 0, which writes"),
		line(2, "b", "symptom", "open", "error", "0", "rank 0 stands still"),
		line(3, "c", "root_cause", "resolved", "error", "0", "over"),
	})
	require.Empty(t, o.Wrong)
	require.Empty(t, o.Told)
	require.Len(t, o.Beside, 3)
}

func TestTwoIncidentsOfOneFaultAreDoubled(t *testing.T) {
	o := Judge(stopped("2"), []Line{
		line(2*time.Second, "a", "root_cause", "open", "error", "2", "stopped"),
		line(3*time.Second, "a", "root_cause", "open", "error", "2", "still stopped"),
		line(4*time.Second, "b", "root_cause", "open", "error", "2", "stopped"),
	})
	require.Equal(t, 1, o.Doubled)
}

func TestWhatIsBesideThePointIsNeither(t *testing.T) {
	truth := Truth{Began: began, Also: []Answer{{Pattern: "nccl_socket_stall", Culprit: map[string]string{"rank": "1"}}}}
	o := Judge(truth, []Line{line(1, "a", "root_cause", "open", "error", "1", "")})
	require.Empty(t, o.Wrong)
	require.False(t, o.Culprit)
}

func TestALineThatIsNoVerdictIsAnError(t *testing.T) {
	_, err := Read([]byte("warn something"), began)
	require.ErrorContains(t, err, "read a verdict")
	l, err := Read(fmt.Appendf(nil, `{"verdict_id":"a","pattern":"rank_exit","culprit":{"rank":"3"},"evidence":[{"shows":"x"}]}`), began)
	require.NoError(t, err)
	require.Equal(t, "3", l.Culprit["rank"])
	require.Equal(t, began, l.At)
}

func TestAnUpdateOfAnOlderVerdictCanBeRightAndNotWrong(t *testing.T) {
	again := line(2*time.Second, "a", "root_cause", "open", "error", "2", "rank 2 is stopped again")
	again.Old = true
	o := Judge(stopped("2"), []Line{again})
	require.True(t, o.Cause)
	o = Judge(stopped("1"), []Line{again})
	require.False(t, o.Culprit)
	require.Empty(t, o.Wrong)
}

// A line counts where the same statement has culprit and cause; another line, or none, does not.
func TestTheLineOfCodeIsScoredBesideTheCause(t *testing.T) {
	truth := stopped("2")
	require.False(t, Judge(truth, nil).Placed)
	truth.Right[0].At = regexp.MustCompile(`\bat train\.py:7 in save`)
	for headline, want := range map[string]bool{
		"rank 2 is stopped, at train.py:7 in save < main": true,
		"rank 2 is stopped, at train.py:8 in load < main": false,
		"rank 2 is stopped":                   false,
		"rank 2 sleeps at train.py:7 in save": false,
	} {
		o := Judge(truth, []Line{line(2*time.Second, "a", "root_cause", "open", "error", "2", headline)})
		require.True(t, o.Placed, headline)
		require.Equal(t, want, o.Line, headline)
	}
	o := Judge(truth, []Line{line(2*time.Second, "a", "root_cause", "open", "error", "1", "rank 1 is stopped at train.py:7 in save")})
	require.False(t, o.Line, "another rank")
}

// A cause that is over and what it led to is not: somebody is still called.
func TestWhatGoesOnIsOpen(t *testing.T) {
	lines := []Line{
		line(2*time.Second, "a", "root_cause", "resolved", "error", "2", "rank 2 was stopped"),
		line(9*time.Second, "a", "root_cause", "resolved", "error", "2", "rank 2 was stopped"),
	}
	require.False(t, Judge(stopped("2"), lines).Culprit)
	lines[0].GoesOn = "error"
	require.False(t, Judge(stopped("2"), lines[:1]).Resolved)
	o := Judge(stopped("2"), lines)
	require.True(t, o.Cause)
	require.Equal(t, 2*time.Second, o.First)
	require.True(t, o.Resolved)
	require.Equal(t, 4*time.Second, o.Resolve)
}
