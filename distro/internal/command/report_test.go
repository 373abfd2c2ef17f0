package command

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// reported runs report and returns what it wrote.
func reported(t *testing.T, name string, args ...string) (commandtest.Outcome, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	got := commandtest.Finish(t, commandtest.New(t, append([]string{"report", "-o", out}, args...)...))
	text, err := os.ReadFile(out)
	if err != nil {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	left, err := os.ReadDir(filepath.Dir(out))
	require.NoError(t, err)
	require.LessOrEqual(t, len(left), 1, "a file was left behind")
	return got, string(text)
}

func TestReportOfARecording(t *testing.T) {
	log := write(t, "gpu-4.log", "[Sat Nov 21 08:41:22 2026] EXT4-fs error (device sda1): reading directory\n[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	for name, want := range map[string]string{
		"incident.html": "<title>GPU 0000:65:00.0 on gpu-4 has fallen off the bus",
		"incident.md":   "# GPU 0000:65:00.0 on gpu-4 has fallen off the bus",
		"INCIDENT.JSON": `"schema": "tracecore.incident/1"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, text := reported(t, name, log)
			require.Equal(t, exitOK, got.Code, got.Stderr)
			require.Contains(t, text, want)
			require.Contains(t, got.Stderr, name)
		})
	}
}

// A log that has only time since boot has no date: the report says so, and not how long ago it was.
func TestReportOfALogWithoutTimeOfDay(t *testing.T) {
	log := write(t, "gpu-4.log", "[ 1234.567890] "+xidLine+"\n")
	for _, name := range []string{"incident.md", "incident.html"} {
		got, text := reported(t, name, log)
		require.Equal(t, exitOK, got.Code, got.Stderr)
		require.Contains(t, text, "by a log that has no time of day")
		require.Contains(t, text, "times of this file count from 1970")
		require.NotContains(t, text, "before this report")
	}
}

// What one colleague sends in JSON, another makes a page of, without the recording.
func TestReportOfAnIncidentAndOfVerdicts(t *testing.T) {
	log := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	got, text := reported(t, "incident.json", log)
	require.Equal(t, exitOK, got.Code, got.Stderr)
	v, err := incidentview.FromJSON([]byte(text))
	require.NoError(t, err)
	require.Equal(t, []string{"gpu-4.log"}, v.Made.From)
	require.Len(t, v.Made.Hashes, 1)

	verdicts := commandtest.Finish(t, commandtest.New(t, "replay", "-o", "json", log))
	require.Equal(t, exitOK, verdicts.Code)
	for name, input := range map[string]string{"an incident": write(t, "incident.json", text), "verdicts": write(t, "verdicts.json", verdicts.Stdout)} {
		got, page := reported(t, "incident.html", input)
		require.Equal(t, exitOK, got.Code, "%s: %s", name, got.Stderr)
		require.Contains(t, page, v.ID)
		require.Contains(t, page, "has fallen off the bus")
	}
}

func oneVerdict() verdict.Verdict {
	return verdict.Verdict{
		ID: "v", IncidentID: "abc", Pattern: "gpu_lost", Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Severity: verdict.Critical,
		Revision: 1, Onset: time.Unix(1e9, 0), Updated: time.Unix(1e9, 0), Headline: "a GPU is gone", Remediation: "look", Culprit: map[string]string{"host": "a"},
	}
}

// A gateway's recording has the verdicts that it came to, and no evidence.
func TestReportOfARecordingOfVerdicts(t *testing.T) {
	one := oneVerdict()
	two := one
	two.Revision, two.Headline = 2, "the GPU is gone"
	logs := plog.NewLogs()
	records := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	verdict.ToRecord(two, records.AppendEmpty())
	verdict.ToRecord(one, records.AppendEmpty())
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	got, page := reported(t, "incident.html", write(t, "verdicts.otlp", string(text)))
	require.Equal(t, exitOK, got.Code, got.Stderr)
	require.Contains(t, page, "<h1>The GPU is gone</h1>")
}

func TestReportOfSeveralIncidentsTakesOne(t *testing.T) {
	log := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n[Sat Nov 21 09:41:23 2026] "+strings.ReplaceAll(xidLine, "0000:65", "0000:66")+"\n")
	got, text := reported(t, "incident.json", log)
	require.Equal(t, exitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "2 incidents; the first is taken")
	v, err := incidentview.FromJSON([]byte(text))
	require.NoError(t, err)
	require.Equal(t, 1, v.Made.Others)
	for line := range strings.Lines(got.Stderr) {
		id, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if len(id) != len(v.ID) || id == v.ID {
			continue
		}
		got, text := reported(t, "incident.json", "--incident", id[:8], log)
		require.Equal(t, exitOK, got.Code, got.Stderr)
		other, err := incidentview.FromJSON([]byte(text))
		require.NoError(t, err)
		require.Equal(t, id, other.ID)
		return
	}
	require.Fail(t, "the other incident is not named", got.Stderr)
}

// What a running tracecore has kept is asked for by incident or by job.
func TestReportOfWhatIsKept(t *testing.T) {
	address := teller(t)
	var ids []string
	for _, name := range []string{"inc-3f2a", "llm"} {
		got, text := reported(t, "incident.json", "--address", address, name)
		require.Equal(t, exitOK, got.Code, got.Stderr)
		v, err := incidentview.FromJSON([]byte(text))
		require.NoError(t, err)
		require.Equal(t, []string{"history of node-17"}, v.Made.From)
		require.Equal(t, "tracecore report --address "+address+" inc-3f2a -o incident.json", v.Made.Again)
		require.Contains(t, v.Headline, "GPU 0000:65:00.0 on node-17 is lost")
		ids = append(ids, v.ID)
		if name == "llm" {
			require.Equal(t, 2, v.Made.Others)
			require.Contains(t, got.Stderr, "3 incidents; the first is taken")
		}
		got, page := reported(t, "incident.html", "--address", address, name)
		require.Equal(t, exitOK, got.Code, got.Stderr)
		require.Contains(t, page, "<title>GPU 0000:65:00.0 on node-17 is lost")
		require.NotContains(t, page+got.Stderr, "\x1b")
	}
	require.Equal(t, []string{"inc-3f2a", "inc-3f2a"}, ids)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"nothing of that name":   {[]string{"nothing"}, "node-17 keeps no incident and no job of that name"},
		"another of the job":     {[]string{"--incident", "zz", "llm"}, "--incident zz: there is none"},
		"another than the named": {[]string{"--incident", "zz", "inc-3f2a"}, "what is given has incident inc-3f2a"},
		"nobody answers":         {[]string{"--address", hosttest.FreeAddress(t), "llm"}, "llm is no file here, so the history is asked"},
	} {
		got, _ := reported(t, "incident.html", append([]string{"--address", address}, c.args...)...)
		require.Equal(t, exitInternal, got.Code, name)
		require.Contains(t, got.Stderr, c.says, name)
	}
}

func TestReportSaysWhatIsWrong(t *testing.T) {
	log := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	quiet := write(t, "gpu-5.log", "[Sat Nov 21 08:41:23 2026] usb 1-1: new device\n")
	damaged := write(t, "x", "no recording")
	var view bytes.Buffer
	require.NoError(t, json.NewEncoder(&view).Encode(map[string]any{"schema": incidentview.Schema, "incident_id": "a"}))
	good := verdict.ToJSON(oneVerdict())
	for name, tt := range map[string]struct {
		file   string
		args   []string
		code   int
		stderr string
	}{
		"a form that is none":    {"incident.pdf", []string{log}, exitUsage, "NAME.html, NAME.md or NAME.json"},
		"standard input":         {"i.html", []string{"-"}, exitUsage, "reads its input twice"},
		"no input":               {"i.html", nil, exitUsage, "see tracecore report --help"},
		"nothing wrong":          {"i.html", []string{quiet}, exitInternal, "nothing is wrong that tracecore can see"},
		"no such incident":       {"i.html", []string{"--incident", "zzz", log}, exitInternal, "has fallen off the bus"},
		"some is damaged":        {"i.html", []string{log, damaged}, exitDegraded, "unknown format"},
		"all is damaged":         {"i.html", []string{damaged}, exitUnusable, "unknown format"},
		"no such file":           {"i.html", []string{"/nosuch"}, exitUnusable, "/nosuch"},
		"an incident of nothing": {"i.html", []string{write(t, "v.json", view.String())}, exitInternal, "without incident_id or headline"},
		"a verdict of nothing":   {"i.html", []string{write(t, "v.json", `{"verdict_id":"a"}`)}, exitInternal, "byte 18"},
		"verdicts, then no JSON": {"i.html", []string{write(t, "v.json", string(good)+"\n{")}, exitInternal, "byte"},
		"a verdict cut off":      {"i.html", []string{write(t, "v.json", string(good[:20]))}, exitUnusable, "v.json"},
		"another incident":       {"i.html", []string{"--incident", "zz", write(t, "v.json", `{"schema":"`+incidentview.Schema+`","incident_id":"a","headline":"b","severity":"error","status":"open"}`)}, exitInternal, "what is given has incident a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, text := reported(t, tt.file, tt.args...)
			require.Equal(t, tt.code, got.Code, got.Stderr)
			require.Contains(t, got.Stderr, tt.stderr)
			require.Equal(t, tt.code == exitDegraded, text != "")
			require.Empty(t, got.Stdout)
		})
	}
}

func TestReportIntoAFolderThatIsNotThere(t *testing.T) {
	log := write(t, "gpu-4.log", "[Sat Nov 21 08:41:23 2026] "+xidLine+"\n")
	got := commandtest.Finish(t, commandtest.New(t, "report", "-o", filepath.Join(t.TempDir(), "none", "i.html"), log))
	require.Equal(t, exitInternal, got.Code)
	require.Contains(t, got.Stderr, "none")
}
