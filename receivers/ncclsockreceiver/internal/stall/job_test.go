package stall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// Of the stages of a pipeline the one that owes data makes the others wait. The next has asked for its data
// before, and is silent for longer. The ages are those of real jobs with Gloo, in milliseconds.
func TestTheStageThatOwesDataMadeThePause(t *testing.T) {
	o := Defaults()
	for name, tc := range map[string]struct {
		ages     [][2]time.Duration // since the rank last sent, and last received
		suspect  int
		together []int
	}{
		"send and receive":              {[][2]time.Duration{{1604, 1668}, {1668, 1604}, {1688, 1688}, {1708, 1708}}, 1, []int{1}},
		"receive posted ahead":          {[][2]time.Duration{{1896, 1896}, {1668, 1668}, {1320, 1320}, {1748, 1320}}, 3, []int{3}},
		"two groups of two":             {[][2]time.Duration{{1760, 1004}, {1768, 1000}, {1004, 1004}, {1000, 1000}}, 1, []int{0, 1}},
		"the end of a collective":       {[][2]time.Duration{{1500, 1496}, {1504, 1496}, {1500, 1500}, {1496, 1496}}, 1, []int{0, 1, 2, 3}},
		"nobody owes":                   {[][2]time.Duration{{1972, 1972}, {1832, 1832}, {2276, 2276}, {1832, 1832}}, 2, []int{2}},
		"a tick of 10 ms is no debt":    {[][2]time.Duration{{1600, 1590}, {1700, 1700}}, 1, []int{1}},
		"one that only receives":        {[][2]time.Duration{{1600, 1500}, {-1, 1700}}, 0, []int{0}},
		"one that has not sent or read": {[][2]time.Duration{{1600, 1600}, {-1, -1}}, 0, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(jobKey{})
			for i, age := range tc.ages {
				r := &rank{tick: 10 * time.Millisecond, lastSent: age[0] * time.Millisecond, lastReceived: age[1] * time.Millisecond}
				r.now.Process = identity.Process{Rank: i}
				j.ranks = append(j.ranks, r)
			}
			first := j.suspect(&o)
			require.Equal(t, tc.suspect, first.now.Rank)
			var together []int
			for _, r := range j.together(first) {
				together = append(together, r.now.Rank)
			}
			require.Equal(t, tc.together, together)
		})
	}
}
