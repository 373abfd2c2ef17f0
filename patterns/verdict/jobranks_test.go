package verdict

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rank 1 of another job is another one.
func TestRanksByJob(t *testing.T) {
	of := func(job, domain string, ranks ...int) Verdict {
		return Verdict{Culprit: map[string]string{"host": "node-a", "job": job, "job_domain": domain}, BlastRadius: ranks}
	}
	for name, tc := range map[string]struct {
		incident []Verdict
		want     []JobRanks
	}{
		"none":                                {[]Verdict{of("llm", "")}, []JobRanks{}},
		"one job":                             {[]Verdict{of("llm", "", 3), of("llm", "uid 7", 1, 3)}, []JobRanks{{"llm", []int{1, 3}}}},
		"a symptom of another job":            {[]Verdict{of("llm", "", 3), of("bob", "", 1)}, []JobRanks{{"llm", []int{3}}, {"bob", []int{1}}}},
		"the same id of another user":         {[]Verdict{of("llm", "uid 7", 3), of("llm", "uid 8", 1)}, []JobRanks{{"llm", []int{3}}, {"llm", []int{1}}}},
		"what names no job is of the only":    {[]Verdict{of("", "", 1, 3), of("llm", "")}, []JobRanks{{"llm", []int{1, 3}}}},
		"a machine on which two jobs run":     {[]Verdict{of("", "", 1, 2, 3), of("llm", "", 3), of("bob", "", 1)}, []JobRanks{{"llm", []int{3}}, {"bob", []int{1}}, {"", []int{2}}}},
		"nobody names a job":                  {[]Verdict{of("", "", 3), of("", "", 1)}, []JobRanks{{"", []int{1, 3}}}},
		"rank 1 of two jobs, of each of them": {[]Verdict{of("llm", "", 1), of("bob", "", 1)}, []JobRanks{{"llm", []int{1}}, {"bob", []int{1}}}},
	} {
		t.Run(name, func(t *testing.T) { require.ElementsMatch(t, tc.want, RanksByJob(tc.incident)) })
	}
}

func TestRanksHitSayOfWhichJobTheyAre(t *testing.T) {
	cause := Verdict{ID: "a", IncidentID: "i", Role: RootCause, Culprit: map[string]string{"host": "node-a", "rank": "3", "job": "llm"}, BlastRadius: Ranks{3}}
	effect := Verdict{ID: "b", IncidentID: "i", Role: Symptom, RootCause: "a", Culprit: map[string]string{"host": "node-a", "rank": "1", "job": "bob"}, BlastRadius: Ranks{1}}
	var out strings.Builder
	require.NoError(t, Render(&out, []Verdict{cause, effect}, Options{}))
	require.Contains(t, out.String(), "ranks hit 3 of job llm; 1 of job bob\n")
}
