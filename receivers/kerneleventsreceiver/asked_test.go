package kerneleventsreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// TestARankThatIsAskedAgainAndAgainIsToldOnce: and once more for another signal, or later.
func TestARankThatIsAskedAgainAndAgainIsToldOnce(t *testing.T) {
	at := time.Unix(1_000, 0)
	by := func(pid uint32, signal int, after time.Duration) identity.Asked {
		return identity.Asked{Process: identity.Process{PID: pid, StartNS: uint64(pid)}, Signal: identity.Signal{Number: signal, Time: at.Add(after)}}
	}
	var s asks
	require.Equal(t, []identity.Asked{by(2, 10, 0), by(1, 10, time.Millisecond)}, s.news([]identity.Asked{by(1, 10, time.Millisecond), by(2, 10, 0)}))
	require.Empty(t, s.news([]identity.Asked{by(1, 10, time.Second), by(2, 10, askedAgain-1)}))
	require.Equal(t, []identity.Asked{by(2, 15, 2*time.Second), by(1, 10, askedAgain+time.Millisecond)}, s.news([]identity.Asked{by(1, 10, askedAgain+time.Millisecond), by(2, 15, 2*time.Second)}))
	require.Empty(t, s.news(nil))
	require.Empty(t, s.told, "who is gone is forgotten")
}

func TestARankThatWasAskedToEndIsARecord(t *testing.T) {
	b := newBench(t)
	sent := time.Now().Add(-2 * time.Second)
	p := identity.Process{PID: 42, RankPID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1", StartNS: 70, StartTime: time.Now()}
	b.Resolver.Ask(identity.Asked{
		Process: p, Others: identity.Others{Lived: 7, Asked: 7},
		Signal: identity.Signal{Number: 15, Time: sent, Sender: identity.Sender{Relation: identity.RelationScheduler, PID: 9, Comm: "slurmstepd"}},
	})
	b.start(t)
	r := b.Next(t)
	require.Equal(t, []any{"process.asked", sent.UnixNano(), "rank 3 (python, pid 42) was sent SIGTERM by slurmstepd (pid 9) of user 0, and lives"}, []any{r.EventName(), int64(r.Timestamp()), r.Body().Str()})
	require.Subset(t, r.Attributes().AsRaw(), map[string]any{
		"tracecore.trust": "proven", "gen_ai.training.rank": int64(3), "signal.number": int64(15), "signal.sender.relation": "scheduler", "process.asked.spared_ranks": int64(0),
	})
}
