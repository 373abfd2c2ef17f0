package patterndetectorprocessor

import (
	"io/fs"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/story"
)

// Detectors of one process share compiled rules. The race detector watches two that
// run stories of every pattern at the same time.
func TestDetectorsRunSideBySide(t *testing.T) {
	stories, err := fs.Glob(patterns.FS(), "*/testdata/*out_of_order*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, stories)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			rules, err := patterns.Library()
			assert.NoError(t, err)
			for _, name := range stories {
				archive, err := fs.ReadFile(patterns.FS(), name)
				assert.NoError(t, err)
				result, err := story.Run(rules, nil, name, archive)
				assert.NoError(t, err)
				assert.True(t, result.Passed(), "%s:\n%s", name, result.Diff)
			}
		})
	}
	group.Wait()
}
