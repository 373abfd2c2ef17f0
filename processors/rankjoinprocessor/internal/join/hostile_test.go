package join

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
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

// TestHostileRecords: whatever a sender puts there, no panic, and bounded work.
func TestHostileRecords(t *testing.T) {
	huge := base64.StdEncoding.EncodeToString(make([]byte, 4*maxHistory))
	for name, logs := range map[string]plog.Logs{
		"no rank":                     change("nccl.fr.rank", "two"),
		"rank below zero":             change("nccl.fr.rank", -1),
		"rank beyond all jobs":        change("nccl.fr.rank", maxRank+1),
		"history that is no base64":   change("nccl.fr.history", "§§§"),
		"history of a byte":           change("nccl.fr.history", "AA=="),
		"history beyond the limit":    change("nccl.fr.history", huge+huge),
		"history of zeros":            change("nccl.fr.history", huge),
		"first number below zero":     change("nccl.fr.history_first_seq_id", -5),
		"first number near the end":   change("nccl.fr.history_first_seq_id", int64(1)<<62),
		"first number beyond":         change("nccl.fr.history_first_seq_id", int64(1)<<62+1),
		"operations that are a text":  change("nccl.fr.operations", "x"),
		"operations that are numbers": change("nccl.fr.operations", []any{1, 2}),
		"operations without anything": change("nccl.fr.operations", []any{map[string]any{}}),
		"an operation from -3 to 9":   change("nccl.fr.operations", []any{map[string]any{"p2p": true, "name": "nccl:send -3->9", "source": -3, "destination": 1 << 40}}),
		"number of an operation":      change("nccl.fr.operations", []any{map[string]any{"name": "a", "seq_id": int64(math.MaxInt64), "created_unix_nano": int64(math.MaxInt64)}}),
		"code that is deep":           change("nccl.fr.operations", []any{map[string]any{"name": "a", "code": []any{[]any{[]any{1}}, strings.Repeat("x", 1<<16)}}}),
		"members without end":         change("nccl.fr.pg_ranks", "0-99999999999"),
		"members backwards":           change("nccl.fr.pg_ranks", "9-3"),
		"members step by nothing":     change("nccl.fr.pg_ranks", "0-9/0"),
		"members that are words":      change("nccl.fr.pg_ranks", "all of them"),
		"members a million times":     change("nccl.fr.pg_ranks", strings.Repeat("0-1048575,", 1000)),
		"world of minus one":          change("gen_ai.training.world_size", -1),
		"world of all ranks":          change("gen_ai.training.world_size", maxRank+1),
		"no group":                    change("nccl.fr.pg_id", ""),
	} {
		t.Run(name, func(t *testing.T) {
			j := New(DefaultOptions)
			j.Add(logs, written)
			for _, round := range j.Advance(written.Add(time.Hour)) {
				for i := range round.Findings {
					require.Less(t, len(round.Findings[i].String()), 8192)
				}
			}
		})
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(int64(1), "AAAA", "0-3", "all_reduce", int64(6), int64(0), true)
	f.Add(int64(1)<<62, "AQAAAAIAAAA=", "0-120/8", "nccl:send 0->1", int64(-1), int64(7), false)
	f.Fuzz(func(t *testing.T, first int64, history, members, name string, seq, source int64, p2p bool) {
		j := New(DefaultOptions)
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
		for _, round := range j.Flush() {
			for i := range round.Findings {
				_ = round.Findings[i].String()
			}
		}
	})
}

func TestRanksInShort(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "3": {3}, "0-3": {0, 1, 2, 3}, "0-16/8,5": {0, 5, 8, 16}, "1,1,0-1": {0, 1}, "x": nil, "0-": nil, "-1": nil, "3-1": {},
	} {
		require.ElementsMatch(t, want, parseRanks(text), text)
	}
}
