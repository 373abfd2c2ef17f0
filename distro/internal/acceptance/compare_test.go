//go:build linux

package acceptance

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// launched is a start of a job of two ranks, each a process that lives until its input ends.
type launched struct {
	launcher *exec.Cmd
	pids     [2]int
	inputs   [2]io.Closer
}

// launch starts a job by a launcher of its own, and returns when both ranks run.
func launch(t *testing.T, job string) launched {
	t.Helper()
	const script = `RANK=0 LOCAL_RANK=0 cat <&3 >/dev/null & echo $!; RANK=1 LOCAL_RANK=1 cat <&4 >/dev/null & echo $!; wait`
	l := launched{launcher: exec.Command("sh", "-c", script)}
	l.launcher.Env = []string{"PATH=" + os.Getenv("PATH"), "WORLD_SIZE=2", "JOB_ID=" + job}
	for rank := range l.inputs {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		defer read.Close()
		t.Cleanup(func() { _ = write.Close() })
		l.inputs[rank] = write
		l.launcher.ExtraFiles = append(l.launcher.ExtraFiles, read)
	}
	said, err := l.launcher.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, l.launcher.Start())
	t.Cleanup(func() { _ = l.launcher.Process.Kill(); _ = l.launcher.Wait() })
	lines := bufio.NewReader(said)
	for rank := range l.pids {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		l.pids[rank], err = strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
	}
	return l
}

// dies ends a rank by a signal.
func (l launched) dies(t *testing.T, rank int, by syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(l.pids[rank], by))
}

// finish lets both ranks return 0, and then the launcher.
func (l launched) finish(t *testing.T) {
	t.Helper()
	for _, input := range l.inputs {
		require.NoError(t, input.Close())
	}
	require.NoError(t, l.launcher.Wait())
}

// TestRunsOfAJobAreCompared: the ranks of a job are real processes. Its first start ends well. A
// rank of the second crashes; the other outlives it, and dies when the third has begun. The third
// ends well beside another agent, which reads from /proc that its ranks began some milliseconds before the
// first agent saw it. They are compared by the ids under which `tracecore jobs` lists them.
func TestRunsOfAJobAreCompared(t *testing.T) {
	privtest.Require(t)
	if testing.Short() || inTestMachine(t) {
		t.Skip("slow: it waits until runs have ended and an agent has started anew")
	}
	u := user{state: t.TempDir(), address: hosttest.FreeAddress(t)}
	a := startAgent(t, u.state, "--set=extensions.history.http.endpoint="+u.address)
	const job = "compared"
	// runs are those that the history has, the newest first, once they are so.
	runs := func(so func(runs []history.Run) bool) []history.Run {
		t.Helper()
		for deadline := time.Now().Add(hosttest.Patience); ; time.Sleep(200 * time.Millisecond) {
			var told history.Jobs
			require.NoError(t, json.Unmarshal([]byte(u.asks(t, well, "jobs", "--job="+job, "-o", "json")), &told))
			if so(told.Runs) {
				return told.Runs
			}
			require.True(t, time.Now().Before(deadline), "%+v", told.Runs)
		}
	}
	begun := func(number int) {
		t.Helper()
		runs(func(all []history.Run) bool { return len(all) == number && all[0].RanksCount == 2 })
	}
	ended := func(r *history.Run, outcome string) bool { return r.EndedCount == 2 && r.Outcome == outcome }

	first := launch(t, job)
	begun(1)
	first.finish(t)
	runs(func(all []history.Run) bool { return ended(&all[0], history.RunSucceeded) })
	second := launch(t, job)
	begun(2)
	second.dies(t, 1, syscall.SIGSEGV)
	third := launch(t, job)
	begun(3)
	second.dies(t, 0, syscall.SIGABRT)
	runs(func(all []history.Run) bool { return ended(&all[1], history.RunFailed) })
	a.Kill()
	startAgent(t, u.state, "--set=extensions.history.http.endpoint="+u.address)
	third.finish(t)
	all := runs(func(all []history.Run) bool { return ended(&all[0], history.RunSucceeded) })

	good, bad, again := all[2].ID, all[1].ID, all[0].ID
	compared := func(a, b string, so ...string) { t.Helper(); u.seesLine(t, so, "compare", a, b) }
	const crash = "was the first of its job to die: SIGSEGV"
	compared(good, bad, crash, "A "+job+" "+good+", 0 incidents", "B "+job+" "+bad+", 1 incident", "rank 1 0 1", "new Rank 1 (")
	compared(bad, good, crash, "rank 1 1 0", "gone Rank 1 (")
	compared(bad, again, crash, "B "+job+" "+again+", 0 incidents", "rank 1 1 0", "gone Rank 1 (")
}

// seesLine is sees for texts whose spaces do not count.
func (u user) seesLine(t *testing.T, texts []string, args ...string) {
	t.Helper()
	u.seesAs(t, func(said string) string { return strings.Join(strings.Fields(said), " ") }, well, texts, args...)
}
