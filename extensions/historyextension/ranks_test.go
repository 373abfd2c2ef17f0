package historyextension

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// someRanks are of two jobs: one stands, one goes on.
func someRanks(t *testing.T) *ranks.Book {
	t.Helper()
	book, of := ranks.NewBook(ranks.DefaultMost), ranks.Recorded()
	tell := func(job, event string, rank int, more map[string]any) {
		logs := plog.NewLogs()
		resource := logs.ResourceLogs().AppendEmpty()
		resource.Resource().Attributes().PutStr("host.name", "node-1")
		record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		record.SetEventName(event)
		record.SetTimestamp(pcommon.NewTimestampFromTime(onset.Add(time.Hour)))
		a := map[string]any{
			"gen_ai.training.job_id": job, "gen_ai.training.rank": rank, "gen_ai.training.rank_pid": 10 + rank, "process.pid": 10 + rank,
			"gen_ai.training.rank_start_unix_nano": onset.UnixNano(), "gen_ai.training.world_size": 4, "tracecore.trust": "proven", "process.executable.name": hostile,
		}
		for key, value := range more {
			a[key] = value
		}
		require.NoError(t, record.Attributes().FromRaw(a))
		book.Logs(logs, of)
	}
	tell("llm", "process.start", 0, nil)
	tell("llm", "nccl.socket.stall", 1, map[string]any{"nccl.socket.stall.id": "a", "nccl.socket.stall.age_ns": int64(time.Second), "nccl.rank.file": hostile})
	tell("llm", "process.stack", 1, map[string]any{"process.stack.where": hostile})
	tell("llm", "process.exit", 2, map[string]any{"process.exit.signal_name": "SIGKILL"})
	tell("other", "process.start", 0, nil)
	return book
}

func TestHowRanksFareIsAnswered(t *testing.T) {
	b := started(t)
	ask := func(query string, code int) history.Ranks {
		t.Helper()
		got, body := b.ask(t, http.MethodGet, "/v1/ranks"+query, "")
		require.Equal(t, code, got, "%s", body)
		require.NotContains(t, string(body), "<b>")
		var told history.Ranks
		require.NoError(t, json.Unmarshal(body, &told))
		return told
	}
	require.Empty(t, ask("", http.StatusOK).Jobs)
	cancel := b.ListenRanks("patterndetector", someRanks(t))

	all := ask("", http.StatusOK).Jobs
	require.Len(t, all, 2)
	require.Nil(t, all[0].Nodes)
	one := ask("?job=llm", http.StatusOK).Jobs
	require.Len(t, one, 1)
	require.Equal(t, map[string]int{history.RankGoesOn: 1, history.RankWaits: 1, history.RankDied: 1, history.RankUnseen: 1}, one[0].Counts)
	require.Equal(t, []history.RankNode{{Host: "node-1", Ranks: "0-2"}}, one[0].Nodes)
	require.Equal(t, verdict.Proven, one[0].Trust)
	detail := ask("?job=llm&rank=1", http.StatusOK).Jobs[0].Rank
	require.Equal(t, history.RankWaits, detail.State)
	require.Contains(t, detail.Stack.Where, `\x1b`)
	require.Empty(t, ask("?job=nobody", http.StatusOK).Jobs)
	require.Empty(t, ask("?job=llm&domain=x", http.StatusOK).Jobs)
	ask("?job=llm&rank=3", http.StatusNotFound)
	ask("?job=llm&rank=-1", http.StatusBadRequest)
	ask("?rank=1", http.StatusBadRequest)
	ask("?color=red", http.StatusBadRequest)
	cancel()
	require.Empty(t, ask("", http.StatusOK).Jobs)
}

// Who names what it was told last is told only what changed.
func TestWhatIsKnownIsNotToldAgain(t *testing.T) {
	b := started(t)
	book := someRanks(t)
	b.ListenRanks("patterndetector", book)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-1")}))
	ask := func(path, tag string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		require.NoError(t, err)
		request.Header.Set("If-None-Match", tag)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode, response.Header.Get("ETag")
	}
	for path, change := range map[string]func(){
		"/v1/incidents":       func() { require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-2", "node-1")})) },
		"/v1/incidents/inc-1": func() { b.overSocket(t, http.MethodPost, "/v1/incidents/inc-1/acknowledgement", `{}`) },
		"/v1/jobs": func() {
			require.NoError(t, b.Ranks(t.Context(), []history.Sighting{{Run: "r", Job: "llm", Began: onset, At: onset}}))
		},
		"/v1/ranks": func() {
			b.ListenRanks("second", someRanks(t))
		},
	} {
		code, tag := ask(path, "")
		require.Equal(t, http.StatusOK, code, path)
		require.NotEmpty(t, tag, path)
		code, _ = ask(path, tag)
		require.Equal(t, http.StatusNotModified, code, path)
		change()
		code, _ = ask(path, tag)
		require.Equal(t, http.StatusOK, code, path)
	}
	_, tag := ask("/v1/incidents?since=1h", "")
	require.Empty(t, tag, "what was recent is not any more")
	_, tag = ask("/v1/incidents/none", "")
	require.Empty(t, tag)
}
