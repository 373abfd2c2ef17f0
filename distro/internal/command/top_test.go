package command

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/top"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// What is no terminal gets the first screen as text.
func TestTopOfARecording(t *testing.T) {
	log := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	quiet := write(t, "gpu-5.log", "[Sat Nov 21 08:41:23 2026] usb 1-1: new device\n")
	damaged := write(t, "x", "no recording")
	sinceBoot := write(t, "gpu-6.log", "[ 1234.567890] "+xidLine+"\n")
	for name, tt := range map[string]struct {
		args         []string
		code         int
		stdout, said string
	}{
		"an incident":     {[]string{log}, exitDegraded, "# CRITICAL, likely  GPU 0000:65:00.0 on gpu-4 has fallen off the bus", ""},
		"nothing":         {[]string{quiet}, exitOK, ". Nothing is wrong that tracecore can see.", ""},
		"half of it":      {[]string{damaged, log}, exitDegraded, "but      1 of 2 files could not be read, or not all of it", "unknown format"},
		"no time of day":  {[]string{sinceBoot}, exitDegraded, "--boot-time", "no time of day"},
		"an empty folder": {[]string{t.TempDir()}, exitUnusable, "", "the folder has no file"},
		"unreadable":      {[]string{damaged}, exitUnusable, "", "unknown format"},
		"standard input":  {[]string{"-"}, exitUsage, "", "reads its input twice"},
		"no such address": {[]string{"--address", "ftp://x"}, exitUsage, "", "--address"},
		"nobody":          {[]string{"--address", "127.0.0.1:1"}, exitInternal, "", "does tracecore run here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, append([]string{"top"}, tt.args...)...))
			require.Equal(t, tt.code, got.Code, "%s%s", got.Stdout, got.Stderr)
			require.Contains(t, got.Stdout, tt.stdout)
			require.Contains(t, got.Stderr, tt.said)
			require.NotContains(t, got.Stdout, "\x1b")
		})
	}
}

// rankStart is the same for each record about a rank, however long the tests take.
var rankStart = time.Now().Add(-time.Hour).UnixNano()

// tellRank has an agent take a record of a rank.
func tellRank(t *testing.T, address, event string, rank int, more map[string]any) {
	t.Helper()
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", "node-1")
	record := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	a := map[string]any{
		"gen_ai.training.job_id": "llm", "gen_ai.training.rank": rank, "gen_ai.training.world_size": 4, "process.pid": 100 + rank, "process.executable.name": "python3",
		"gen_ai.training.rank_pid": 100 + rank, "gen_ai.training.rank_start_unix_nano": rankStart, "tracecore.trust": "proven",
	}
	for key, value := range more {
		a[key] = value
	}
	require.NoError(t, record.Attributes().FromRaw(a))
	body, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		response, err := http.Post("http://"+address+"/v1/logs", "application/json", bytes.NewReader(body))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, hosttest.Patience, 5*time.Millisecond)
}

// TestTopOfARunningAgent: what it is told of ranks and incidents is on the screen.
func TestTopOfARunningAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "h")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	n := newNode(t, filepath.Join(dir, "state"))
	n.start(t)
	become := func(code int, says ...string) {
		t.Helper()
		var got commandtest.Outcome
		require.Eventually(t, func() bool {
			got = commandtest.Finish(t, commandtest.New(t, "top", "--address", n.history))
			for _, one := range says {
				if !strings.Contains(got.Stdout, one) {
					return false
				}
			}
			return got.Code == code
		}, hosttest.Patience, 10*time.Millisecond, "%d %s%s", got.Code, got.Stdout, got.Stderr)
	}
	become(exitOK, "Nothing is wrong that tracecore can see.", "none was seen")
	for rank := range 4 {
		tellRank(t, n.otlp, "process.start", rank, nil)
	}
	become(exitOK, "llm", ". 4 go on")
	tellRank(t, n.otlp, "process.exit", 2, map[string]any{"process.exit.signal_name": "SIGKILL", "process.exit.signal": 9})
	become(exitDegraded, "x 1 dead", "..x.", "died: SIGKILL")
	n.alarm(t, "node-1")
	become(exitDegraded, "alarm on node-1")
}

// TestThePollerAsksForNews: what did not change is not told again, and one that died and
// came back is asked for everything.
func TestThePollerAsksForNews(t *testing.T) {
	var bytesTold, asked atomic.Int64
	var gone atomic.Bool
	status := toldStatus()
	status.Feeds[1].Reads = []string{"oom.kill"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if gone.Load() {
			http.Error(w, "gone", http.StatusBadGateway)
			return
		}
		answers := map[string]any{
			"/v1/status": status, "/v1/incidents": toldIncidents(), "/v1/incidents/inc-3f2a": toldIncident(), "/v1/incidents/inc-2": toldIncident(),
			"/v1/jobs": history.Jobs{Head: status.Head, Runs: []history.Run{}}, "/v1/ranks": history.Ranks{Head: status.Head, Jobs: []history.RankJob{{Job: "llm", Counts: map[string]int{history.RankGoesOn: 3}}}},
		}
		value, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(history.Failure{Schema: history.Schema, Error: "none"})
			return
		}
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		text, _ := json.Marshal(value)
		bytesTold.Add(int64(len(text)))
		_, _ = w.Write(text)
	}))
	defer server.Close()
	p := newPoller(&asking{address: server.URL})
	look := func(want top.Want) top.Picture {
		picture, err := p.Look(t.Context(), want)
		require.NoError(t, err)
		return picture
	}
	first := look(top.Want{Job: "llm", Rank: -1})
	require.Len(t, first.Incidents, 3)
	require.Len(t, first.Views, 2, "of what is open")
	require.Equal(t, "llm", first.Jobs[0].Job)
	require.NotEmpty(t, first.Unfed)
	told := bytesTold.Load()
	asked.Store(0)
	second := look(top.Want{Job: "llm", Rank: -1})
	require.Equal(t, first.Incidents, second.Incidents)
	require.Equal(t, first.Views, second.Views)
	require.Equal(t, told, bytesTold.Load(), "nothing was told again")
	require.LessOrEqual(t, asked.Load(), int64(4))
	require.NotContains(t, second.Views, "inc-1")
	look(top.Want{Incident: "inc-1", Rank: -1}) // it is not kept any more

	gone.Store(true)
	picture, err := p.Look(t.Context(), top.Want{Rank: -1})
	require.ErrorContains(t, err, "not one of tracecore")
	require.NotEmpty(t, picture.Host)
	gone.Store(false)
	before := bytesTold.Load()
	look(top.Want{Job: "llm", Rank: -1})
	require.Greater(t, bytesTold.Load(), before)
}
