package command

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func TestCompareOfRecordingsAndReports(t *testing.T) {
	a := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	b := write(t, "gpu-5.log", "[Sat Nov 21 08:41:23 2026] "+strings.ReplaceAll(xidLine, "0000:65", "0000:66")+"\n")
	_, report := reported(t, "incident.json", a)
	for name, paths := range map[string][]string{"recordings": {a, b}, "a report and a recording": {write(t, "a.json", report), b}} {
		got := commandtest.Finish(t, commandtest.New(t, append([]string{"compare"}, paths...)...))
		require.Equal(t, exitOK, got.Code, "%s: %s", name, got.Stderr)
		require.Regexp(t, `new +GPU 0000:66:00.0 on gpu-5 has fallen off the bus`, got.Stdout)
		require.Regexp(t, `gone +GPU 0000:65:00.0 on gpu-4 has fallen off the bus`, got.Stdout)
		for line := range strings.Lines(got.Stdout) {
			require.LessOrEqual(t, len(strings.TrimSpace(line)), 160)
		}
	}
	for name, want := range map[string]string{"c.html": "<h2 id=\"h-new\">new in B</h2>", "c.json": "tracecore.compare/1", "c.txt": "RANK HOURS LOST BY CAUSE"} {
		out := filepath.Join(t.TempDir(), name)
		got := commandtest.Finish(t, commandtest.New(t, "compare", "-o", out, a, b))
		require.Equal(t, exitOK, got.Code, got.Stderr)
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Contains(t, string(text), want)
	}
}

// Runs that a running tracecore has seen are compared like recordings.
func TestCompareOfRuns(t *testing.T) {
	address := teller(t)
	got := commandtest.Finish(t, commandtest.New(t, "compare", "--address", address, "r1", "r2"))
	require.Equal(t, exitOK, got.Code, got.Stderr)
	require.Regexp(t, `new +GPU 0000:65:00.0 on node-17 is lost`, got.Stdout)
	require.Regexp(t, `A +llm r1, 0 incidents, 0 ms standing of 2 h 0 min`, got.Stdout)
	require.Contains(t, got.Stdout, "llm r2: ranks other than the 8 of 1,024 that node-17 saw")
	log := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	require.Equal(t, exitOK, commandtest.Finish(t, commandtest.New(t, "compare", "--address", address, "r1", log)).Code)
	got = commandtest.Finish(t, commandtest.New(t, "compare", "--address", address, "r1", "r9"))
	require.Equal(t, exitInternal, got.Code)
	require.Contains(t, got.Stderr, "r9 is no file here, so the history is asked for a run")
}

// rankOf tells a running tracecore that a rank began, or how it ended.
func rankOf(t *testing.T, otlp, event string, rank, pid int, began, at time.Time, more map[string]any) {
	t.Helper()
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", "node-a")
	record := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(at))
	all := map[string]any{
		"tracecore.trust": "proven", "gen_ai.training.job_id": "llm", "gen_ai.training.rank": rank, "gen_ai.training.world_size": 2,
		"process.pid": pid, "gen_ai.training.rank_pid": pid, "gen_ai.training.rank_start_unix_nano": began.UnixNano(), "process.executable.name": "python",
	}
	maps.Copy(all, more)
	require.NoError(t, record.Attributes().FromRaw(all))
	body, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	response, err := http.Post("http://"+otlp+"/v1/logs", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// A job runs twice beside a running tracecore, and a rank of its second start crashes. The two
// are compared by the ids under which `tracecore jobs` lists them, also after a kill.
func TestCompareOfLiveRuns(t *testing.T) {
	n := newNode(t, filepath.Join(t.TempDir(), "state"))
	n.start(t)
	first := time.Now().Add(-time.Minute)
	second := first.Add(20 * time.Second)
	ended := map[string]any{"process.exit.code": 0, "process.exit.signal": 0, "process.exit.inherited_identity": false}
	for rank := range 2 {
		rankOf(t, n.otlp, "process.start", rank, 100+rank, first, first, nil)
	}
	for rank := range 2 {
		rankOf(t, n.otlp, "process.exit", rank, 100+rank, first, first.Add(15*time.Second), ended)
	}
	for rank := range 2 {
		rankOf(t, n.otlp, "process.start", rank, 200+rank, second, second, nil)
	}
	died := func(rank int, after time.Duration, signal int, name string) {
		rankOf(t, n.otlp, "process.exit", rank, 200+rank, second, second.Add(after), map[string]any{
			"process.exit.code": 0, "process.exit.signal": signal, "process.exit.signal_name": name, "process.exit.inherited_identity": false,
		})
	}
	died(1, 10*time.Second, 11, "SIGSEGV")
	died(0, 10500*time.Millisecond, 6, "SIGABRT")

	var told history.Jobs
	require.Eventually(t, func() bool {
		got := commandtest.Finish(t, commandtest.New(t, "jobs", "--address", n.history, "--job", "llm", "-o", "json"))
		told = history.Jobs{}
		return json.Unmarshal([]byte(got.Stdout), &told) == nil && len(told.Runs) == 2 && told.Runs[0].EndedCount == 2 && told.Runs[1].EndedCount == 2
	}, hosttest.Patience, 20*time.Millisecond, "%s", n.Stderr)
	require.Equal(t, []string{history.RunFailed, history.RunSucceeded}, []string{told.Runs[0].Outcome, told.Runs[1].Outcome})
	compared := func(a, b *history.Run) (code int, text string) {
		got := commandtest.Finish(t, commandtest.New(t, "compare", "--address", n.history, a.ID, b.ID))
		return got.Code, strings.Join(strings.Fields(got.Stdout), " ")
	}
	const crash = `Rank 1 (python, pid 201) on node-a was the first of its job to die: SIGSEGV`
	ask := func() {
		var text string
		require.Eventually(t, func() bool {
			var code int
			code, text = compared(&told.Runs[1], &told.Runs[0])
			return code == exitOK && strings.Contains(text, "new "+crash)
		}, hosttest.Patience, 20*time.Millisecond, "%s\n%s", n.Stdout, n.Stderr)
		require.Contains(t, text, "A llm "+told.Runs[1].ID+", 0 incidents")
		require.Contains(t, text, "B llm "+told.Runs[0].ID+", 1 incident")
		require.Contains(t, text, "rank 1 0 1")
		require.NotContains(t, text, "gone ")
		code, text := compared(&told.Runs[0], &told.Runs[1])
		require.Equal(t, exitOK, code)
		require.Contains(t, text, "gone "+crash)
		require.NotContains(t, text, "new ")
	}
	ask()
	n.crash()
	n.start(t)
	ask()
}

// The first start of a job crashes, the second ends well. An agent that was started anew reads from
// /proc that the ranks of the second began some milliseconds before the agent of before saw it. The
// crash is of the first run alone.
func TestCompareOfARunThatBeganEarlierThanWasSeen(t *testing.T) {
	n := newNode(t, filepath.Join(t.TempDir(), "state"))
	n.start(t)
	first := time.Now().Add(-time.Minute)
	second := first.Add(20 * time.Second)
	signal := func(number int, name string) map[string]any {
		return map[string]any{"process.exit.code": 0, "process.exit.signal": number, "process.exit.signal_name": name, "process.exit.inherited_identity": false}
	}
	for rank := range 2 {
		rankOf(t, n.otlp, "process.start", rank, 100+rank, first, first, nil)
	}
	rankOf(t, n.otlp, "process.exit", 1, 101, first, first.Add(10*time.Second), signal(11, "SIGSEGV"))
	rankOf(t, n.otlp, "process.exit", 0, 100, first, first.Add(10500*time.Millisecond), signal(6, "SIGABRT"))
	for rank := range 2 {
		rankOf(t, n.otlp, "process.start", rank, 200+rank, second, second, nil)
	}
	for rank := range 2 {
		rankOf(t, n.otlp, "process.exit", rank, 200+rank, second.Add(-7*time.Millisecond), second.Add(15*time.Second), map[string]any{
			"process.exit.code": 0, "process.exit.signal": 0, "process.exit.inherited_identity": false,
		})
	}

	var told history.Jobs
	require.Eventually(t, func() bool {
		got := commandtest.Finish(t, commandtest.New(t, "jobs", "--address", n.history, "--job", "llm", "-o", "json"))
		told = history.Jobs{}
		return json.Unmarshal([]byte(got.Stdout), &told) == nil && len(told.Runs) == 2 && told.Runs[0].Outcome == history.RunSucceeded && told.Runs[1].Outcome == history.RunFailed
	}, hosttest.Patience, 20*time.Millisecond, "%s", n.Stderr)
	text := ""
	require.Eventually(t, func() bool {
		got := commandtest.Finish(t, commandtest.New(t, "compare", "--address", n.history, told.Runs[1].ID, told.Runs[0].ID))
		text = strings.Join(strings.Fields(got.Stdout), " ")
		return strings.Contains(text, "gone Rank 1 (python, pid 101)")
	}, hosttest.Patience, 20*time.Millisecond, "%s\n%s", n.Stdout, n.Stderr)
	require.Contains(t, text, "A llm "+told.Runs[1].ID+", 1 incident")
	require.Contains(t, text, "B llm "+told.Runs[0].ID+", 0 incidents")
}

func TestCompareSaysWhatIsWrong(t *testing.T) {
	good := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	damaged := write(t, "x", "no recording")
	for name, tt := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"one":                    {[]string{good}, exitUsage, "see tracecore compare --help"},
		"standard input":         {[]string{"-", good}, exitUsage, "one for each of A and B"},
		"a form that is none":    {[]string{"-o", "c.pdf", good, good}, exitUsage, "NAME.html"},
		"one is damaged":         {[]string{good, damaged}, exitUnusable, "unknown format"},
		"one is not there":       {[]string{"/nosuch", good}, exitUnusable, "/nosuch"},
		"an incident of nothing": {[]string{good, write(t, "v.json", `{"schema":"tracecore.incident/1"}`)}, exitInternal, "without incident_id"},
		"some of it is damaged":  {[]string{good, filepath.Dir(write(t, "y", "no recording"))}, exitUnusable, "unknown format"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, append([]string{"compare"}, tt.args...)...))
			require.Equal(t, tt.code, got.Code, got.Stderr)
			require.Contains(t, got.Stderr, tt.stderr)
			require.Empty(t, got.Stdout)
		})
	}
	half := write(t, "half.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(half), "zz"), []byte("no recording"), 0o600))
	got := commandtest.Finish(t, commandtest.New(t, "compare", good, filepath.Dir(half)))
	require.Equal(t, exitDegraded, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "rank hours")
	require.Contains(t, got.Stdout, filepath.Base(filepath.Dir(half))+": 1 of 2 files could not be read, or not all of it")
}
