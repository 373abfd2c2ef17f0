package patterns

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/story"
)

// guideFile finds a file of the guide: its name in backquotes at the end of a paragraph,
// then its content in a block.
var guideFile = regexp.MustCompile("(?s)`(nfs_stuck_rank/[a-z_/.]+)`[^\n]*:\n\n```(?:yaml)?\n(.*?)\n```\n")

// TestTheGuideWorksAsWritten writes the files of README.md as a newcomer does, and gets the
// verdict that the guide promises.
func TestTheGuideWorksAsWritten(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	dir := t.TempDir()
	written := guideFile.FindAllStringSubmatch(string(readme), -1)
	require.Len(t, written, 2, "a rule and a story")
	for _, file := range written {
		path := filepath.Join(dir, file[1])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(file[2]+"\n"), 0o600))
	}
	rules, err := Select(Selection{Rules: []string{dir}})
	require.NoError(t, err)
	results, err := story.RunDir(rules, vocabulary(t), os.DirFS(dir))
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.Empty(t, results[0].Diff)
	require.Len(t, results[0].Verdicts, 2)
}
