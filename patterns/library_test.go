package patterns

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
)

func library(t *testing.T) []rule.Rule {
	t.Helper()
	rules, err := Library()
	require.NoError(t, err)
	require.NoError(t, rule.Check(rules))
	return rules
}

func vocabulary(t *testing.T) *rule.Vocabulary {
	t.Helper()
	v, err := Vocabulary()
	require.NoError(t, err)
	return v
}

// TestEveryStoryAgainstEveryPattern runs the stories of all patterns against
// the whole library: what is no fault for one pattern must be none for its
// neighbours.
func TestEveryStoryAgainstEveryPattern(t *testing.T) {
	results, err := story.RunDir(library(t), vocabulary(t), FS())
	require.NoError(t, err)
	require.NotEmpty(t, results)
	for _, r := range results {
		t.Run(r.Name, func(t *testing.T) {
			require.Empty(t, r.Diff)
			require.Zero(t, r.Stats.EvalErrors, r.Stats.EvalError)
		})
	}
}

// TestExamplesTellTheirStories runs the rules that a site would write, beside the
// library, as `tracecore patterns test` does.
func TestExamplesTellTheirStories(t *testing.T) {
	own, err := LoadPaths("examples")
	require.NoError(t, err)
	require.Len(t, own, 3)
	rules := append(library(t), own...)
	require.NoError(t, rule.Check(rules))
	results, err := story.RunDir(rules, vocabulary(t), os.DirFS("examples"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(results), 9)
	for _, r := range results {
		t.Run(r.Name, func(t *testing.T) { require.Empty(t, r.Diff) })
	}
}
