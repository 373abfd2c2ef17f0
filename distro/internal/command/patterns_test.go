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

func TestBuiltInStoriesPass(t *testing.T) {
	got := commandtest.Finish(t, commandtest.New(t, "patterns", "test"))
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
	require.NoError(t, os.WriteFile(file, []byte(change(string(text))), 0o600))
	return dir
}

func TestPatternsTestRunsAUsersOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(string) string
		code   int
		says   string
	}{
		"as it is":       {func(s string) string { return s }, exitOK, "stories passed"},
		"other words":    {func(s string) string { return strings.Replace(s, "headline: \"GPU", "headline: \"Card", 1) }, exitInternal, "did not come out as wanted"},
		"an unknown key": {func(s string) string { return strings.Replace(s, "within: 5m", "wihtin: 5m", 1) }, exitInternal, "pattern.yaml:"},
		"bad OTTL":       {func(s string) string { return strings.Replace(s, "where: >-", "where: attributes[ ==", 1) }, exitInternal, "pattern.yaml:"},
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
	got := commandtest.Finish(t, commandtest.New(t, "patterns", "test", t.TempDir()))
	require.Equal(t, exitInternal, got.Code)
	require.Contains(t, got.Stderr, "no stories")
}

func TestADrillWithoutPrivilegesSaysWhatIsMissing(t *testing.T) {
	cmd := commandtest.New(t, "drill", "xid")
	dropPrivileges(t, cmd)
	got := commandtest.Finish(t, cmd)
	require.Equal(t, exitInternal, got.Code, got.Stdout)
	require.Contains(t, got.Stderr, "CAP_BPF")
	require.Contains(t, got.Stderr, "tracecore bpf-check")
}
