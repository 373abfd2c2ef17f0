package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
)

// TestOperators runs stories that bring their own rules: one file for each
// operator and each rule of arbitration.
func TestOperators(t *testing.T) {
	names, err := filepath.Glob("testdata/operators/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			rules, archive := ownRules(t, name)
			r, err := story.Run(rules, nil, name, archive)
			require.NoError(t, err)
			require.Empty(t, r.Diff)
		})
	}
}

// ownRules splits an archive into its rules and the story.

func ownRules(t *testing.T, name string) ([]rule.Rule, []byte) {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	archive := txtar.Parse(content)
	var rules []rule.Rule
	rest := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if !strings.HasPrefix(f.Name, "rule") {
			rest.Files = append(rest.Files, f)
			continue
		}
		r, err := rule.Parse(f.Name, f.Data)
		require.NoError(t, err)
		rules = append(rules, r)
	}
	return rules, txtar.Format(rest)
}
