package ncclhang

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// of26 are the sets that the recorder of PyTorch 2.6.0 wrote (format 2.4), each
// with what its scenario did (train.py beside analyzer.json) and where its own
// analyzer says something else.
var of26 = map[string]struct {
	says      string
	sure      Sureness
	culprits  []int
	differs   string
	otherSaid int // findings of the analyzer, where it differs
}{
	"healthy": {},
	"mismatched_operation": {
		says: "rank 1 entered something else than its peers under all_reduce #4 of default_pg: " +
			"ranks 0, 2-3: all_reduce [[1024]] -> [[1024]] of Float -> Float; rank 1: all_gather [[1024]] -> [[4, 1024]] of Float -> Float at enter (/srv/train/train.py:38)",
		sure: Certain, culprits: []int{1},
	},
	"mismatched_size": {
		says: "rank 3 entered something else than its peers under all_reduce #4 of default_pg: " +
			"ranks 0-2: all_reduce [[1024]] -> [[1024]] of Float -> Float; rank 3: all_reduce [[512]] -> [[512]] of Float -> Float at enter (/srv/train/train.py:38)",
		sure: Certain, culprits: []int{3},
	},
	"mismatched_size_one_aborted": {
		says: "ranks 0-2 wait in all_reduce #4 of default_pg at enter (/srv/train/train.py:38); rank 3 sent no dump",
		sure: Unsure, differs: "it cannot decide without the dump of rank 3",
	},
	"two_behind": {
		says: "rank 2 never entered all_reduce #9 of default_pg; ranks 0-1, 3 wait at enter (/srv/train/train.py:38)",
		sure: Certain, culprits: []int{2},
	},
	"p2p_only": {
		says: "rank 2 never entered recv #5 of default_pg; rank 3 waits at enter (/srv/train/train.py:38)",
		sure: Certain, culprits: []int{2}, differs: "it takes sends and receives for collectives, all of sequence number 0", otherSaid: 5,
	},
	"never_dumps": {
		says: "ranks 0-1, 3 wait in all_reduce #4 of default_pg at enter (/srv/train/train.py:38); rank 2 sent no dump",
		sure: Unsure, differs: "it cannot decide without the dump of rank 2",
	},
	"hang_inside_a_pipeline": {
		says: "rank 3 never entered recv #1 of default_pg; rank 2 waits at enter (/srv/train/train.py:38)",
		sure: Certain, culprits: []int{3}, differs: "it does not follow who waits for whom across groups: ranks 2 and 3 each of its own group, and 0, 1, 3 of the receive", otherSaid: 3,
	},
}

// TestDumpsOfPyTorch26 says of each what its scenario did, and of those that
// PyTorch's own analyzer of that version explains, the same.
func TestDumpsOfPyTorch26(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(analyzed), "pytorch26", "analyzer.json"))
	require.NoError(t, err)
	var analyzer map[string][]judgement
	require.NoError(t, json.Unmarshal(text, &analyzer))
	require.Len(t, analyzer, len(of26))
	for name, want := range of26 {
		t.Run(name, func(t *testing.T) {
			said := analyzer["pytorch26_"+name]
			found := joined(t, realLogs(t, "pytorch26_"+name))
			if want.says == "" {
				require.Empty(t, found)
				require.Empty(t, said)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, want.says, found[0].String())
			require.Equal(t, want.sure, found[0].Sure)
			require.Equal(t, want.culprits, found[0].Culprits)
			if want.differs != "" {
				require.Len(t, said, want.otherSaid, want.differs)
				return
			}
			require.Equal(t, said[0].Seq, found[0].Seq)
			if len(said[0].Missing) > 0 {
				require.Equal(t, said[0].Missing, found[0].Culprits)
				return
			}
			requireSameMismatch(t, said[0].Mismatch, &found[0])
		})
	}
}
