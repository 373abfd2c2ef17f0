package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
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
}
