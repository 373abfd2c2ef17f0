//go:build linux

package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/standin"
)

// A shell runs each rank of a job in a loop. A rank is killed, and killed again as soon as its shell has started it anew:
// both deaths are told, as its own. So is a death after a restart of the agent, which keeps which processes were the ranks.
func TestARankThatAShellStartsAgainIsNamedEachTimeItDies(t *testing.T) {
	privtest.Require(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no shell here")
	}
	state := t.TempDir()
	const keeps = "--set=receivers.kernelevents.storage=file_storage"
	a := startAgent(t, state, keeps)
	job := startJob(t, standin.Options{JobID: "loops", Phase: 20 * time.Millisecond, Shell: `while true; do "$0"; sleep 0.1; done`})
	shell := job.PID(2)
	first := childOf(t, shell, 0)
	require.Eventually(t, func() bool { return written(t, state, fmt.Sprintf(`"PID":%d,"ParentPID":%d,`, first, shell)) }, hosttest.Patience, 20*time.Millisecond, "its shell is known as one")

	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	a.await(t, "the first death", about("rank_exit", "pid", strconv.Itoa(first)))
	second := childOf(t, shell, first)
	require.Eventually(t, func() bool { return written(t, state, fmt.Sprintf(`"PID":%d,"ParentPID":%d,`, second, shell)) }, hosttest.Patience, 20*time.Millisecond, "its next life is known")
	a.Kill()

	a = startAgent(t, state, keeps)
	require.NoError(t, syscall.Kill(second, syscall.SIGKILL))
	death := a.await(t, "the second death", about("rank_exit", "pid", strconv.Itoa(second)))
	require.Equal(t, "2", death.Culprit["rank"])
	third := childOf(t, shell, second)
	require.Eventually(t, func() bool { return written(t, state, fmt.Sprintf(`"PID":%d,"ParentPID":%d,`, third, shell)) }, hosttest.Patience, 20*time.Millisecond, "it is a rank")
	require.NoError(t, syscall.Kill(third, syscall.SIGKILL))
	a.await(t, "the third death, before it takes part", about("rank_exit", "pid", strconv.Itoa(third)))
}

// childOf is what a shell runs as its rank, and ran not before.
func childOf(t *testing.T, shell uint32, before int) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell, shell)) // it may have none now
		for text := range strings.FieldsSeq(string(children)) {
			one, _ := strconv.Atoi(text)
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", one)) // it may be gone by now
			if one != before && string(name) != "sleep\n" && string(name) != "bash\n" && len(name) > 0 {
				pid = one
			}
		}
		return pid != 0
	}, hosttest.Patience, 5*time.Millisecond)
	return pid
}
