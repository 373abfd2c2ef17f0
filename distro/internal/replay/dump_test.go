package replay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// dumps are real ones, of PyTorch 2.14.
const dumps = "../../../receivers/ncclfrreceiver/internal/flightrecorder/testdata/missing"

func dumpOf(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dumps, name))
	require.NoError(t, err)
	return content
}

func TestAFolderOfDumpsIsRead(t *testing.T) {
	got := playedPaths(t, Options{Job: "job"}, dumps)
	require.Empty(t, got.bad)
	require.Equal(t, 8, got.Files)
	require.GreaterOrEqual(t, got.Records, uint64(8), "a record for each process group of each dump")
}

func TestDumpsAreRecognizedAmongOtherFiles(t *testing.T) {
	got := played(t, Options{}, map[string][]byte{
		"rank_0.json": dumpOf(t, "rank_0.json"), "rank_1": dumpOf(t, "rank_1.pickle"),
		"otlp.json": jsonOf(t, oneLost("0000:0a:00.0", began)),
	})
	require.Empty(t, got.bad)
	require.Len(t, got.verdicts, 2)
	require.Equal(t, "gpu_lost", got.verdicts[1].Pattern)
	require.Equal(t, "nccl_hang", got.verdicts[0].Pattern, "it is of the time of its entries, not of its files")
	require.Equal(t, "2-3", got.verdicts[0].Culprit["silent"], "two of four ranks sent a dump")
	require.GreaterOrEqual(t, got.Records, uint64(3))
}

func TestADumpThatIsNoneSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		file    string
		content []byte
		says    string
	}{
		"cut off":         {"rank_0.pickle", dumpOf(t, "rank_0.pickle")[:500], "rank_0.pickle"},
		"a pickle bomb":   {"rank_0", []byte("\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00"), "rank_0"},
		"without a rank":  {"dump", dumpOf(t, "rank_0.pickle"), "which rank"},
		"compressed":      {"rank_0.gz", gzipped(t, dumpOf(t, "rank_0.pickle")), "unpack it"},
		"no dump inside":  {"rank_0.json", []byte(`{"version": 7}`), "rank_0.json"},
		"a cut JSON dump": {"rank_0.json", dumpOf(t, "rank_0.json")[:500], "rank_0.json"},
	} {
		t.Run(name, func(t *testing.T) {
			got := played(t, Options{}, map[string][]byte{tt.file: tt.content, "x": jsonOf(t, oneLost("0000:0a:00.0", began))})
			require.Len(t, got.bad, 1)
			require.Contains(t, got.bad[0], tt.says)
			require.Equal(t, 1, got.Unread)
			require.Len(t, got.verdicts, 1)
		})
	}
}
