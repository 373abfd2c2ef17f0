package verdicts

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func of(pattern string, culprit map[string]string) *Found {
	f := &Found{Verdict: lost()}
	f.Pattern, f.Culprit = pattern, culprit
	return f
}

func TestAnOwnerFillsItsOwnRoomAlone(t *testing.T) {
	var c Crowd
	now := lost().Onset
	tell := func(f *Found) bool {
		if c.Full(f, now) {
			return false
		}
		c.Note(f)
		return true
	}
	told := 0
	for i := range 10 * MostToldOfJobs {
		if tell(of("rank_exit", map[string]string{"job": strconv.Itoa(i), "job_domain": "user 1000", "node": "1"})) {
			told++
		}
	}
	require.Equal(t, MostTold, told, "another job is no other owner")
	for i := range 10 * MostToldOfJobs {
		if tell(of("rank_exit", map[string]string{"job": strconv.Itoa(i), "job_domain": "user 1000", "node": strconv.Itoa(i)})) {
			told++
		}
	}
	require.Equal(t, MostToldOfJobs, told, "nor is another node, for ever")
	for name, other := range map[string]*Found{
		"another user":    of("rank_exit", map[string]string{"job": "1", "job_domain": "user 1001", "node": "1"}),
		"another pattern": of("crash_loop", map[string]string{"job_domain": "user 1000"}),
		"a machine":       of("gpu_lost", map[string]string{"node": "1"}),
	} {
		require.True(t, tell(other), name)
	}
	now = now.Add(ToldWithin)
	require.True(t, tell(of("rank_exit", map[string]string{"job_domain": "user 1000"})), "its room comes back")
}

func TestOwnersThatAreKnownAreBounded(t *testing.T) {
	var c Crowd
	for i := range 3 * mostOwners {
		f := of("rank_exit", map[string]string{"node": strconv.Itoa(i)})
		require.False(t, c.Full(f, time.Time{}))
		c.Note(f)
		require.LessOrEqual(t, len(c.told), mostOwners)
	}
}
