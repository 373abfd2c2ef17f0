package ncclhang

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

// realDumps are the records of real dumps, as the golden tests of the ncclfr receiver
// hold them.
const realDumps = "../../receivers/ncclfrreceiver/testdata/golden"

func realLogs(t testing.TB, set string) plog.Logs {
	data, err := os.ReadFile(filepath.Join(realDumps, set+".otlp.json"))
	require.NoError(t, err)
	logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(data)
	require.NoError(t, err)
	return logs
}

// without leaves out the records of these ranks.
func without(logs plog.Logs, ranks ...int64) plog.Logs {
	logs.ResourceLogs().RemoveIf(func(r plog.ResourceLogs) bool {
		rank, _ := r.ScopeLogs().At(0).LogRecords().At(0).Attributes().Get("nccl.fr.rank")
		for _, gone := range ranks {
			if rank.Int() == gone {
				return true
			}
		}
		return false
	})
	return logs
}

func joined(t testing.TB, logs plog.Logs) []Finding {
	j := newJoin(DefaultOptions)
	j.Add(logs, written)
	require.Zero(t, j.Stats().Invalid)
	rounds := j.Flush()
	require.Len(t, rounds, 1)
	return rounds[0].Findings
}

// short is a finding as the tables have it.
type short struct {
	says string
	sure Sureness
	line string // where the culprit was last
}

func shorts(findings []Finding) []short {
	all := []short{}
	for i := range findings {
		s := short{says: findings[i].String(), sure: findings[i].Sure}
		if len(findings[i].Last) > 0 {
			s.line = findings[i].Last[0]
		}
		all = append(all, s)
	}
	return all
}

// TestRealDumps says of each set of real dumps what its README demands.
func TestRealDumps(t *testing.T) {
	for name, tc := range map[string]struct {
		logs plog.Logs
		want []short
	}{
		"healthy":                  {realLogs(t, "healthy"), []short{}},
		"operations_of_every_kind": {realLogs(t, "operations_of_every_kind"), []short{}},
		"p2p_only":                 {realLogs(t, "p2p_only"), []short{}},
		"missing": {realLogs(t, "missing"), []short{{
			"rank 2 never entered all_reduce #6 of default_pg; ranks 0-1, 3 wait at ar (/srv/train/train.py:8)", Certain, "ar (/srv/train/train.py:8)",
		}}},
		"missing, and rank 2 sent no dump": {without(realLogs(t, "missing"), 2), []short{{
			"ranks 0-1, 3 wait in all_reduce #6 of default_pg at ar (/srv/train/train.py:8); rank 2 sent no dump", Unsure, "",
		}}},
		"missing, and only rank 0 sent a dump": {without(realLogs(t, "missing"), 1, 2, 3), []short{{
			"rank 0 waits in all_reduce #6 of default_pg at ar (/srv/train/train.py:8); ranks 1-3 sent no dump", Unsure, "",
		}}},
		"missing, and rank 3 sent no dump": {without(realLogs(t, "missing"), 3), []short{{
			"rank 2 never entered all_reduce #6 of default_pg; ranks 0-1 wait at ar (/srv/train/train.py:8)", Likely, "ar (/srv/train/train.py:8)",
		}}},
		"subgroup": {realLogs(t, "subgroup"), []short{{
			"rank 3 never entered all_reduce #4 of group 2; rank 2 waits at <module> (/srv/train/train.py:18)", Likely, "<module> (/srv/train/train.py:16)",
		}}},
		"mismatched_operation": {realLogs(t, "mismatched_operation"), []short{{
			"rank 1 entered something else than its peers under all_reduce #4 of default_pg: " +
				"ranks 0, 2-3: all_reduce [[1024]] -> [[1024]] of Float -> Float; rank 1: all_gather [[1024]] -> [[4, 1024]] of Float -> Float at all_reduce (/srv/train/train.py:26)",
			Certain, "mismatched_operation (/srv/train/train.py:38)",
		}}},
		"mismatched_size": {realLogs(t, "mismatched_size"), []short{{
			"rank 3 entered something else than its peers under all_reduce #4 of default_pg: " +
				"ranks 0-2: all_reduce [[1024]] -> [[1024]] of Float -> Float; rank 3: all_reduce [[512]] -> [[512]] of Float -> Float at all_reduce (/srv/train/train.py:26)",
			Certain, "all_reduce (/srv/train/train.py:26)",
		}}},
		"mismatched_size_one_aborted": {realLogs(t, "mismatched_size_one_aborted"), []short{{
			"rank 1 waits in all_reduce #4 of default_pg at all_reduce (/srv/train/train.py:26); rank 3 sent no dump", Unsure, "",
		}}},
		"two_behind": {realLogs(t, "two_behind"), []short{{
			"rank 2 never entered all_reduce #4 of default_pg; ranks 0-1, 3 wait at all_reduce (/srv/train/train.py:26)", Certain, "all_reduce (/srv/train/train.py:26)",
		}}},
		"hang_inside_a_pipeline": {realLogs(t, "hang_inside_a_pipeline"), []short{
			{"rank 2 never entered all_reduce #3 of group 1; rank 0 waits at hang_inside_a_pipeline (/srv/train/train.py:110)", Likely, "hang_inside_a_pipeline (/srv/train/train.py:105)"},
			{"rank 3 never entered all_reduce #3 of group 2; rank 1 waits at hang_inside_a_pipeline (/srv/train/train.py:110)", Likely, "hang_inside_a_pipeline (/srv/train/train.py:105)"},
		}},
	} {
		t.Run(name, func(t *testing.T) { require.ElementsMatch(t, tc.want, shorts(joined(t, tc.logs))) })
	}
}

const (
	reduce    = "all_reduce [[64]] -> [[64]] of Float -> Float"
	half      = "all_reduce [[32]] -> [[32]] of Float -> Float"
	brain     = "all_reduce [[64]] -> [[64]] of BFloat16 -> BFloat16"
	allGather = "all_gather [[64]] -> [[4, 64]] of Float -> Float"
	barrier   = "barrier"
)

func steps(did ...string) []string { return did }

// TestWhoIsToBlame: who entered, who did not, who did something else, and how
// sure that is, in jobs of four ranks.
func TestWhoIsToBlame(t *testing.T) {
	for name, tc := range map[string]struct {
		job     *job
		want    []short
		because []string
	}{
		"all finished": {newJob(4).does(2, steps(reduce, reduce), 0, 1, 2, 3), []short{}, nil},
		"one not there": {
			newJob(4).does(1, steps(reduce, allGather), 0, 1, 3).does(1, steps(reduce), 2),
			[]short{{"rank 2 never entered all_gather #2 of default_pg; ranks 0-1, 3 wait at step (train.py:2)", Certain, "step (train.py:1)"}}, nil,
		},
		"several not there, one furthest behind": {
			newJob(4).does(2, steps(reduce, reduce, allGather), 0).does(2, steps(reduce, reduce), 1, 2).does(1, steps(reduce), 3),
			[]short{{"rank 3 never entered all_reduce #2 of default_pg; rank 0 waits at step (train.py:3)", Certain, "step (train.py:1)"}}, nil,
		},
		"never entered any": {
			newJob(4).does(0, steps(reduce), 0, 1, 2).does(0, nil, 3),
			[]short{{"rank 3 never entered all_reduce #1 of default_pg; ranks 0-2 wait at step (train.py:1)", Certain, ""}}, nil,
		},
		"ring of one rank no longer has the group": {
			newJob(4).in(said{rank: 0, group: "0", desc: "default_pg", members: "0-3", first: 500, did: steps(reduce), finished: 0}).
				in(said{rank: 1, group: "0", desc: "default_pg", members: "0-3", first: 500, did: steps(reduce), finished: 0}).
				in(said{rank: 2, group: "0", desc: "default_pg", members: "0-3", first: 500, did: steps(reduce), finished: 0}).
				in(said{rank: 3, group: "0", desc: "default_pg", members: "0-3"}),
			[]short{{"rank 3 never entered a collective #1 of default_pg; ranks 0-2 wait at step (train.py:1)", Likely, ""}},
			[]string{"the dump of rank 3 has no entry of this group left"},
		},
		"rings that begin at different places": {
			newJob(4).in(said{rank: 0, group: "0", desc: "default_pg", members: "0-3", first: 10, did: steps(reduce, reduce, allGather), finished: 2}).
				in(said{rank: 1, group: "0", desc: "default_pg", members: "0-3", first: 11, did: steps(reduce, allGather), finished: 1}).
				in(said{rank: 2, group: "0", desc: "default_pg", members: "0-3", first: 12, did: steps(allGather), finished: 0}).
				in(said{rank: 3, group: "0", desc: "default_pg", members: "0-3", first: 9, did: steps(half, reduce, reduce), finished: 3}),
			[]short{{"rank 3 never entered all_gather #12 of default_pg; ranks 0-2 wait at step (train.py:3)", Certain, "step (train.py:3)"}}, nil,
		},
		"one sent no dump and nobody else is missing": {
			newJob(4).does(1, steps(reduce, reduce), 0, 1, 2),
			[]short{{"ranks 0-2 wait in all_reduce #2 of default_pg at step (train.py:2); rank 3 sent no dump", Unsure, ""}},
			[]string{"a rank without a dump may be blocked, dead, or on a node that sends none"},
		},
		"one sent no dump, another did not enter": {
			newJob(4).does(1, steps(reduce, reduce), 0, 1).does(1, steps(reduce), 2),
			[]short{{"rank 2 never entered all_reduce #2 of default_pg; ranks 0-1 wait at step (train.py:2)", Likely, "step (train.py:1)"}},
			[]string{"rank 3 sent no dump and may not have entered it either"},
		},
		"all there and none finishes": {
			newJob(4).does(1, steps(reduce, reduce), 0, 1, 2, 3),
			[]short{{"all ranks entered all_reduce #2 of default_pg and it does not finish; ranks 0-3 wait at step (train.py:2)", Unsure, ""}},
			[]string{"the dumps do not tell a network or GPU that stands still from a collective that takes long"},
		},
		"begun on some GPUs only": {
			newJob(4).in(said{rank: 0, group: "0", desc: "default_pg", members: "0-3", did: steps(reduce), state: "started"}).
				in(said{rank: 1, group: "0", desc: "default_pg", members: "0-3", did: steps(reduce), state: "started"}).
				in(said{rank: 2, group: "0", desc: "default_pg", members: "0-3", did: steps(reduce), state: "scheduled"}).
				in(said{rank: 3, group: "0", desc: "default_pg", members: "0-3", did: steps(reduce), state: "started"}),
			[]short{{"rank 2 entered all_reduce #1 of default_pg, but its GPU has not begun it; ranks 0-1, 3 wait at step (train.py:1)", Likely, "step (train.py:1)"}},
			[]string{"the GPU may be about to begin it"},
		},
		"finished on some ranks only": {
			newJob(4).does(2, steps(reduce, reduce), 0, 1, 2).does(1, steps(reduce, reduce), 3),
			[]short{{"all ranks entered all_reduce #2 of default_pg and it does not finish; rank 3 waits at step (train.py:2)", Unsure, ""}},
			[]string{"the dumps do not tell a network or GPU that stands still from a collective that takes long"},
		},
		"other sizes": {
			newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).does(1, steps(reduce, half), 3),
			[]short{{"rank 3 entered something else than its peers under all_reduce #2 of default_pg: ranks 0-2: " + reduce + "; rank 3: " + half + " at step (train.py:2)", Certain, "step (train.py:2)"}}, nil,
		},
		"other types": {
			newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).does(1, steps(reduce, brain), 3),
			[]short{{"rank 3 entered something else than its peers under all_reduce #2 of default_pg: ranks 0-2: " + reduce + "; rank 3: " + brain + " at step (train.py:2)", Certain, "step (train.py:2)"}}, nil,
		},
		"two against two": {
			newJob(4).does(0, steps(reduce), 0, 1).does(0, steps(allGather), 2, 3),
			[]short{{"the ranks disagree about all_reduce #1 of default_pg: ranks 0-1: " + reduce + "; ranks 2-3: " + allGather + " at step (train.py:1)", Likely, ""}},
			[]string{"no signature has a majority: which side is wrong cannot be told"},
		},
		"another operation that it finished": {
			newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).does(3, steps(reduce, barrier, reduce), 3),
			[]short{{"rank 3 entered something else than its peers under all_reduce #2 of default_pg: ranks 0-2: " + reduce + "; rank 3: " + barrier + " at step (train.py:2)", Certain, "step (train.py:3)"}}, nil,
		},
		"a mismatch that all went past": {
			newJob(4).does(3, steps(half, reduce, reduce), 0).does(3, steps(reduce, reduce, reduce), 1, 2, 3),
			[]short{{"rank 0 entered something else than its peers under all_reduce #1 of default_pg: rank 0: " + half + "; ranks 1-3: " + reduce, Unsure, "step (train.py:3)"}},
			[]string{"all ranks went on after it"},
		},
		"a mismatch that all went past does not hide who is missing": {
			newJob(4).does(2, steps(half, reduce, reduce), 0).does(2, steps(reduce, reduce, reduce), 1, 2).does(2, steps(reduce, reduce), 3),
			[]short{{"rank 3 never entered all_reduce #3 of default_pg; ranks 0-2 wait at step (train.py:3)", Certain, "step (train.py:2)"}}, nil,
		},
		"milliseconds into a collective": {
			func() *job {
				j := newJob(4).does(1, steps(reduce, reduce), 0, 1, 3).does(1, steps(reduce), 2)
				j.waited = 20 * time.Millisecond
				return j
			}(),
			[]short{{"rank 2 never entered all_reduce #2 of default_pg; ranks 0-1, 3 wait at step (train.py:2)", Unsure, "step (train.py:1)"}},
			[]string{"nobody had waited long when the dumps were written"},
		},
		"members not known": {
			newJob(0).in(said{rank: 4, group: "7", did: steps(reduce, reduce), finished: 1}).in(said{rank: 6, group: "7", did: steps(reduce), finished: 1}),
			[]short{{"rank 6 never entered all_reduce #2 of group 7; rank 4 waits at step (train.py:2)", Likely, "step (train.py:1)"}},
			[]string{"the members of the group are known from its entries alone"},
		},
		"pg_config of another group": {
			newJob(0).in(said{rank: 0, group: "0", desc: "default_pg", members: "0,1", did: steps(reduce, reduce), finished: 1}).
				in(said{rank: 1, group: "0", desc: "default_pg", members: "0,1", did: steps(reduce, reduce), finished: 1}).
				in(said{rank: 2, group: "0", desc: "default_pg", members: "2,3", did: steps(reduce, reduce), finished: 1}).
				in(said{rank: 3, group: "0", desc: "default_pg", members: "0,1", did: steps(reduce), finished: 1}),
			[]short{{"rank 3 never entered all_reduce #2 of default_pg; ranks 0-2 wait at step (train.py:2)", Likely, "step (train.py:1)"}},
			[]string{"the number of ranks of the job is not known"},
		},
		"groups of one name": {
			newJob(4).in(said{rank: 0, group: "h", members: "0,1", did: steps(reduce, reduce), finished: 1}).
				in(said{rank: 1, group: "h", members: "0,1", did: steps(reduce), finished: 1}).
				in(said{rank: 2, group: "h", members: "2,3", did: steps(allGather), finished: 1}).
				in(said{rank: 3, group: "h", members: "2,3", did: steps(allGather), finished: 1}),
			[]short{{"rank 1 never entered all_reduce #2 of group h; rank 0 waits at step (train.py:2)", Certain, "step (train.py:1)"}}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := joined(t, tc.job.logs())
			require.Equal(t, tc.want, shorts(found))
			if len(found) > 0 {
				require.Equal(t, tc.because, found[0].Because)
			}
		})
	}
}

// TestKindsOfMismatch names what differs.
func TestKindsOfMismatch(t *testing.T) {
	for name, tc := range map[string]struct {
		mine []string
		what string
	}{
		"operation":      {steps(reduce, allGather, reduce), "operation"},
		"sizes":          {steps(reduce, half, reduce), "sizes"},
		"types":          {steps(reduce, brain, reduce), "types"},
		"order":          {steps(reduce, barrier, reduce, allGather), "order"},
		"left out":       {steps(reduce, barrier), "order"},
		"of other words": {steps(reduce, "nonsense", reduce), "operation"},
	} {
		t.Run(name, func(t *testing.T) {
			found := joined(t, newJob(4).does(1, steps(reduce, reduce, barrier, allGather), 0, 1, 2).does(1, tc.mine, 3).logs())
			require.Len(t, found, 1)
			require.Equal(t, Mismatch, found[0].Kind)
			require.Equal(t, tc.what, found[0].What)
			require.Equal(t, []int{3}, found[0].Culprits)
			require.Equal(t, []int{0, 1, 2}, found[0].Waiting)
		})
	}
}

// TestPointToPoint: the other end of a send or receive is to blame if it is not
// there.
func TestPointToPoint(t *testing.T) {
	pair := func(rank int, p2p ...string) said {
		return said{rank: rank, group: "pp", members: "4-7", p2p: p2p}
	}
	for name, tc := range map[string]struct {
		job  *job
		want []short
	}{
		"receives and nobody sends": {
			newJob(8).in(pair(4, "recv 0<-1 [[8]]")).in(pair(5)),
			[]short{{"rank 5 never entered recv #1 of group pp; rank 4 waits at pipe (train.py:99)", Certain, ""}},
		},
		"two wait for the same": {
			newJob(8).in(pair(4, "recv 0<-1 [[8]]")).in(pair(5)).in(pair(6, "send 2->1 [[8]]")),
			[]short{{"rank 5 never entered recv #1 of group pp; ranks 4, 6 wait at pipe (train.py:99)", Certain, ""}},
		},
		"both are there": {
			newJob(8).in(pair(4, "recv 0<-1 [[8]]")).in(pair(5, "send 1->0 [[8]]")),
			[]short{{"all ranks entered recv #1 of group pp and it does not finish; ranks 4-5 wait at pipe (train.py:99)", Unsure, ""}},
		},
		"sizes differ": {
			newJob(8).in(pair(4, "recv 0<-1 [[8]]")).in(pair(5, "send 1->0 [[9]]")),
			[]short{{"the ranks disagree about recv #1 of group pp: rank 4: recv [[8]]; rank 5: send [[9]] at pipe (train.py:99)", Likely, ""}},
		},
		"the other end sent no dump": {
			newJob(8).in(pair(4, "recv 0<-1 [[8]]")),
			[]short{{"rank 4 waits in recv #1 of group pp at pipe (train.py:99); rank 5 sent no dump", Unsure, ""}},
		},
		"both send first": {
			newJob(8).in(pair(4, "send 0->1 [[8]]")).in(pair(5, "send 1->0 [[8]]")),
			[]short{{"rank 5 never entered send #1 of group pp; rank 4 waits at pipe (train.py:99)", Certain, "pipe (train.py:99)"}},
		},
		"a chain leads to the rank that does nothing": {
			newJob(8).in(pair(4, "recv 0<-1 [[8]]")).in(pair(5, "recv 1<-2 [[8]]")).in(pair(6, "recv 2<-3 [[8]]")).in(pair(7)),
			[]short{{"rank 7 never entered recv #1 of group pp; rank 6 waits at pipe (train.py:99)", Certain, ""}},
		},
		"members not known": {
			newJob(8).in(said{rank: 4, group: "pp", p2p: []string{"recv 0<-1 [[8]]"}}).in(said{rank: 5, group: "pp"}),
			[]short{},
		},
		"with itself, and beyond the group": {
			newJob(8).in(pair(4, "recv 0<-0 [[8]]")).in(pair(5, "send 1->9 [[8]]")),
			[]short{},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, shorts(joined(t, tc.job.logs()))) })
	}
}

// TestTheCauseIsInAnotherGroup: data parallel groups [0,2] and [1,3], pipelines
// [0,1] and [2,3]. Rank 3 is stuck in its own code; rank 2 waits to receive from
// it, so rank 0 waits for rank 2, and rank 1 for rank 3.
func TestTheCauseIsInAnotherGroup(t *testing.T) {
	j := newJob(4).
		in(said{rank: 0, group: "dp0", members: "0,2", did: steps(reduce, reduce), finished: 1}).
		in(said{rank: 2, group: "dp0", members: "0,2", did: steps(reduce), finished: 1}).
		in(said{rank: 1, group: "dp1", members: "1,3", did: steps(reduce, reduce), finished: 1}).
		in(said{rank: 3, group: "dp1", members: "1,3", did: steps(reduce), finished: 1}).
		in(said{rank: 2, group: "pp1", members: "2-3", p2p: []string{"recv 0<-1 [[8]]"}}).
		in(said{rank: 3, group: "pp1", members: "2-3"})
	found := joined(t, j.logs())
	require.Len(t, found, 1, "rank 3 stopped once, and rank 2 only waits for it")
	require.Equal(t, []int{3}, found[0].Culprits)
	require.Equal(t, 3, found[0].Rank())
	require.Equal(t, "node-3", found[0].Host.Host)
	require.Equal(t, []int{0, 1, 2, 3}, found[0].Affected)
	require.Equal(t, 2, found[0].Downstream)
}

// TestRanksThatWaitInACircle are one finding, and none of them is to blame alone.
func TestRanksThatWaitInACircle(t *testing.T) {
	j := newJob(4).
		in(said{rank: 0, group: "a", members: "0-1", did: steps(reduce), finished: 0}).
		in(said{rank: 1, group: "a", members: "0-1"}).
		in(said{rank: 1, group: "b", members: "0-1", did: steps(allGather), finished: 0}).
		in(said{rank: 0, group: "b", members: "0-1"})
	found := joined(t, j.logs())
	require.Len(t, found, 1)
	require.Equal(t, Circle, found[0].Kind)
	require.Equal(t, "rank 0 waits in all_reduce #1 of group a for rank 1, which waits in all_gather #1 of group b for rank 0: the ranks do not call these in one order", found[0].String())
	require.Equal(t, 1, found[0].Downstream)
	require.Equal(t, []int{0, 1}, found[0].Affected)
	require.Empty(t, found[0].Culprits)
}

func TestALateDumpCompletesTheFindingAndKeepsItsID(t *testing.T) {
	j := newJoin(DefaultOptions)
	j.Add(newJob(4).does(1, steps(reduce, reduce), 0, 1, 3).logs(), written)
	require.Empty(t, j.Advance(written.Add(4*time.Second)), "the window is open")
	first := j.Advance(written.Add(5 * time.Second))
	require.Len(t, first, 1)
	require.Equal(t, NoDump, first[0].Findings[0].Kind)
	require.Empty(t, j.Advance(written.Add(6*time.Second)), "once")

	later := written.Add(time.Minute)
	j.Add(newJob(4).does(1, steps(reduce), 2).logs(), later)
	second := j.Advance(later.Add(5 * time.Second))
	require.Equal(t, NotEntered, second[0].Findings[0].Kind)
	require.Equal(t, []int{2}, second[0].Findings[0].Culprits)
	require.Equal(t, first[0].Findings[0].ID, second[0].Findings[0].ID)

	done := newJob(4).does(2, steps(reduce, reduce), 0, 1, 2, 3)
	done.at = later.Add(time.Minute)
	j.Add(done.logs(), done.at)
	third := j.Advance(done.at.Add(5 * time.Second))
	require.Empty(t, third[0].Findings)
	require.Equal(t, []Cleared{{Run: "llm", Job: "llm", Group: "0", Desc: "default_pg"}}, third[0].Cleared)
}

func TestARecordThatComesTwiceSaysNothingMore(t *testing.T) {
	j := newJoin(DefaultOptions)
	logs := newJob(4).does(1, steps(reduce, reduce), 0, 1, 3).does(1, steps(reduce), 2).logs()
	j.Add(logs, written)
	require.Len(t, j.Advance(written.Add(5*time.Second)), 1)
	j.Add(logs, written.Add(6*time.Second))
	require.Empty(t, j.Advance(written.Add(time.Minute)))
	require.Zero(t, j.Due())
}

func TestARoundEndsEvenWhenDumpsKeepComing(t *testing.T) {
	j := newJoin(DefaultOptions)
	for s := range 60 {
		now := written.Add(time.Duration(s) * time.Second)
		dump := newJob(4).does(1, steps(reduce, reduce), s%3)
		dump.at = now
		j.Add(dump.logs(), now)
		require.Empty(t, j.Advance(now))
	}
	require.Len(t, j.Advance(written.Add(time.Minute)), 1)
}

func TestJobsAreNotMixed(t *testing.T) {
	one, two := newJob(2).does(1, steps(reduce, reduce), 0).does(1, steps(reduce), 1), newJob(2).does(1, steps(reduce, allGather), 1).does(1, steps(reduce), 0)
	two.name = "other"
	j := newJoin(DefaultOptions)
	j.Add(one.logs(), written)
	j.Add(two.logs(), written)
	rounds := j.Flush()
	require.Len(t, rounds, 2)
	require.Equal(t, []int{1}, rounds[0].Findings[0].Culprits)
	require.Equal(t, []int{0}, rounds[1].Findings[0].Culprits)
}

// TestTheFormWithStacksStays: the same dump as pickle and as JSON.
func TestTheFormWithStacksStays(t *testing.T) {
	plain := newJob(2).does(1, steps(reduce, reduce), 0).does(1, steps(reduce), 1)
	for i := range plain.said {
		plain.said[i].noCode = true
	}
	for name, order := range map[string][]*job{
		"pickle first": {newJob(2).does(1, steps(reduce, reduce), 0).does(1, steps(reduce), 1), plain},
		"JSON first":   {plain, newJob(2).does(1, steps(reduce, reduce), 0).does(1, steps(reduce), 1)},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			for _, form := range order {
				j.Add(form.logs(), written)
			}
			require.Equal(t, []string{"step (train.py:2)"}, j.Flush()[0].Findings[0].Code)
			require.EqualValues(t, 2, j.Stats().Held)
		})
	}
}

func TestCaps(t *testing.T) {
	options := DefaultOptions
	options.Runs, options.Dumps, options.Findings = 2, 4, 1
	j := newJoin(options)
	for _, name := range []string{"a", "b", "c"} {
		one := newJob(2).does(1, steps(reduce, reduce), 0).does(1, steps(reduce), 1)
		one.name = name
		j.Add(one.logs(), written)
	}
	require.EqualValues(t, 4, j.Stats().Held)
	require.EqualValues(t, 2, j.Stats().EvictedDumps)
	require.Len(t, j.Flush(), 2, "b and c")

	large := newJob(8).does(1, steps(reduce), 0, 1, 2, 3, 4, 5, 6, 7)
	j.Add(large.logs(), written)
	require.LessOrEqual(t, j.Stats().Held, int64(4))
	require.EqualValues(t, 2+4+4, j.Stats().EvictedDumps)

	two := newJoin(options)
	two.Add(newJob(2).in(said{rank: 0, group: "x", members: "0-1", did: steps(reduce)}).in(said{rank: 1, group: "x", members: "0-1"}).
		in(said{rank: 2, group: "y", members: "2-3", did: steps(reduce)}).in(said{rank: 3, group: "y", members: "2-3"}).logs(), written)
	require.Len(t, two.Flush()[0].Findings, 1)
	require.EqualValues(t, 1, two.Stats().DroppedFindings)

	require.Len(t, j.Advance(written.Add(time.Hour)), 1)
	require.Zero(t, j.Stats().Held, "forgotten when quiet for long")
}

// A rank whose dump found no room is none that sent no dump, and none that did not enter.
func TestDumpsBeyondTheRoomNameNobody(t *testing.T) {
	for _, room := range []int{8, 5} {
		options := DefaultOptions
		options.Dumps = room
		j := newJoin(options)
		j.Add(newJob(8).does(1, steps(reduce, reduce), but(8)...).logs(), written)
		found := findings(j.Flush())
		if room == 8 {
			require.Len(t, found, 1)
			require.Equal(t, Stuck, found[0].Kind)
			continue
		}
		require.Empty(t, found)
		require.EqualValues(t, 3, j.Stats().EvictedDumps)
		j = requireSameState(t, j)
		j.Add(newJob(8).does(1, steps(reduce, reduce), 0).logs(), written.Add(time.Second))
		require.Empty(t, findings(j.Flush()), "it stays so")
	}
}

// Ranks that did the same share one history, and one that shares it takes the least room.
func TestHistoriesAreShared(t *testing.T) {
	j := newJoin(DefaultOptions)
	long := make([]string, 2000)
	for i := range long {
		long[i] = reduce
	}
	other := slices.Clone(long)
	other[7] = half
	j.Add(newJob(8).does(2000, long, but(8, 3)...).does(2000, other, 3).logs(), written)
	r := j.runs["llm"]
	require.Len(t, r.histories, 2)
	require.Equal(t, 8+2*2, j.places, "two of them take 8,000 bytes each")
	for _, group := range r.groups {
		for rank, d := range group {
			require.Equal(t, rank != 3, &d.history[0] == &group[0].history[0])
		}
	}
	restored := requireSameState(t, j)
	require.Equal(t, j.places, restored.places)
	j.Advance(written.Add(time.Hour))
	require.Zero(t, j.places)
}

// Each history is another: what is shared stays bounded.
func TestHistoriesThatDifferAreNotKept(t *testing.T) {
	r := newRun("x")
	for i := range 3 * maxHistories {
		d := &dump{history: []uint32{uint32(i), 1}} //nolint:gosec // small
		r.share(d)
		require.LessOrEqual(t, len(r.histories), maxHistories)
	}
}
