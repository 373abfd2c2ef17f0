package patterns_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
)

// guideFile finds a file of the guide: its name in backquotes at the end of a paragraph,
// then its content in a block.
var guideFile = regexp.MustCompile("(?s)`(nfs_stuck_rank/[a-z_/.]+)`[^\n]*:\n\n```(?:yaml)?\n(.*?)\n```\n")

// wholeRule finds the rule of the guide that explains the keys.
var wholeRule = regexp.MustCompile("(?s)```yaml\n(id: [^\n]*\nname: disk_gone .*?)\n```\n")

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
}

// TestTheGuideWorksAsWritten writes the files of README.md as a newcomer does, and gets the
// verdict that the guide promises. Its rules do what the tests ask of those of the library.
func TestTheGuideWorksAsWritten(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	dir := t.TempDir()
	written := guideFile.FindAllStringSubmatch(string(readme), -1)
	require.Len(t, written, 2, "a rule and a story")
	for _, file := range written {
		write(t, filepath.Join(dir, file[1]), file[2])
	}
	whole := wholeRule.FindStringSubmatch(string(readme))
	require.NotNil(t, whole, "the rule that explains the keys")
	write(t, filepath.Join(dir, "disk_gone", "pattern.yaml"), whole[1])

	rules, err := patterns.Select(patterns.Selection{Rules: []string{dir}})
	require.NoError(t, err)
	known, err := patterns.Vocabulary()
	require.NoError(t, err)
	results, err := story.RunDir(rules, known, os.DirFS(dir))
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.Empty(t, results[0].Diff)
	require.Len(t, results[0].Verdicts, 2)

	taught := slices.DeleteFunc(slices.Clone(rules), func(r rule.Rule) bool { return r.ID < 1000 })
	require.Len(t, taught, 2)
	for i := range taught {
		r := &taught[i]
		render(t, r, r.Headline.Default, holes, func(string) bool { return false }, func(string, []string) {})
		render(t, r, r.Remedy.Default, breaks, func(string) bool { return false }, func(string, []string) {})
		steps := r.Remedy.Default.Steps(named("NAME"))
		require.NotEmpty(t, steps, "the guide teaches steps")
		for _, step := range steps {
			require.Equal(t, effectOf(step.Command), step.Effect)
		}
	}
}
