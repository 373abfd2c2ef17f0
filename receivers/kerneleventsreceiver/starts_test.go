package kerneleventsreceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// TestARankIsToldOfOnceItRuns: not what is beside it, what is too young, or what was told.
func TestARankIsToldOfOnceItRuns(t *testing.T) {
	at := time.Unix(1_000, 0)
	rank := func(pid uint32, age time.Duration, change func(*identity.Process)) identity.Process {
		p := identity.Process{PID: pid, RankPID: pid, Rank: int(pid), StartNS: uint64(pid), StartTime: at.Add(-age), RankStart: at.Add(-age)}
		if change != nil {
			change(&p)
		}
		return p
	}
	living := []identity.Process{
		rank(3, settled, nil), rank(2, time.Minute, nil), rank(4, settled-1, nil),
		rank(5, time.Minute, func(p *identity.Process) { p.Inherited = true }),
		rank(6, time.Minute, func(p *identity.Process) { p.RankPID = 2 }),
		rank(7, time.Minute, func(p *identity.Process) { p.Rank = identity.Unknown }),
	}
	var s starts
	pids := func(now time.Time, living ...identity.Process) (pids []uint32) {
		for _, p := range s.news(living, now) {
			pids = append(pids, p.PID)
		}
		return pids
	}
	require.Equal(t, []uint32{2, 3}, pids(at, living...))
	require.Equal(t, []uint32{4}, pids(at.Add(1), living...))
	require.Empty(t, pids(at.Add(2), living...))
	wrapped := rank(2, time.Minute, func(p *identity.Process) { p.PID, p.StartNS, p.Wrapped = 9, 9, true })
	require.Empty(t, pids(at.Add(3), wrapped), "its wrapper was told of as the rank")
	require.Equal(t, []identity.Process{wrapped}, s.ranks)
	require.Equal(t, []uint32{9}, func() (pids []uint32) {
		for _, p := range (&starts{}).news([]identity.Process{wrapped}, at) {
			pids = append(pids, p.PID)
		}
		return pids
	}(), "nothing was told of yet")
	again := rank(2, 0, nil)
	again.RankStart = again.RankStart.Add(time.Minute)
	require.Equal(t, []uint32{2}, pids(at.Add(time.Minute), again), "the pid is another process's now")
	require.Len(t, s.told, 1, "who is gone is forgotten")
}

func TestTheStartOfARankIsARecord(t *testing.T) {
	b := newBench(t)
	began := time.Now().Add(-time.Minute)
	b.Resolver.Know(identity.Process{PID: 42, RankPID: 42, Comm: "python", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1", StartNS: 70, StartTime: began, RankStart: began})
	b.start(t)
	r := b.Next(t)
	require.Equal(t, []any{"process.start", began.UnixNano(), "rank 3 (python, pid 42) was started"}, []any{r.EventName(), int64(r.Timestamp()), r.Body().Str()})
	require.Subset(t, r.Attributes().AsRaw(), map[string]any{
		"tracecore.trust": "proven", "process.start_ns": int64(70), "gen_ai.training.rank_pid": int64(42), "gen_ai.training.rank_start_unix_nano": began.UnixNano(),
	})
}
