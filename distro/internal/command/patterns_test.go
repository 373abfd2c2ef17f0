package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/patterns"
)

func TestPatternsListsAndShowsTheLibrary(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	list := commandtest.Finish(t, commandtest.New(t, "patterns", "list"))
	require.Equal(t, exitOK, list.Code, list.Stderr)
	for _, r := range rules {
		require.Contains(t, list.Stdout, r.Name)
	}
	show := commandtest.Finish(t, commandtest.New(t, "patterns", "show", "gpu_lost"))
	require.Equal(t, exitOK, show.Code, show.Stderr)
	require.Contains(t, show.Stdout, "name: gpu_lost")
}

// Of each parameter it shows the value in force, and who set it.
func TestPatternsShowTellsTheValuesInForce(t *testing.T) {
	config := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}}}}
processors:
  patterndetector: {patterns: {straggler: {enabled: false}, nccl_socket_stall: {settle: 2s}}}
  rankjoin: {init_wait: 5m}
exporters: {terminal: }
service: {pipelines: {logs: {receivers: [otlp], processors: [rankjoin, patterndetector], exporters: [terminal]}}}
`), 0o600))
	show := func(args ...string) string {
		got := commandtest.Finish(t, commandtest.New(t, append([]string{"patterns", "show"}, args...)...))
		require.Equal(t, exitOK, got.Code, got.Stderr)
		return got.Stdout
	}
	require.Regexp(t, `(?m)^settle +1500ms +1500ms +100ms to 1m +default `, show("nccl_socket_stall"))
	tuned := show("--config", config, "17")
	require.Regexp(t, `(?m)^settle +2s +1500ms +100ms to 1m +patterns::nccl_socket_stall::settle `, tuned)
	require.Regexp(t, `(?m)^facts +10m +10m `, tuned)
	require.Regexp(t, `(?m)^init_wait +1m +1m +1s to 1h +default `, show("nccl_hang"))
	joined := show("--config", config, "nccl_hang")
	require.Regexp(t, `(?m)^init_wait +5m0s +1m +1s to 1h +rankjoin::init_wait `, joined)
	require.Regexp(t, `(?m)^waiting +5s +5s `, joined)
	require.Contains(t, show("--config", config, "straggler"), "straggler is switched off by patterns::straggler::enabled in patterndetector")
}

// What the agent refuses is not told as a value in force.
func TestPatternsShowRefusesADurationWithoutAUnit(t *testing.T) {
	config := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(config, []byte("processors:\n  patterndetector:\n  rankjoin: {init_wait: 5}\n"), 0o600))
	got := commandtest.Finish(t, commandtest.New(t, "patterns", "show", "--config", config, "nccl_hang"))
	require.Equal(t, exitInternal, got.Code)
	require.Contains(t, got.Stderr, "agent.yaml:3: processors::rankjoin::init_wait: 5 has no unit: write 30s, 5m or 2h")
}

func TestPatternsUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"which one":       {"patterns"},
		"no such command": {"patterns", "nosuch"},
		"no such pattern": {"patterns", "show", "nosuch"},
		"no name":         {"patterns", "show"},
		"no such drill":   {"drill", "nosuch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, args...))
			require.Equal(t, exitUsage, got.Code, got.Stderr)
		})
	}
}

// Whether all pass, ./patterns tests.
func TestBuiltInStoriesAreRun(t *testing.T) {
	got := commandtest.Finish(t, commandtest.New(t, "patterns", "test", "-run", "^gpu_lost/"))
	require.Equal(t, exitOK, got.Code, "%s%s", got.Stdout, got.Stderr)
	require.Contains(t, got.Stdout, "gpu_lost/testdata/")
}

// ownPattern copies gpu_lost into a folder of a user's own, changed.
func ownPattern(t *testing.T, change func(string) string) string {
	t.Helper()
	dir := t.TempDir()
	lost, err := fs.Sub(patterns.FS(), "gpu_lost")
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(dir, lost))
	file := filepath.Join(dir, "pattern.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("replaces: gpu_lost\n"+change(string(text))), 0o600))
	return dir
}

func TestPatternsTestRunsAUsersOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(string) string
		code   int
		says   string
	}{
		"as it is":       {func(s string) string { return s }, exitOK, "passed"},
		"other words":    {func(s string) string { return strings.Replace(s, "headline: \"GPU", "headline: \"Card", 1) }, exitInternal, "did not come out as wanted"},
		"an unknown key": {func(s string) string { return s + "wihtin: 5m\n" }, exitInternal, `:1: unknown key "wihtin" in a pattern file: did you mean "within"?`},
		"an event of nobody": {func(s string) string { return strings.Replace(s, "logs: gpu.lost", "logs: gpu.lots", 1) }, exitInternal,
			`no event "gpu.lots" is known: did you mean "gpu.lost"?`},
		"an attribute of nobody": {func(s string) string { return strings.Replace(s, `["kernelevents.xid"]`, `["kernelevents.xit"]`, 1) }, exitInternal,
			`no attribute "kernelevents.xit" is known: did you mean "kernelevents.xid"?`},
		"bad OTTL": {func(s string) string { return strings.Replace(s, "where: >-", "where: attributes[ ==", 1) }, exitInternal, "pattern.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, "patterns", "test", ownPattern(t, tt.change)))
			require.Equal(t, tt.code, got.Code, "%s%s", got.Stdout, got.Stderr)
			require.Contains(t, got.Stdout+got.Stderr, tt.says)
		})
	}
}

func TestPatternsTestWithoutStoriesSaysSo(t *testing.T) {
	fails := func(dir string) string {
		got := commandtest.Finish(t, commandtest.New(t, "patterns", "test", dir))
		require.Equal(t, exitInternal, got.Code)
		return got.Stdout + got.Stderr
	}
	require.Contains(t, fails(t.TempDir()), "no pattern file (*.yaml) and no stories (*.txtar): name a folder with a pattern")

	whole := ownPattern(t, func(s string) string { return s })
	require.NoError(t, os.RemoveAll(filepath.Join(whole, "testdata")))
	hint := fails(whole)
	require.Contains(t, hint, "the rules are in order, but there are no stories: write one of each fault and of what only looks like it, as "+filepath.Join(whole, "testdata", "fires.txtar"))
	_, text, found := strings.Cut(hint, "fires.txtar:\n")
	require.True(t, found, hint)
	require.NoError(t, os.Mkdir(filepath.Join(whole, "testdata"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(whole, "testdata", "fires.txtar"), []byte(text), 0o600))
	got := commandtest.Finish(t, commandtest.New(t, "patterns", "test", whole))
	require.Contains(t, got.Stdout, "gpu_lost", "the hint is a story: %s%s", got.Stdout, got.Stderr)

	broken := ownPattern(t, func(s string) string { return s + "wihtin: 5m\n" })
	require.NoError(t, os.RemoveAll(filepath.Join(broken, "testdata")))
	require.Contains(t, fails(broken), `unknown key "wihtin" in a pattern file: did you mean "within"?`)
}

// A story with a name that nobody sends proves nothing, above all one that wants no verdict.
func TestPatternsTestRefusesNamesOfNobodyInStories(t *testing.T) {
	for name, tt := range map[string]struct{ records, says string }{
		"event":              {"resource: {host.name: node-a}\nrecords:\n  - {at: +0s, log: storage.not_respondin}", `:5:20: no event "storage.not_respondin" is known: did you mean "storage.not_responding"?`},
		"metric":             {"records:\n  - {at: +0s, value: 1, metric: hw.gpu.utilisation}", `:4:33: no metric "hw.gpu.utilisation" is known: did you mean "hw.gpu.utilization"?`},
		"attribute":          {"records:\n  - {at: +0s, log: gpu.lost,\n     attributes: {server.adress: filer-1}}", `:5:19: no attribute "server.adress" is known: did you mean "server.address"?`},
		"resource":           {"resource: {host.nam: node-a}\nrecords: []", `:3:12: no attribute "host.nam" is known: did you mean "host.name"?`},
		"resource of record": {"records:\n  - {at: +0s, log: gpu.lost, resource: {host.nam: node-a}}", `:4:41: no attribute "host.nam" is known`},
		"declared elsewhere": {"records:\n  - {at: +0s, log: my.event}", `declares: {events: {my.event: what it is}} in the pattern file`},
		"all are known":      {"resource: {host.name: node-a}\nrecords:\n  - {at: +0s, log: gpu.recovered, attributes: {gpu.id: x}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := ownPattern(t, func(s string) string { return s })
			file := filepath.Join(dir, "testdata", "mine.txtar")
			require.NoError(t, os.WriteFile(file, []byte("All is well.\n-- records.yaml --\n"+tt.records+"\n-- want.yaml --\nverdicts: []\n"), 0o600))
			got := commandtest.Finish(t, commandtest.New(t, "patterns", "test", "--run", "mine", dir))
			if tt.says == "" {
				require.Equal(t, exitOK, got.Code, "%s%s", got.Stdout, got.Stderr)
				return
			}
			require.Equal(t, exitInternal, got.Code, "%s%s", got.Stdout, got.Stderr)
			require.Contains(t, got.Stdout, tt.says)
		})
	}
}

func TestADrillWithoutPrivilegesSaysWhatIsMissing(t *testing.T) {
	cmd := commandtest.New(t, "drill", "xid")
	dropPrivileges(t, cmd)
	got := commandtest.Finish(t, cmd)
	require.Equal(t, exitInternal, got.Code, got.Stdout)
	require.Contains(t, got.Stderr, "CAP_BPF")
	require.Contains(t, got.Stderr, "tracecore bpf-check")
}

func TestPatternsTestReportsLikeGoTest(t *testing.T) {
	whole := ownPattern(t, func(s string) string { return s })
	broken := ownPattern(t, func(s string) string { return strings.Replace(s, "headline: \"GPU", "headline: \"Card", 1) })
	for name, tt := range map[string]struct {
		args []string
		code int
		says []string // regular expressions
	}{
		"all":             {[]string{whole}, exitOK, []string{`(?m)^ok    .*testdata/near_miss\.txtar  \d+\.\d\ds$`, `(?m)^\d+ stories passed  \d+\.\d\ds$`}},
		"one":             {[]string{"-run", "/fires", whole}, exitOK, []string{`(?m)^1 story passed`}},
		"one, other dash": {[]string{whole, "--run=/fires"}, exitOK, []string{`(?m)^1 story passed`}},
		"told":            {[]string{"-v", "-run=/fires", whole}, exitOK, []string{`(?m)^      => gpu_lost \(root_cause, partial, open\): GPU `}},
		"failing":         {[]string{broken}, exitInternal, []string{`(?m)^FAIL  .*\.txtar  \d`, `(?m)^      .*Card`, `(?m)^FAIL  \d+\.\d\ds$`, `\d of \d+ stories did not`}},
		"one of two":      {[]string{whole, broken}, exitInternal, []string{`(?m)^ok  `, `(?m)^FAIL  `}},
		"nothing matches": {[]string{"-run", "nosuch", whole}, exitInternal, []string{`no story of \d+ matches --run nosuch`}},
		"no expression":   {[]string{"-run", "(", whole}, exitUsage, []string{`--run: error parsing regexp`}},
		"nowhere":         {[]string{filepath.Join(whole, "none")}, exitInternal, []string{`name a pattern file or a folder`}},
		"no story":        {[]string{noStory(t)}, exitInternal, []string{`(?m)^FAIL  .*story\.txtar  `, `1 of 1 stories did not`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, append([]string{"patterns", "test"}, tt.args...)...))
			require.Equal(t, tt.code, got.Code, "%s%s", got.Stdout, got.Stderr)
			for _, says := range tt.says {
				require.Regexp(t, says, got.Stdout+got.Stderr)
			}
		})
	}
}

// noStory is a folder with a story that is none.
func noStory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "story.txtar"), []byte("-- something --\n"), 0o600))
	return dir
}

func TestPatternsReferenceIsThePage(t *testing.T) {
	page, err := os.ReadFile("../../../patterns/REFERENCE.md")
	require.NoError(t, err)
	got := commandtest.Finish(t, commandtest.New(t, "patterns", "reference"))
	require.Equal(t, exitOK, got.Code, got.Stderr)
	require.Equal(t, string(page), got.Stdout)
}
