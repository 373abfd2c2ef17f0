package store

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// told takes the summaries that are due, and says that they left.
func (b *bench) told(t *testing.T) []history.Run {
	t.Helper()
	runs, err := b.Ended(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Told(t.Context(), runs, true))
	return runs
}

// stall is a verdict that says that the ranks of the job stand.
func stall(incident, job string, from, to time.Duration) verdict.Verdict {
	v := lost(incident, "node-1", job, 1)
	v.ID, v.Role, v.Pattern, v.Stands = "stall-"+incident, verdict.Symptom, "nccl_socket_stall", true
	v.Severity, v.Onset, v.Updated = verdict.Error, onset.Add(from), onset.Add(to)
	if to > from {
		end := onset.Add(to)
		v.Status, v.Resolved = verdict.Resolved, &end
	}
	return v
}

func TestARunThatEndedHasOneSummary(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<22)
	note := func(seen ...history.Sighting) { require.NoError(t, b.Ranks(t.Context(), seen)) }
	note(rank("r1", "llm", 0, 0), rank("r1", "llm", 1, time.Second), rank("other", "other", 0, 0))
	b.pass(time.Hour)
	require.Empty(t, b.told(t), "it goes on")
	slow := lost("inc-3", "node-1", "llm", 1)
	slow.Pattern, slow.Severity, slow.Culprit["rank"], slow.ID = "straggler", verdict.Warning, "1", "straggler"
	drill, theirs, foreign := stall("inc-4", "llm", 0, time.Minute), stall("inc-5", "llm", 0, time.Minute), stall("inc-6", "llm", 0, time.Minute)
	drill.Drill, foreign.Trust = true, verdict.Foreign
	theirs.Culprit = map[string]string{"job": "llm", "job_domain": "user 7"}
	info := stall("inc-7", "llm", 0, time.Minute)
	info.Severity = verdict.Info
	b.keep(t, lost("inc-1", "node-1", "llm", 1), stall("inc-1", "llm", time.Minute, 3*time.Minute), // for a cause that is certain
		stall("inc-2", "llm", 2*time.Minute, 4*time.Minute),                                                      // for none that is known
		stall("inc-8", "llm", -time.Hour, -time.Minute), stall("inc-9", "llm", time.Hour, time.Hour+time.Minute), // of other runs
		slow, drill, theirs, foreign, info)
	note(ended(rank("r1", "llm", 0, 0), 10*time.Minute, ""))
	b.pass(time.Hour)
	require.Empty(t, b.told(t), "one of its ranks goes on")
	note(ended(rank("r1", "llm", 1, 0), 10*time.Minute, "SIGKILL"))
	b.pass(settle - time.Second)
	require.Empty(t, b.told(t), "more may come")
	note(ended(rank("r1", "llm", 1, 0), 10*time.Minute, "SIGKILL"))
	b.pass(settle - time.Second)
	require.Empty(t, b.told(t), "it did")
	b.pass(time.Second)

	runs, err := b.Ended(t.Context())
	require.NoError(t, err)
	require.Len(t, runs, 1)
	wall, moving, rank1 := 600.0, 420.0, 1
	require.Equal(t, &history.Summary{
		Wall: &wall, Moving: &moving, Standing: 180, RankHours: 180.0 / 3600 * 2, Incidents: 4, Slowest: &rank1,
		Causes: []history.Cause{{Pattern: "gpu_lost", Seconds: 120}, {Pattern: "nccl_socket_stall", Seconds: 120}},
	}, runs[0].Summary)
	second, err := b.Ended(t.Context())
	require.NoError(t, err)
	require.Empty(t, second, "somebody tells of it")
	require.NoError(t, b.Told(t.Context(), runs, false))
	require.Len(t, b.told(t), 1, "it had not left")
	require.Empty(t, b.told(t))
	require.Equal(t, runs[0].Summary, b.runs(t, history.Filter{Job: "llm"})[0].Summary)

	note(rank("r1", "llm", 2, 0), ended(rank("r1", "llm", 2, 0), 10*time.Minute, "")) // late
	b.pass(time.Hour)
	require.Empty(t, b.told(t))
	require.NotNil(t, b.runs(t, history.Filter{Job: "llm"})[0].Summary)
}

// Whatever is seen in which order, and whenever the process ends and begins again, a run that
// ended is told of once, and one that goes on never.
func TestSummariesComeOnce(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		dir := t.TempDir()
		b := newBench(t, dir, 1<<22)
		const ranks = 4
		var seen []history.Sighting
		want := map[string]int{}
		for n, run := range []string{"r1", "r2", "r3"} {
			at := time.Duration(n) * time.Hour
			for one := range ranks {
				begin := rank(run, "llm", one, at)
				seen = append(seen, begin)
				switch {
				case n == 0 && one == 0: // nobody saw its end
				case n == 2 && seed%2 == 0 && one == 0: // it goes on
				case seed%3 == 0 && one == 1:
					seen = append(seen, ended(begin, time.Minute, "SIGKILL"))
				default:
					seen = append(seen, ended(begin, time.Minute, ""))
				}
			}
			want[run] = 1
		}
		if seed%2 == 0 {
			delete(want, "r3")
		}
		seen = append(seen, seen[random.IntN(len(seen))]) // told twice
		if seed%5 == 0 {
			random.Shuffle(len(seen), func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
		}
		got := map[string]int{}
		tell := func() {
			runs, err := b.Ended(t.Context())
			require.NoError(t, err)
			left := random.IntN(3) > 0
			if left {
				for i := range runs {
					got[runs[i].ID]++
				}
			}
			require.NoError(t, b.Told(t.Context(), runs, left))
		}
		for len(seen) > 0 {
			n := 1 + random.IntN(len(seen))
			require.NoError(t, b.Ranks(t.Context(), seen[:n]))
			seen = seen[n:]
			tell() // nothing is due: all comes within the time that is waited
			if random.IntN(2) == 0 {
				now := b.now
				require.NoError(t, b.Close())
				b = newBench(t, dir, 1<<22)
				b.now = now
			}
		}
		for range 20 {
			b.pass(settle)
			tell()
			if random.IntN(3) == 0 {
				now := b.now
				if random.IntN(2) == 0 {
					_, err := b.Ended(t.Context()) // it dies before it could tell
					require.NoError(t, err)
				}
				require.NoError(t, b.Close())
				b = newBench(t, dir, 1<<22)
				b.now = now
			}
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// A file of the first version is brought up: what had ended then is not told of now.
func TestAFileOfTheFirstVersionIsBroughtUp(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, dir, 1<<22)
	b.keep(t, lost("inc-1", "node-1", "llm", 1))
	require.NoError(t, b.Ranks(t.Context(), []history.Sighting{
		rank("old", "llm", 0, 0), ended(rank("old", "llm", 0, 0), time.Minute, ""), rank("new", "llm", 0, time.Hour),
	}))
	require.NoError(t, b.do(t.Context(), func(ctx context.Context) error {
		return b.tx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `DROP TABLE muted; DROP TABLE evidence; DROP INDEX runs_ended; ALTER TABLE runs DROP COLUMN noted; ALTER TABLE runs DROP COLUMN told; PRAGMA user_version = 1`)
			return err
		})
	}))
	require.NoError(t, b.Close())
	b = newBench(t, dir, 1<<22)
	require.Equal(t, []string{"inc-1"}, b.ids(t, history.Filter{}))
	require.Empty(t, b.aside)
	b.pass(time.Hour)
	require.Empty(t, b.told(t))
	require.NoError(t, b.Ranks(t.Context(), []history.Sighting{ended(rank("new", "llm", 0, time.Hour), time.Minute, "")}))
	b.pass(settle)
	require.Len(t, b.told(t), 1)
}
