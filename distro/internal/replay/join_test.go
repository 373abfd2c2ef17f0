package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/pipeline"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// allDumps has a folder of real dumps for each thing that went wrong.
const allDumps = "../../../receivers/ncclfrreceiver/internal/flightrecorder/testdata"

// hangs says of each what is to be found, as far as a verdict says it.
var hangs = map[string]struct {
	culprits   string
	confidence verdict.Confidence
}{
	"healthy":              {},
	"missing":              {"2", verdict.Full},
	"subgroup":             {"3", verdict.Partial},
	"mismatched_operation": {"1", verdict.Full},
}

// dumpsJustWritten is a folder with the dumps of a folder as PyTorch names them.
func dumpsJustWritten(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	writeDumps(t, from, dir, "")
	return dir
}

// entryTime is a time in a dump.
var entryTime = regexp.MustCompile(`"(time_[a-z_]+_ns)":(\d+)`)

// writeFreshDumps copies dumps whose ranks began to wait then: all times in them are moved.
func writeFreshDumps(t *testing.T, from, dir, except string, waiting time.Time) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(allDumps, from, "rank_*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	contents, newest := make([][]byte, len(files)), int64(0)
	for i, file := range files {
		contents[i], err = os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range entryTime.FindAllSubmatch(contents[i], -1) {
			at, err := strconv.ParseInt(string(found[2]), 10, 64)
			require.NoError(t, err)
			newest = max(newest, at)
		}
	}
	move := waiting.UnixNano() - newest
	for i, content := range contents {
		moved := entryTime.ReplaceAllFunc(content, func(found []byte) []byte {
			parts := entryTime.FindSubmatch(found)
			at, _ := strconv.ParseInt(string(parts[2]), 10, 64)
			return fmt.Appendf(nil, `"%s":%d`, parts[1], at+move)
		})
		if name := fmt.Sprintf("rank_%d", i); name != except {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), moved, 0o600))
		}
	}
}

// writeDumps copies the dumps of a folder, as PyTorch names them, but for one.
func writeDumps(t *testing.T, from, dir, except string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(allDumps, from, "rank_*.pickle"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for i, file := range files {
		name := fmt.Sprintf("rank_%d", i)
		if name == except {
			continue
		}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}

func TestDumpsNameWhoDidNotEnterTheCollective(t *testing.T) {
	for name, want := range hangs {
		t.Run(name, func(t *testing.T) {
			requireHang(t, want.culprits, want.confidence, playedPaths(t, Options{Job: "job"}, dumpsJustWritten(t, name)).verdicts)
		})
	}
}

func requireHang(t *testing.T, culprits string, confidence verdict.Confidence, verdicts []verdict.Verdict) {
	t.Helper()
	if culprits == "" {
		require.Empty(t, verdicts)
		return
	}
	require.Len(t, verdicts, 1)
	require.Equal(t, "nccl_hang", verdicts[0].Pattern)
	require.Equal(t, culprits, verdicts[0].Culprit["culprits"])
	require.Equal(t, confidence, verdicts[0].Confidence)
}

func TestALateDumpCompletesWhatWasSaid(t *testing.T) {
	dir := dumpsJustWritten(t, "missing")
	late := began.Add(time.Minute)
	for file, at := range map[string]time.Time{"rank_0": began, "rank_1": began, "rank_2": late, "rank_3": began} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, file), at, at))
	}
	requireHang(t, "2", verdict.Full, playedPaths(t, Options{}, dir).verdicts)
}

// A short lateness must not end a replay before the dumps are joined.
func TestDumpsAreJoinedBeforeTheEnd(t *testing.T) {
	got := playedPaths(t, Options{Lateness: time.Second}, dumpsJustWritten(t, "missing"))
	requireHang(t, "2", verdict.Full, got.verdicts)
}

// running is the way of dumps through a collector.
const running = `{receivers: {ncclfr: {include: [%q], job_id: job, shared: true}}, processors: {rankjoin: {}, patterndetector: {}}, exporters: {sink: {}},
	service: {telemetry: {metrics: {level: none}, logs: {level: error}},
		pipelines: {logs: {receivers: [ncclfr], processors: [rankjoin, patterndetector], exporters: [sink]}}}}`

// sunk is what came to the end of a pipeline.
type sunk struct {
	mu       sync.Mutex
	dumps    int
	verdicts []verdict.Verdict
}

func (s *sunk) add(_ time.Time, logs plog.Logs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if v, err := verdict.FromRecord(record); err == nil {
					s.verdicts = verdict.Merge(s.verdicts, []verdict.Verdict{v})
				} else if record.EventName() == "nccl.fr.dump" {
					s.dumps++
				}
			}
		}
	}
}

func (s *sunk) sawAll(dumps int) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.dumps >= dumps
	}
}

// TestACollectorComesToTheSameVerdicts sends the same dumps through the
// components of a pipeline, which joins what it has when it stops.
func TestACollectorComesToTheSameVerdicts(t *testing.T) {
	for name, want := range hangs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := dumpsJustWritten(t, name)
			replayed := playedPaths(t, Options{Job: "job"}, dir)
			var end sunk
			p, err := pipeline.Start(t.Context(), fmt.Sprintf(running, dir), end.add)
			require.NoError(t, err)
			require.Eventually(t, end.sawAll(int(replayed.Records)), hosttest.Patience, 10*time.Millisecond)
			require.NoError(t, p.Stop())
			requireHang(t, want.culprits, want.confidence, end.verdicts)
			require.Equal(t, timeless(replayed.verdicts), timeless(end.verdicts))
		})
	}
}

// timeless leaves out of verdicts what depends on when they were given: a
// collector runs now.
func timeless(verdicts []verdict.Verdict) []verdict.Verdict {
	out := make([]verdict.Verdict, len(verdicts))
	for i, v := range verdicts {
		out[i] = verdict.Verdict{
			Pattern: v.Pattern, Role: v.Role, Status: v.Status, Confidence: v.Confidence, Severity: v.Severity,
			BlastRadius: v.BlastRadius, NotObserved: v.NotObserved, Culprit: v.Culprit, Headline: v.Headline,
		}
		for _, e := range v.Evidence {
			out[i].Evidence = append(out[i].Evidence, verdict.Evidence{Name: e.Name})
		}
	}
	return out
}

// TestDumpsInWhichNothingStandsStillSayHowFarTheRanksAre, instead of nothing.
func TestDumpsInWhichNothingStandsStillSayHowFarTheRanksAre(t *testing.T) {
	for name, tt := range map[string]struct {
		except string
		want   []string
	}{
		"healthy":  {"", []string{"all 4 ranks finished all_reduce #6 of default_pg; nothing is pending"}},
		"p2p_only": {"", []string{"all 4 ranks entered no collective of default_pg; nothing is pending"}},
		"missing":  {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeDumps(t, name, dir, tt.except)
			got := playedPaths(t, Options{Job: "job"}, dir)
			require.Equal(t, tt.want, got.Dumps)
			require.Equal(t, tt.want == nil, len(got.verdicts) > 0)
		})
	}
	t.Run("a rank without a dump", func(t *testing.T) {
		dir := t.TempDir()
		writeDumps(t, "healthy", dir, "rank_2")
		got := playedPaths(t, Options{Job: "job"}, dir)
		require.Equal(t, []string{"ranks 0-1, 3 finished all_reduce #6 of default_pg; rank 2 sent no dump; nothing is pending"}, got.Dumps)
	})
	t.Run("two jobs", func(t *testing.T) {
		dir := t.TempDir()
		for _, job := range []string{"a", "b"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, job), 0o700))
			writeDumps(t, "healthy", filepath.Join(dir, job), "")
		}
		got := playedPaths(t, Options{}, dir)
		require.Len(t, got.Dumps, 2)
		for i, job := range []string{"a", "b"} {
			require.Equal(t, filepath.Join(dir, job, "rank_")+": all 4 ranks finished all_reduce #6 of default_pg; nothing is pending", got.Dumps[i])
		}
	})
}
