package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func rank(run, job string, n int, at time.Duration) history.Sighting {
	return history.Sighting{Run: run, Job: job, Trust: verdict.Proven, Rank: n, World: 4, Host: fmt.Sprint("node-", n/2), Began: onset.Add(at), At: onset.Add(at)}
}

func ended(s history.Sighting, after time.Duration, how string) history.Sighting {
	s.At, s.Ended, s.Failed = s.At.Add(after), true, how
	return s
}

func (b *bench) runs(t *testing.T, f history.Filter) []history.Run {
	t.Helper()
	found, _, err := b.Runs(t.Context(), f)
	require.NoError(t, err)
	return found
}

func TestRunsBeginAndEnd(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	note := func(seen ...history.Sighting) { require.NoError(t, b.Ranks(t.Context(), seen)) }
	for n := range 4 {
		note(rank("r1", "llm", n, time.Duration(n)*time.Second))
	}
	run := b.runs(t, history.Filter{Job: "llm"})[0]
	require.Equal(t, history.Run{
		ID: "r1", Job: "llm", Trust: verdict.Proven, Began: onset, Updated: onset.Add(3 * time.Second), Outcome: history.RunGoesOn,
		WorldSize: 4, Ranks: "0-3", RanksCount: 4, Hosts: []string{"node-0", "node-1"},
	}, run)
	note(ended(rank("r1", "llm", 2, 0), time.Minute, "SIGKILL"))
	require.Equal(t, history.RunGoesOn, b.runs(t, history.Filter{})[0].Outcome)
	note(ended(rank("r1", "llm", 0, 0), 2*time.Minute, "exit code 1"), ended(rank("r1", "llm", 1, 0), 2*time.Minute, ""), ended(rank("r1", "llm", 3, 0), 3*time.Minute, ""))
	run = b.runs(t, history.Filter{})[0]
	require.Equal(t, history.RunFailed, run.Outcome)
	require.Equal(t, &history.Death{Rank: 2, Host: "node-1", At: onset.Add(time.Minute), How: "SIGKILL"}, run.First)
	require.Equal(t, onset.Add(3*time.Minute), *run.Ended)

	note(rank("r2", "llm", 0, time.Hour), rank("r2", "llm", 1, time.Hour), ended(rank("r2", "llm", 0, time.Hour), time.Minute, ""))
	note(rank("r3", "llm", 0, 2*time.Hour), ended(rank("r3", "llm", 0, 2*time.Hour), time.Minute, ""))
	note(rank("r3", "other", 0, 2*time.Hour))
	note(ended(rank("r2", "llm", 0, time.Hour), time.Minute, "")) // late
	outcomes := map[string]string{}
	for _, run := range b.runs(t, history.Filter{}) {
		outcomes[run.Job+" "+run.ID] = run.Outcome
	}
	require.Equal(t, map[string]string{"llm r1": history.RunFailed, "llm r2": history.RunFollowed, "llm r3": history.RunSucceeded, "other r3": history.RunGoesOn}, outcomes)
	require.Len(t, b.runs(t, history.Filter{Open: true}), 1)
	require.Len(t, b.runs(t, history.Filter{Node: "node-1"}), 1)
	require.Len(t, b.runs(t, history.Filter{Since: onset.Add(90 * time.Minute)}), 2)
	require.Empty(t, b.runs(t, history.Filter{Job: "' OR 1"}))
}

// Of a rank that ended while no agent ran nobody knows how: its run did not succeed, nor did it fail by that.
func TestARunWhoseEndNobodySaw(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	gone := func(s history.Sighting) history.Sighting {
		s.At, s.Ended, s.Unseen = s.At.Add(time.Minute), true, true
		return s
	}
	note := func(seen ...history.Sighting) history.Run {
		require.NoError(t, b.Ranks(t.Context(), seen))
		return b.runs(t, history.Filter{Job: seen[0].Job})[0]
	}
	note(rank("r1", "llm", 0, 0), rank("r1", "llm", 1, 0))
	require.Equal(t, history.RunGoesOn, note(gone(rank("r1", "llm", 0, 0))).Outcome)
	run := note(gone(rank("r1", "llm", 0, 0)), ended(rank("r1", "llm", 1, 0), time.Minute, ""))
	require.Equal(t, history.RunEnded, run.Outcome)
	require.Equal(t, 1, run.Unseen, "told twice")
	require.Nil(t, run.First)

	note(rank("r1", "other", 0, 0), rank("r1", "other", 1, 0), gone(rank("r1", "other", 0, 0)))
	run = note(ended(rank("r1", "other", 1, 0), 2*time.Minute, "SIGABRT"))
	require.Equal(t, history.RunFailed, run.Outcome, "another failed")
}

// A run begins earlier than was known when the verdict about the run before it was ended by that
// begin. What a verdict says of its run goes before the time.
func TestAVerdictIsOfTheRunThatItNames(t *testing.T) {
	crash := func(run string, end time.Duration) verdict.Verdict {
		v := lost("inc-1", "node-1", "llm", 1)
		v.ID, v.Pattern, v.Run = "rank_exit-1", "rank_exit", run
		v.Onset, v.Updated = onset.Add(time.Minute), onset.Add(time.Minute)
		at := onset.Add(end)
		v.Status, v.Resolved = verdict.Resolved, &at
		return v
	}
	const second = 2 * time.Minute // when the second run begins, as is known at last
	for name, tc := range map[string]struct {
		crash verdict.Verdict
		of    map[string]int
	}{
		"ended by the begin of a rank that was heard of first": {crash("r1", second+time.Second), map[string]int{"r1": 1, "r2": 0}},
		"ended before":                           {crash("r1", second-time.Second), map[string]int{"r1": 1, "r2": 0}},
		"of a rank that outlives the next begin": {crash("r1", second+time.Hour), map[string]int{"r1": 1, "r2": 0}},
		"names none: it overlaps both":           {crash("", second+time.Second), map[string]int{"r1": 1, "r2": 1}},
		"names one of another tracecore":         {crash("theirs", second+time.Second), map[string]int{"r1": 1, "r2": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, t.TempDir(), 1<<22)
			require.NoError(t, b.Ranks(t.Context(), []history.Sighting{
				rank("r1", "llm", 0, 0), ended(rank("r1", "llm", 0, 0), time.Minute, "SIGSEGV"),
				rank("r2", "llm", 1, second+2*time.Second), rank("r2", "llm", 0, second),
			}))
			b.keep(t, tc.crash)
			for run, want := range tc.of {
				one, err := b.Run(t.Context(), run)
				require.NoError(t, err)
				require.Len(t, one.Incidents, want, run)
			}
		})
	}
}

// A tenant that makes up jobs takes room from itself, and none from incidents.
func TestRunsAreBounded(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<20)
	b.keep(t, lost("inc-1", "node-1", "llm", 1))
	require.NoError(t, b.Ranks(t.Context(), []history.Sighting{rank("r", "theirs", 0, 0)}))
	var flood []history.Sighting
	for n := range 2000 {
		one := rank("r", fmt.Sprint("job-", n), n, time.Duration(n)*time.Second)
		one.Domain, one.Trust = "user 7", verdict.Claimed
		flood = append(flood, one)
	}
	for n := range 8000 { // ranks that fold into no range
		one := rank("wide", "wide", 2*n, time.Hour)
		one.Domain, one.Trust = "user 7", verdict.Claimed
		flood = append(flood, one)
	}
	for n := range 200 {
		flood = append(flood, rank(fmt.Sprint("r", n), "restarts", 0, time.Duration(n)*time.Hour))
	}
	require.NoError(t, b.Ranks(t.Context(), flood))
	require.Len(t, b.runs(t, history.Filter{Job: "restarts"}), mostOfAJob)
	runs := b.runs(t, history.Filter{Limit: history.MaxLimit})
	require.Less(t, len(runs), 1000)
	require.Equal(t, 8000, b.runs(t, history.Filter{Job: "wide"})[0].RanksCount)
	require.Len(t, b.runs(t, history.Filter{Job: "theirs"}), 1)
	require.Equal(t, []string{"inc-1"}, b.ids(t, history.Filter{}))
}
