package patterns

import (
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

// TestEveryStoryAgainstEveryPattern runs the stories of all patterns against
// the whole library: what is no fault for one pattern must be none for its
// neighbours.
func TestEveryStoryAgainstEveryPattern(t *testing.T) {
	results, err := story.RunDir(library(t), FS())
	require.NoError(t, err)
	require.NotEmpty(t, results)
	for _, r := range results {
		t.Run(r.Name, func(t *testing.T) {
			require.Empty(t, r.Diff)
		})
	}
}
