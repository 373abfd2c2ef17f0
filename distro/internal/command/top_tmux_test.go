package command

import (
	"fmt"
	"os"
	"os/exec"
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
	}, hosttest.Patience, 100*time.Millisecond)
}

// TestMuteInTop: what is typed there is told to the agent, which says that it is muted.
func TestMuteInTop(t *testing.T) {
	dir, err := os.MkdirTemp("", "h") // a socket's address is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	n := newNode(t, filepath.Join(dir, "state"))
	n.start(t)
	n.alarm(t, "node-1")
	command := func(args ...string) *exec.Cmd {
		cmd := commandtest.New(t, append(args, "--address", n.history)...)
		cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR="+n.state)
		return cmd
	}
	terminal := toptest.Show(t, command("top"), 120, 30)
	terminal.Await("alarm on node-1")
	terminal.Press("Enter")
	terminal.Await("m mute")
	terminal.Press("m")
	terminal.Await("mute for how long, and why")
	terminal.Press("9999h OPS-4711", "Enter")
	terminal.Await("not muted: for 9999h0m0s: a mute has an end")
	terminal.Press("m", "2h OPS-4711", "Enter")
	terminal.Await(fmt.Sprintf("UTC by uid %d: OPS-4711", os.Getuid()))
	require.Contains(t, commandtest.Finish(t, command("incidents")).Stdout, "muted")
	terminal.Press("x") // the note gives way to the keys
	terminal.Await("m unmute")
	terminal.Press("m")
	terminal.Await("told again from now on")
	require.NotContains(t, commandtest.Finish(t, command("incidents")).Stdout, "muted")
}
