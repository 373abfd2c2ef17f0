//go:build linux

package acceptance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/held"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// kills is how often an agent is started and killed. `make attack` takes fifty.
var kills = flag.Int("kills", 1, "how often TestAKilledAgentLeavesNothing kills an agent")

// children are the processes that a process started.
func children(t *testing.T, pid int) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		pids = append(pids, strings.Fields(string(text))...)
	}
	return pids
}

func running(pids []string) (there []string) {
	for _, pid := range pids {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			there = append(there, "process "+pid)
		}
	}
	return there
}

// TestAKilledAgentLeavesNothing: neither programs in the kernel, nor maps, nor processes.
func TestAKilledAgentLeavesNothing(t *testing.T) {
	privtest.Require(t)
	state := t.TempDir()
	for range *kills {
		a := startAgent(t, state)
		pid := a.Cmd.Process.Pid
		var objects held.Objects
		require.Eventually(t, func() bool { // probes open one after the other
			var err error
			objects, err = held.By(pid)
			return err == nil && len(objects.Programs) >= 6 && len(objects.Maps) >= 6
		}, hosttest.Patience, 20*time.Millisecond, "%s", a.Stderr)
		require.NotEmpty(t, objects.Still(), "what lives is seen")
		helpers := children(t, pid)
		a.Kill()
		var still []string
		require.Eventually(t, func() bool { // the kernel frees them behind a grace period
			still = append(objects.Still(), running(helpers)...)
			return len(still) == 0
		}, hosttest.Patience, 20*time.Millisecond, "%v", &still)
	}
}
