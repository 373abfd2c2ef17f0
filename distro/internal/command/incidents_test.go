package command

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/top"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var updateGoldens = flag.Bool("update", false, "write the golden outputs of commands")

// hostileText is what a terminal must not take as it is.
const hostileText = "\x1b[2J\u202egnp\ttab\nline\r\x07"

var toldAt = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)

func toldIncidents() history.Incidents {
	onset := toldAt.Add(-time.Hour)
	end := onset.Add(41 * time.Minute)
	head := history.Head{Schema: history.Schema, Host: "node-17", At: toldAt}
	return history.Incidents{Head: head, More: true, Incidents: []history.Incident{
		{
			ID: "inc-3f2a", Role: verdict.RootCause, Status: verdict.Open, Severity: verdict.Critical, Confidence: verdict.Full, Pattern: "gpu_lost",
			Headline: "GPU 0000:65:00.0 on node-17 is lost; 1,023 ranks wait.", Onset: onset, Updated: toldAt, Jobs: []string{"llm"}, Nodes: []string{"node-17", "node-18", "node-19"}, Verdicts: 3,
			Acknowledged: &history.Acknowledgement{At: toldAt, UID: 0, Note: "OPS-1"},
		},
		{
			ID: "inc-2", Role: verdict.Symptom, Status: verdict.Open, Severity: verdict.Error, Confidence: verdict.Partial, Pattern: "rank_exit",
			Headline: "rank 3 was killed", Onset: onset.Add(-26 * time.Hour), Updated: onset, Jobs: []string{}, Nodes: []string{"node-2"}, Verdicts: 1,
		},
		{
			ID: "inc-1", Role: verdict.RootCause, Status: verdict.Resolved, Severity: verdict.Warning, Confidence: verdict.Full, Pattern: "fuse_stall", Drill: true,
			Headline: hostileText, Onset: onset, Resolved: &end, Updated: end, Jobs: []string{hostileText}, Nodes: []string{hostileText}, Verdicts: 1,
		},
	}}
}

func toldIncident() history.Whole {
	list := toldIncidents()
	onset := list.Incidents[0].Onset
	cause := verdict.Verdict{
		ID: "gpu_lost-1", IncidentID: "inc-3f2a", PatternID: 18, Pattern: "gpu_lost", Role: verdict.RootCause, Status: verdict.Open,
		Confidence: verdict.Full, Trust: verdict.Proven, Severity: verdict.Critical, Revision: 2, Onset: onset, Updated: toldAt,
		Headline: list.Incidents[0].Headline, Remediation: "Drain node-17.", Culprit: map[string]string{"host": "node-17", "gpu": "0000:65:00.0", "job": "llm"},
		Evidence: []verdict.Evidence{{Name: "xid", Time: onset, Count: 1, Source: "gpu.xid", Shows: "Xid 79 " + hostileText, Trust: verdict.Proven}},
	}
	symptom := cause
	symptom.ID, symptom.Role, symptom.RootCause, symptom.Revision = "rank_exit-1", verdict.Symptom, cause.ID, 1
	symptom.Pattern, symptom.Headline, symptom.Onset = "rank_exit", "rank 3 was killed", onset.Add(time.Second)
	first := cause
	first.Revision, first.Confidence = 1, verdict.Partial
	return history.Whole{Head: list.Head, Incident: list.Incidents[0], Verdicts: []verdict.Verdict{cause, symptom}, Revisions: []history.Revision{
		{Kept: onset.Add(time.Second), Verdict: first}, {Kept: onset.Add(2 * time.Second), Verdict: symptom}, {Kept: onset.Add(2 * time.Second), Verdict: cause},
	}}
}

func toldJobs() history.Jobs {
	began, ended := toldAt.Add(-3*time.Hour), toldAt.Add(-time.Hour)
	return history.Jobs{Head: toldIncidents().Head, Runs: []history.Run{
		{ID: "r3", Job: "llm", Began: ended.Add(time.Minute), Updated: toldAt, Outcome: history.RunGoesOn, WorldSize: 1024, Ranks: "0-7", RanksCount: 8, Hosts: []string{"node-17"}},
		{
			ID: "r2", Job: "llm", Began: began, Updated: ended, Ended: &ended, Outcome: history.RunFailed, WorldSize: 1024, Ranks: "0-7", RanksCount: 8, EndedRanks: "0-7", EndedCount: 8,
			Hosts: []string{"node-17"}, First: &history.Death{Rank: 3, Host: "node-17", At: ended, How: "SIGKILL"},
			Summary: &history.Summary{Standing: 1320, RankHours: 2.9, Causes: []history.Cause{{Pattern: "fuse_stall", Seconds: 1320}}, Incidents: 1},
		},
		{
			ID: "r1", Job: hostileText, Began: began, Updated: began.Add(90 * time.Second), Ended: &ended, Outcome: history.RunFollowed, Ranks: "0-1", RanksCount: 2, EndedRanks: "0", EndedCount: 1,
			Hosts: []string{hostileText, "b"}, First: &history.Death{Host: hostileText, At: ended, How: hostileText},
		},
	}}
}

// teller answers as a tracecore does, but without its care: each text is as it came.
func teller(t *testing.T) (address string) {
	t.Helper()
	answer := func(value any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			told := value
			if r.URL.Query().Get("job") == "nothing" {
				told = history.Incidents{Head: toldIncidents().Head, Incidents: []history.Incident{}}
			}
			if whole, ok := told.(history.Whole); ok && r.URL.Query().Get("revisions") == "" {
				whole.Revisions = nil
				told = whole
			}
			text, err := json.Marshal(told)
			if err == nil {
				_, _ = w.Write(text)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/incidents", answer(toldIncidents()))
	mux.HandleFunc("/v1/jobs", answer(toldJobs()))
	mux.HandleFunc("/v1/incidents/inc-3f2a", answer(toldIncident()))
	view := incidentview.Build(toldIncident().Verdicts, incidentview.Options{Now: toldAt, Version: "v"})
	view.Made.From, view.Facts = []string{"history of node-17"}, hostileText
	mux.HandleFunc("/v1/incidents/inc-3f2a/report", answer(view))
	one := history.OneRun{Head: toldIncidents().Head, Run: toldJobs().Runs[1], Incidents: []history.Incident{}}
	one.Run.ID = "r1"
	mux.HandleFunc("/v1/runs/r1", answer(one))
	one.Run.ID, one.Incidents = "r2", append(one.Incidents, toldIncidents().Incidents[0], history.Incident{ID: "gone"})
	mux.HandleFunc("/v1/runs/r2", answer(one))
	mux.HandleFunc("/v1/incidents/{id}/report", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"schema":%q,"error":"there is no such incident"}`, history.Schema)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// requireGolden compares an output with the file that has it.
func requireGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *updateGoldens {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run with -update")
	require.Equal(t, string(want), got)
	for _, r := range got {
		require.True(t, r == '\n' || r >= ' ' && r != '\u202e' && r != 0x7f, "%q", r)
	}
}

func TestIncidentsAreShown(t *testing.T) {
	address := teller(t)
	for name, args := range map[string][]string{
		"incidents.txt":          {"incidents"},
		"incidents.json":         {"incidents", "-o", "json"},
		"incidents.yaml":         {"incidents", "-o", "yaml"},
		"incidents-none.txt":     {"incidents", "--job", "nothing"},
		"incident.txt":           {"incidents", "show", "inc-3f2a"},
		"incident-revisions.txt": {"incidents", "show", "inc-3f2a", "--revisions"},
		"jobs.txt":               {"jobs", "--since", "7d"},
		"jobs.yaml":              {"jobs", "-o", "yaml"},
		"incident.yaml":          {"incidents", "show", "inc-3f2a", "-o", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			got := commandtest.Finish(t, commandtest.New(t, append(args, "--address", address)...))
			require.Equal(t, exitOK, got.Code, got.Stderr)
			requireGolden(t, name, got.Stdout)
		})
	}
}

// A character that a terminal shows in two columns counts as two.
func TestTablesAlignWideCharacters(t *testing.T) {
	var b strings.Builder
	table(&b, "NODE\tJOB\tWHAT", func(row func(cells ...string)) {
		row("節点-0", "e\u0301tude", "x")
		row("node-17", "訓練", "x")
	})
	at := -1
	for line := range strings.Lines(b.String()) {
		before := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(line), "WHAT"), "x")
		if at < 0 {
			at = top.Width(before)
		}
		require.Equal(t, at, top.Width(before), b.String())
	}
}

// Two users may call a job alike.
func TestRunsOfOneNameHaveTheirDomain(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeJobs(&b, &history.Jobs{Runs: []history.Run{{Job: "same", Domain: "user 1000"}, {Job: "same", Domain: "user 1001"}, {Job: "other", Domain: "user 1001"}}}))
	require.Contains(t, b.String(), "same, user 1000  ")
	require.Contains(t, b.String(), "same, user 1001  ")
	require.Contains(t, b.String(), "\nother  ")
}

func TestWhatCannotBeAskedSaysWhatToDo(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>"+hostileText) }))
	defer other.Close()
	newer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"schema":"tracecore.history/2"}`)
	}))
	defer newer.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer elsewhere.Close()
	closes := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer closes.Close()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"it closes the connection", []string{"incidents", "--address", closes.URL}, exitInternal, "too many ask there at once, or it has just ended: ask again"},
		{"nobody listens", []string{"incidents", "--address", hosttest.FreeAddress(t)}, exitInternal, "does tracecore run here, with the extension history?"},
		{"another program listens", []string{"incidents", "--address", other.URL}, exitInternal, "the answer is not one of tracecore; does tracecore run here"},
		{"a newer one", []string{"incidents", "--address", newer.URL}, exitInternal, "it speaks tracecore.history/2"},
		{"it sends us elsewhere", []string{"incidents", "--address", elsewhere.URL}, exitInternal, "HTTP 302: the answer is not one of tracecore"},
		{"no such format", []string{"incidents", "-o", "xml"}, exitUsage, "use table, json, yaml"},
		{"no such time", []string{"incidents", "--since", "yesterday"}, exitUsage, `--since is "yesterday": give a duration`},
		{"no such address", []string{"incidents", "--address", "ftp://x"}, exitUsage, "give host:port"},
		{"no incident", []string{"incidents", "show"}, exitUsage, "write tracecore incidents show INCIDENT"},
		{"no socket", []string{"incidents", "ack", "inc-1"}, exitInternal, "run it as root or as the user of tracecore"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := commandtest.Finish(t, commandtest.New(t, c.args...))
			require.Equal(t, c.code, got.Code)
			require.Contains(t, got.Stderr, c.says)
			require.NotContains(t, got.Stderr, "\x1b")
		})
	}
}

// TestIncidentsOfARunningAgent: what it concluded is asked for, acknowledged, and there
// after a kill.
func TestIncidentsOfARunningAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "h") // a socket's address is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	n := newNode(t, filepath.Join(dir, "state"))
	n.start(t)
	n.alarm(t, "node-1")
	ask := func(args ...string) commandtest.Outcome {
		cmd := commandtest.New(t, args...)
		cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR="+n.state)
		return commandtest.Finish(t, cmd)
	}
	var listed string
	require.Eventually(t, func() bool {
		got := ask("incidents", "--address", n.history, "--open", "--node", "node-1", "--since", "1h")
		listed = got.Stdout
		return got.Code == exitOK && strings.Contains(listed, "alarm on node-1")
	}, hosttest.Patience, 10*time.Millisecond)
	id := strings.Fields(strings.Split(listed, "\n")[1])[0]
	require.Contains(t, ask("incidents", "show", id, "--address", n.history).Stdout, "alarm on node-1")
	out := filepath.Join(dir, "incident.html")
	reported := ask("report", id, "-o", out, "--address", n.history)
	require.Equal(t, exitOK, reported.Code, reported.Stderr)
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "<h1>First of the alarm on")
	hasEvidence := func() bool {
		out := filepath.Join(dir, "incident.json")
		if got := ask("report", id, "-o", out, "--address", n.history); got.Code != exitOK {
			return false
		}
		text, err := os.ReadFile(out)
		return err == nil && strings.Contains(string(text), `"title": "record `)
	}
	require.Eventually(t, hasEvidence, hosttest.Patience, 10*time.Millisecond, "records that the verdict rests on")
	require.Contains(t, ask("incidents").Stdout, "alarm on node-1", "over the socket: whoever has the port does not answer for tracecore")
	acknowledged := ask("incidents", "ack", id, "--note", "OPS-1")
	require.Equal(t, exitOK, acknowledged.Code, acknowledged.Stderr)
	require.Equal(t, exitUsage, ask("incidents", "mute", id, "--for", "1h").Code, "without a reason")
	require.Equal(t, exitUsage, ask("incidents", "mute", id, "--reason", "OPS-1").Code, "without an end")
	muted := ask("incidents", "mute", id, "--for", "1h", "--reason", "OPS-1")
	require.Equal(t, exitOK, muted.Code, muted.Stderr)
	require.Contains(t, muted.Stdout, "is muted until")
	require.Contains(t, ask("incidents", "--address", n.history).Stdout, "acknowledged, muted")
	unmuted := ask("incidents", "unmute", id)
	require.Equal(t, exitOK, unmuted.Code, unmuted.Stderr)
	require.Contains(t, unmuted.Stdout, "is not muted")
	n.crash()
	n.start(t)
	require.Eventually(t, func() bool {
		return strings.Contains(ask("incidents", "show", id, "--address", n.history).Stdout, fmt.Sprintf("by uid %d: OPS-1", os.Getuid()))
	}, hosttest.Patience, 10*time.Millisecond)
	require.True(t, hasEvidence(), "what was kept outlives a kill")
	_, err = net.Dial("unix", filepath.Join(n.state, "history", "history.sock"))
	require.NoError(t, err)
}
