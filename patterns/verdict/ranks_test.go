package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

func TestRanksAreRanges(t *testing.T) {
	for text, ranks := range map[string]Ranks{
		"": nil, "0": {0}, "0-1": {0, 1}, "0-2,4,6-7": {0, 1, 2, 4, 6, 7}, "2147483646-2147483647": {MaxRank - 1, MaxRank},
	} {
		require.Equal(t, text, ranks.String())
		read, err := ParseRanks(text)
		require.NoError(t, err)
		require.Equal(t, ranks, read)
	}
	for _, text := range []string{"-1", "1-", "a", "3-1", "1,1", "5,2", "1-3,2", "0-2147483648", "0-2147483647", "0-32768", ",", "1,", "1 - 2", "+1"} {
		_, err := ParseRanks(text)
		require.Error(t, err, text)
		require.Less(t, len(err.Error()), 100)
	}
	var old Ranks // as they were written before
	require.NoError(t, json.Unmarshal([]byte("[1,2,5]"), &old))
	require.Equal(t, Ranks{1, 2, 5}, old)
}

func TestRanksThatAreScatteredAreTheFirstAndHowManyMore(t *testing.T) {
	for most, want := range map[int]string{0: "", 4: "0-2", 5: "0-2,5", 7: "0-2,5,7", 100: "0-2,5,7,90000"} {
		got, more := Ranks{0, 1, 2, 5, 7, 90000}.First(most)
		require.Equal(t, want, got)
		read, err := ParseRanks(got)
		require.NoError(t, err)
		require.Equal(t, 6-len(read), more)
	}
	var second, last Ranks
	for rank := range 1024 {
		second = append(second, 2*rank)
	}
	require.Regexp(t, `^0,2,4,.*,[0-9]+ and [0-9]{3} more ranks$`, second.Brief())
	ranges, more := second.First(MaxRangesBytes)
	require.Equal(t, fmt.Sprintf("%s and %d more ranks", ranges, more), second.Brief())
	for more != 1 {
		last = second[:len(second)-more+1]
		_, more = last.First(MaxRangesBytes)
	}
	require.Equal(t, ranges+" and 1 more rank", last.Brief())
}

// Verdicts about a job of 16,384 ranks: of ranks that follow one another, and of scattered ones.
func TestAVerdictOf16384RanksIsSmall(t *testing.T) {
	const world = 16_384
	random := rand.New(rand.NewPCG(1, 2))
	for name, hit := range map[string]func(int) bool{
		"all but one":  func(rank int) bool { return rank != 517 },
		"every second": func(rank int) bool { return rank%2 == 0 },
		"every third":  func(rank int) bool { return rank%3 != 0 },
		"random":       func(int) bool { return random.IntN(2) == 0 },
		"few":          func(int) bool { return random.IntN(16) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			v := lostGPU()
			v.BlastRadius = nil
			for rank := range world {
				if hit(rank) {
					v.BlastRadius = append(v.BlastRadius, rank)
				}
			}
			v.Headline, v.Remediation = strings.Repeat("h", 400), strings.Repeat("r", 1000)
			for len(v.Evidence) < 8 {
				v.Evidence = append(v.Evidence, v.Evidence[0])
			}
			record := plog.NewLogRecord()
			ToRecord(v, record)
			ranks, _ := record.Attributes().Get(AttrBlastRadius)
			count, _ := record.Attributes().Get(AttrBlastCount)
			require.Equal(t, v.BlastRadius.Brief(), ranks.Str())
			require.EqualValues(t, len(v.BlastRadius), count.Int())
			if name == "all but one" {
				require.Equal(t, "0-516,518-16383", ranks.Str())
			}
			size := 0
			for key, value := range record.Attributes().All() {
				size += len(key) + len(value.AsString())
			}
			t.Logf("%d bytes of JSON, %d of attributes", len(ToJSON(v)), size)
			require.Less(t, size, 16_000)
			read, err := FromRecord(record)
			require.NoError(t, err)
			require.Equal(t, v.BlastRadius, read.BlastRadius)
			var b strings.Builder
			require.NoError(t, Render(&b, []Verdict{read}, Options{}))
			require.Less(t, b.Len(), 16_000)
			if strings.Contains(ranks.Str(), " more ") {
				require.Contains(t, strings.Join(strings.Fields(b.String()), " "), "("+Number(len(v.BlastRadius))+" ranks)")
			}
		})
	}
}

func FuzzBits(f *testing.F) {
	f.Add([]byte{0x55, 0, 1})
	f.Fuzz(func(t *testing.T, set []byte) {
		ranks, err := ranksOfBits(set)
		if err != nil {
			return
		}
		require.True(t, slices.IsSorted(ranks))
		require.LessOrEqual(t, len(ranks), MaxRanks)
		require.Equal(t, bytes.TrimRight(set, "\x00"), append([]byte{}, ranks.bits()...))
	})
}

// Ranges are cut without unfolding them: those of a job that is larger than any blast radius stay.
func TestRangesAreCutAsTheyStand(t *testing.T) {
	first, listed, more, err := Cut("0-131071")
	require.NoError(t, err)
	require.Equal(t, []any{"0-131071", 131072, 0}, []any{first, listed, more})
	second := Ranks{}
	for rank := 0; rank < 16384; rank += 2 {
		second = append(second, rank)
	}
	want, rest := second.First(MaxRangesBytes)
	first, listed, more, err = Cut(second.String() + ",20000-2147483647")
	require.NoError(t, err)
	require.Equal(t, []any{want, len(second) - rest, rest + 2147483647 - 20000 + 1}, []any{first, listed, more})
	first, listed, more, err = Cut("")
	require.NoError(t, err)
	require.Equal(t, []any{"", 0, 0}, []any{first, listed, more})
	for _, text := range []string{"x", "3-1", "1,1", "1-5,3", ",", "1,", "-1", "2147483648"} {
		_, _, _, err = Cut(text)
		require.Error(t, err, text)
		_, err = ParseRanks(text)
		require.Error(t, err, text)
	}
}
