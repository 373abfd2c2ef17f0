package ncclhang

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

const analyzed = "../../receivers/ncclfrreceiver/testdata/analyzer"

// judgement is what PyTorch's analyzer says of one sequence number.
type judgement struct {
	Seq      int64             `json:"seq"`
	Missing  []int             `json:"missing"`
	Mismatch map[string]string `json:"mismatch"`
}

// theirs are the reasons of the analyzer in our words.
var theirs = map[string][]string{
	"COLLECTIVE_TYPE_MISMATCH":  {"operation", "order"},
	"SIZE_OR_SYNTAX_MISMATCH":   {"sizes"},
	"COLLECTIVE_DTYPE_MISMATCH": {"types"},
}

// differently are the cases in which we say something else than the analyzer,
// each with its reason.
var differently = map[string]string{
	"nobody_waits_and_one_behind": "all others have finished a broadcast and nobody waits: rank 2 is on its way",
	"one_sent_no_dump":            "the analyzer cannot decide; we say who waits and who sent nothing, and that it is unsure",
}

// TestWeSayWhatTheAnalyzerSays compares the first thing that PyTorch's analyzer
// finds in each case: it stops comparing a group there.
func TestWeSayWhatTheAnalyzerSays(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(analyzed, "analyzer.json"))
	require.NoError(t, err)
	var cases map[string][]judgement
	require.NoError(t, json.Unmarshal(text, &cases))
	require.GreaterOrEqual(t, len(cases), 16)
	for name, said := range cases {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(analyzed, name+".otlp.json"))
			require.NoError(t, err)
			logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(data)
			require.NoError(t, err)
			found := joined(t, logs)
			if _, differs := differently[name]; differs {
				return
			}
			if len(said) == 0 {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, said[0].Seq, found[0].Seq)
			if len(said[0].Missing) > 0 {
				require.Equal(t, NotEntered, found[0].Kind)
				require.Equal(t, said[0].Missing, found[0].Culprits)
				return
			}
			requireSameMismatch(t, said[0].Mismatch, &found[0])
		})
	}
}

// requireSameMismatch allows for the analyzer's own remark that, when the rank
// it begins with is the odd one, it names all others.
func requireSameMismatch(t *testing.T, said map[string]string, f *Finding) {
	require.Equal(t, Mismatch, f.Kind)
	var named []int
	for rank, reason := range said {
		n, err := strconv.Atoi(rank)
		require.NoError(t, err)
		named = append(named, n)
		require.Contains(t, theirs[reason], f.What)
	}
	slices.Sort(named)
	others := slices.DeleteFunc((&run{}).upTo(4), func(rank int) bool { return slices.Contains(f.Culprits, rank) })
	require.Contains(t, [][]int{f.Culprits, others}, named)
}

// TestWhereWeDifferFromTheAnalyzer says what we say instead.
func TestWhereWeDifferFromTheAnalyzer(t *testing.T) {
	want := map[string][]short{
		"nobody_waits_and_one_behind": {},
		"one_sent_no_dump":            {{"ranks 0-2 wait in _all_gather_base #2 of default_pg at step (/srv/train/train.py:2); rank 3 sent no dump", Unsure, ""}},
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(differently)), slices.Collect(maps.Keys(want)))
	for name, findings := range want {
		data, err := os.ReadFile(filepath.Join(analyzed, name+".otlp.json"))
		require.NoError(t, err)
		logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(data)
		require.NoError(t, err)
		require.Equal(t, findings, shorts(joined(t, logs)), name)
	}
}
