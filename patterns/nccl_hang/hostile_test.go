package ncclhang

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// change alters the attributes of each record of a job that hangs.
func change(key string, v any) plog.Logs {
	logs := newJob(4).does(1, steps(reduce, reduce), 0, 1, 3).does(1, steps(reduce), 2).logs()
	for _, resource := range logs.ResourceLogs().All() {
		value := resource.ScopeLogs().At(0).LogRecords().At(0).Attributes().PutEmpty(key)
		_ = value.FromRaw(v) // only types it knows
	}
	return logs
}

// refusedDumps are the hostile records that are refused and counted; of the others
// what cannot be read counts as not there.
var refusedDumps = []string{"no rank", "rank below zero", "rank beyond all jobs"}

// TestHostileRecords: whatever a sender puts there, no panic, and bounded work.
func TestHostileRecords(t *testing.T) {
	huge := base64.StdEncoding.EncodeToString(make([]byte, 4*maxHistory))
	for name, logs := range map[string]plog.Logs{
		"no rank":                     change("nccl.fr.rank", "two"),
		"rank below zero":             change("nccl.fr.rank", -1),
		"rank beyond all jobs":        change("nccl.fr.rank", socketstall.MaxRank+1),
		"history that is no base64":   change("nccl.fr.history", "§§§"),
		"history of a byte":           change("nccl.fr.history", "AA=="),
		"history beyond the limit":    change("nccl.fr.history", huge+huge),
		"history of zeros":            change("nccl.fr.history", huge),
		"first number below zero":     change("nccl.fr.history_first_seq_id", -5),
		"first number near the end":   change("nccl.fr.history_first_seq_id", int64(1)<<62),
		"first number beyond":         change("nccl.fr.history_first_seq_id", int64(1)<<62+1),
		"operations that are a text":  change("nccl.fr.operations", "x"),
		"operations that are numbers": change("nccl.fr.operations", []any{1, 2}),
		"signatures that are a text":  change("nccl.fr.signatures", "x"),
		"code that is a text":         change("nccl.fr.operations", []any{map[string]any{"name": "a", "code": "x"}}),
		"operations without anything": change("nccl.fr.operations", []any{map[string]any{}}),
		"an operation from -3 to 9":   change("nccl.fr.operations", []any{map[string]any{"p2p": true, "name": "nccl:send -3->9", "source": -3, "destination": 1 << 40}}),
		"number of an operation":      change("nccl.fr.operations", []any{map[string]any{"name": "a", "seq_id": int64(math.MaxInt64), "created_unix_nano": int64(math.MaxInt64)}}),
		"code that is deep":           change("nccl.fr.operations", []any{map[string]any{"name": "a", "code": []any{[]any{[]any{1}}, strings.Repeat("x", 1<<16)}}}),
		"members without end":         change("nccl.fr.pg_ranks", "0-99999999999"),
		"members backwards":           change("nccl.fr.pg_ranks", "9-3"),
		"members step by nothing":     change("nccl.fr.pg_ranks", "0-9/0"),
		"members step beyond numbers": change("nccl.fr.pg_ranks", "1-1048575/9223372036854775807"),
		"members that are words":      change("nccl.fr.pg_ranks", "all of them"),
		"members a million times":     change("nccl.fr.pg_ranks", strings.Repeat("0-1048575,", 1000)),
		"members of a megabyte":       change("nccl.fr.pg_ranks", strings.Repeat("1,", 1<<19)),
		"names of a megabyte":         change("nccl.fr.pg_desc", strings.Repeat("x", 1<<20)),
		"world of minus one":          change("gen_ai.training.world_size", -1),
		"world of all ranks":          change("gen_ai.training.world_size", socketstall.MaxRank+1),
		"no group":                    change("nccl.fr.pg_id", ""),
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			j.Add(logs, written)
			require.Equal(t, slices.Contains(refusedDumps, name), j.Stats().Invalid > 0)
			for _, round := range j.Advance(written.Add(time.Hour)) {
				for i := range round.Findings {
					require.Less(t, len(round.Findings[i].String()), 8192)
				}
			}
		})
	}
}

// TestARecordBringsNoMoreThanItsBounds: more operations, lines and signatures than a
// dump of the receiver has, and texts as long as a record can carry.
func TestARecordBringsNoMoreThanItsBounds(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	many := func(n int, one any) []any { return slices.Repeat([]any{one}, n) }
	operation := map[string]any{"name": long, "signature": long, "state": long, "code": many(1000, long)}
	logs := change("nccl.fr.operations", many(1000, operation))
	a := logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes()
	require.NoError(t, a.PutEmpty("nccl.fr.signatures").FromRaw(many(1000, long)))
	a.PutStr("nccl.fr.pg_desc", long)
	p, ok := parse(written.UnixNano(), logs.ResourceLogs().At(0).Resource().Attributes(), a)
	require.True(t, ok)
	require.Len(t, p.dump.operations, maxOperations)
	require.Len(t, p.words, maxSignatures)
	require.LessOrEqual(t, len(p.key.Desc), socketstall.MaxText)
	op := p.dump.operations[0]
	require.Len(t, op.code, maxLines)
	for _, text := range append(op.code, op.name, op.signature, op.state) {
		require.LessOrEqual(t, len(text), socketstall.MaxText)
	}
}

// TestDumpsFromTheNextCenturyAreTheirOwnMoment: what sockets say now is not held
// against them.
func TestDumpsFromTheNextCenturyAreTheirOwnMoment(t *testing.T) {
	far := newJob(4).does(1, steps(reduce, reduce), 0, 1, 2)
	far.at = written.AddDate(100, 0, 0)
	found := joined(t, merged(far.logs(), socketLogs(deaf(3, 2))))
	require.Len(t, found, 1)
	require.Empty(t, found[0].Sockets)
	require.Equal(t, Unsure, found[0].Sure)
}

// TestAnAddressThatSeveralHaveNamesNobody: rank 2 says that its peer does not read.
func TestAnAddressThatSeveralHaveNamesNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		third, second string // addresses of ranks 3 and 1
		want          Agreement
	}{
		"each its own":              {"10.0.0.3", "10.0.0.1", Agree},
		"rank 1 claims that of 3":   {"10.0.0.3", "10.0.0.3", Idle},
		"all have the loopback":     {"127.0.0.1", "127.0.0.1", Idle},
		"an address that is a word": {"over there", "10.0.0.1", Idle},
	} {
		t.Run(name, func(t *testing.T) {
			stalls := socketLogs(
				socket{rank: 3, peer: 2, cause: "waiting", at: -5 * time.Second},
				socket{rank: 1, peer: 0, cause: "waiting", at: -5 * time.Second},
				socket{rank: 2, peer: 3, cause: "peer_not_reading", direction: "send", at: -5 * time.Second},
			)
			attributes := func(i int) pcommon.Map {
				return stalls.ResourceLogs().At(i).ScopeLogs().At(0).LogRecords().At(0).Attributes()
			}
			attributes(0).PutStr("network.local.address", tc.third)
			attributes(1).PutStr("network.local.address", tc.second)
			attributes(2).PutStr("network.peer.address", tc.third)
			found := joined(t, merged(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), stalls))
			require.Len(t, found, 1)
			require.Equal(t, tc.want, found[0].Sockets, "%+v", found[0])
		})
	}
}

// changeStall alters an attribute of the stall of a rank that does not read.
func changeStall(key string, v any) plog.Logs {
	logs := socketLogs(deaf(3, 2))
	_ = logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().PutEmpty(key).FromRaw(v) // only types it knows
	return logs
}

// TestHostileStalls: what each gets. The dumps lack rank 3, of which an honest
// stall would say that it does not read.
func TestHostileStalls(t *testing.T) {
	const refused, ignored, taken = "refused", "ignored", "taken"
	at := func(ns uint64) plog.Logs {
		logs := socketLogs(deaf(3, 2))
		logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).SetTimestamp(pcommon.Timestamp(ns))
		return logs
	}
	for name, tc := range map[string]struct {
		logs plog.Logs
		gets string
	}{
		"an honest one":              {socketLogs(deaf(3, 2)), taken},
		"no rank":                    {changeStall("gen_ai.training.rank", "three"), refused},
		"rank below zero":            {changeStall("gen_ai.training.rank", -1), refused},
		"rank beyond all jobs":       {changeStall("gen_ai.training.rank", socketstall.MaxRank+1), refused},
		"no process":                 {changeStall("process.pid", "1"), refused},
		"process 0":                  {changeStall("process.pid", 0), refused},
		"no time":                    {at(0), refused},
		"time beyond the calendar":   {at(math.MaxUint64), refused},
		"time of the next century":   {at(math.MaxInt64), ignored},
		"age below zero":             {changeStall("nccl.socket.stall.age_ns", -5), taken},
		"age beyond the epoch":       {changeStall("nccl.socket.stall.age_ns", int64(math.MaxInt64)), taken},
		"a cause of a later version": {changeStall("nccl.socket.cause", "quantum"), ignored},
		"cause that is a number":     {changeStall("nccl.socket.cause", 7), ignored},
		"addresses that are words":   {changeStall("network.local.address", "over there"), taken},
		"port of a million":          {changeStall("network.local.port", 1_000_000), taken},
		"peer beyond all jobs":       {changeStall("nccl.peer.rank", int64(1)<<40), taken},
		"peer that is itself":        {changeStall("nccl.peer.rank", 3), taken},
		"an id of a megabyte":        {changeStall("nccl.socket.stall.id", strings.Repeat("x", 1<<20)), taken},
		"world of minus one":         {changeStall("gen_ai.training.world_size", -1), taken},
		"world of all ranks":         {changeStall("gen_ai.training.world_size", socketstall.MaxRank+1), taken},
		"another job":                {changeStall("gen_ai.training.job_id", "x"), ignored},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			j.Add(newJob(4).does(1, steps(reduce, reduce), 0, 1, 2).logs(), written)
			j.Add(tc.logs, written)
			require.Equal(t, tc.gets == refused, j.Stats().InvalidStalls == 1)
			f := j.Flush()[0].Findings[0]
			require.Equal(t, tc.gets == taken, f.Sockets == Agree, "%+v", f)
			require.Less(t, len(f.String())+len(f.Stalls), 8192)
			for s := range j.book.Jobs() {
				for _, proc := range s.Processes {
					for id := range proc.Stalls {
						require.LessOrEqual(t, len(id), socketstall.MaxText)
					}
				}
			}
		})
	}
}

// TestClaimsOfMembersAreBounded: a few kilobytes claim groups of a million ranks.
func TestClaimsOfMembersAreBounded(t *testing.T) {
	t.Run("lists of members", func(t *testing.T) {
		j := newJob(0)
		for i := range 100 {
			j.in(said{rank: i, group: fmt.Sprint(i), members: fmt.Sprintf("%d-%d", i, socketstall.MaxRank), did: steps(reduce)})
		}
		joined := newJoin(DefaultOptions)
		joined.Add(j.logs(), written)
		joined.Flush()
		require.LessOrEqual(t, joined.runs["llm"].setMembers, maxSetMembers)
	})
	t.Run("more lists than are kept", func(t *testing.T) {
		r := &run{sets: map[string][]int{}}
		for i := range maxSets + 10 {
			r.membersOf(fmt.Sprint(i))
		}
		require.Len(t, r.sets, maxSets)
		require.Empty(t, r.membersOf("0-3"), "not known")
		require.Equal(t, []int{7}, r.membersOf("7"))
	})
	t.Run("groups of all ranks", func(t *testing.T) {
		j := newJob(0)
		for i := range 20 {
			j.in(said{rank: 0, group: fmt.Sprint(i), desc: "default_pg", did: steps(reduce)})
		}
		logs := j.logs()
		logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().PutInt("gen_ai.training.world_size", socketstall.MaxRank+1)
		joined := newJoin(DefaultOptions)
		joined.Add(logs, written)
		require.NotEmpty(t, joined.Flush()[0].Findings)
		require.EqualValues(t, 20-maxRoundMembers/(socketstall.MaxRank+1), joined.Stats().SkippedGroups)
	})
}

func FuzzRecords(f *testing.F) {
	f.Add(int64(1), "AAAA", "0-3", "all_reduce", int64(6), int64(0), true, "not_reading", "10.0.0.1", int64(9e9), uint64(written.UnixNano()))
	f.Add(int64(1)<<62, "AQAAAAIAAAA=", "0-120/8", "nccl:send 0->1", int64(-1), int64(7), false, "network", "::1", int64(-1), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, first int64, history, members, name string, seq, source int64, p2p bool, cause, address string, age int64, at uint64) {
		j := newJoin(DefaultOptions)
		for rank := range 3 {
			logs := newJob(4).does(1, steps(reduce, reduce), rank).logs()
			a := logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes()
			if rank > 0 {
				a.PutInt("nccl.fr.history_first_seq_id", first)
				a.PutStr("nccl.fr.history", history)
				a.PutStr("nccl.fr.pg_ranks", members)
				op := a.PutEmptySlice("nccl.fr.operations").AppendEmpty().SetEmptyMap()
				op.PutStr("name", name)
				op.PutInt("seq_id", seq)
				op.PutInt("source", source)
				op.PutInt("destination", int64(rank))
				op.PutBool("p2p", p2p)
			}
			j.Add(logs, written)
		}
		j.Add(fuzzedStalls(cause, address, age, source, at), written)
		for _, round := range j.Flush() {
			for i := range round.Findings {
				require.LessOrEqual(t, len(round.Findings[i].Stalls), socketstall.MaxText)
				_ = round.Findings[i].String()
			}
		}
		stats := j.Stats()
		require.Equal(t, stats.Stalls, stats.HeldStalls, "each another")
		require.EqualValues(t, 4, stats.Stalls+stats.InvalidStalls)
	})
}

// fuzzedStalls are honest ones of ranks 0 to 2 and one of rank 3 that is not.
func fuzzedStalls(cause, address string, age, peer int64, at uint64) plog.Logs {
	logs := socketLogs(ring(4)...)
	r := logs.ResourceLogs().At(3).ScopeLogs().At(0).LogRecords().At(0)
	r.SetTimestamp(pcommon.Timestamp(at))
	r.Attributes().PutStr("nccl.socket.cause", cause)
	r.Attributes().PutStr("network.local.address", address)
	r.Attributes().PutStr("network.peer.address", address)
	r.Attributes().PutInt("nccl.socket.stall.age_ns", age)
	r.Attributes().PutInt("nccl.peer.rank", peer)
	return logs
}

func TestRanksInShort(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "3": {3}, "0-3": {0, 1, 2, 3}, "0-16/8,5": {0, 5, 8, 16}, "1,1,0-1": {0, 1}, "x": nil, "0-": nil, "-1": nil, "3-1": {}, "1-9/9223372036854775807": nil,
	} {
		require.ElementsMatch(t, want, parseRanks(text, socketstall.MaxRank), text)
	}
}
