package command

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/distro/internal/toptest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// TestTopOfARecordingInTmux: recordings of any size go the whole way, from the file through
// the patterns onto a terminal.
func TestTopOfARecordingInTmux(t *testing.T) {
	for _, ranks := range []int{8, 64, 1024, 16384} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			if ranks > 64 {
				hosttest.NotShort(t, "the patterns need seconds for so many ranks")
			}
			recording := toptest.Checkpoint(ranks).File(t)
			terminal := toptest.Show(t, commandtest.New(t, "top", recording), 80, 24)
			terminal.Await("enter incident")
			goldenScreen(t, terminal, fmt.Sprintf("top-%d-home-80x24", ranks))
			terminal.Resize(200, 60)
			terminal.Await("INCIDENT")
			goldenScreen(t, terminal, fmt.Sprintf("top-%d-home-200x60", ranks))
			terminal.Press("r", "n")
			terminal.Await("under the cursor")
			goldenScreen(t, terminal, fmt.Sprintf("top-%d-ranks-200x60", ranks))
			terminal.Resize(80, 24)
			terminal.Await("enter rank")
			goldenScreen(t, terminal, fmt.Sprintf("top-%d-ranks-80x24", ranks))
		})
	}
}

// goldenScreen compares what stands on a terminal with a file.
func goldenScreen(t *testing.T, terminal *toptest.Terminal, name string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *updateGoldens {
		time.Sleep(time.Second) // a screen comes in pieces
		require.NoError(t, os.WriteFile(path, []byte(terminal.Screen()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, string(want), terminal.Screen(), "go test -update writes it")
	}, time.Minute, 100*time.Millisecond)
}
