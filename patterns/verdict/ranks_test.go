package verdict

import (
	"encoding/json"
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

// A verdict about a job of 16,384 ranks of which all but one wait.
func TestAVerdictOf16384RanksIsSmall(t *testing.T) {
	v := lostGPU()
	v.BlastRadius = nil
	for rank := range 16_384 {
		if rank != 517 {
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
	require.Equal(t, "0-516,518-16383", ranks.Str())
	size := 0
	for key, value := range record.Attributes().All() {
		size += len(key) + len(value.AsString())
	}
	t.Logf("%d bytes of JSON, %d of attributes", len(ToJSON(v)), size)
	require.Less(t, size, 16_000)
	read, err := FromRecord(record)
	require.NoError(t, err)
	require.Equal(t, v.BlastRadius, read.BlastRadius)
}
