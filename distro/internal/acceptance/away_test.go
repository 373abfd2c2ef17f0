//go:build linux

package acceptance

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/held"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// rankVariable makes this binary a rank that ends with status 3 once its standard input does.
const rankVariable = "TRACECORE_ACCEPTANCE_RANK"

func playRank() {
	if os.Getenv(rankVariable) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}
}

// startMortal returns a rank and what ends it.
func startMortal(t *testing.T, rank int) (pid int, end func()) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{rankVariable + "=1", fmt.Sprintf("RANK=%d", rank), "WORLD_SIZE=8", "JOB_ID=away"}
	stdin, err := c.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c.Process.Pid, func() {
		_ = stdin.Close()
		_ = c.Wait()
	}
}

func pinned(root string) []string {
	return []string{"--set=extensions.identity.pin=" + root, "--set=receivers.oomkill.pin=" + root}
}

// An agent is killed; a rank dies, another is killed for want of memory; the next agent names
// both, with the time of their deaths. What the killed agent has left is what it pinned, and
// `tracecore unpin` removes it.
func TestDeathsWhileNoAgentRanAreNamedByTheNext(t *testing.T) {
	privtest.Require(t)
	state, root := t.TempDir(), filepath.Join(privtest.BPFFS(t), "tracecore")
	pid, end := startMortal(t, 4)
	first := startAgent(t, state, pinned(root)...)
	objects, err := held.By(first.Cmd.Process.Pid)
	require.NoError(t, err)
	first.Kill()

	before := time.Now()
	end()
	victim, err := oomkill.Drill(t.Context(), oomkill.DrillOptions{Env: []string{"RANK=5", "WORLD_SIZE=8", "JOB_ID=oom"}})
	require.NoError(t, err)
	after := time.Now()

	second := startAgent(t, state, pinned(root)...)
	death := second.await(t, "the death", about("rank_exit", "pid", strconv.Itoa(pid)))
	require.Equal(t, "4", death.Culprit["rank"])
	require.Equal(t, "away", death.Culprit["job"])
	kill := second.await(t, "the kill", about("host_oom_kill", "pid", strconv.Itoa(int(victim.PID))))
	require.Equal(t, "5", kill.Culprit["rank"])
	for _, v := range []verdict.Verdict{death, kill} {
		require.WithinRange(t, v.Onset, before, after, v.Headline)
	}

	// With the pins, no more outlives an agent than rings, links and what they hang on.
	more, err := held.By(second.Cmd.Process.Pid)
	require.NoError(t, err)
	second.Kill()
	sets, err := filepath.Glob(filepath.Join(root, "*", "*", "ring"))
	require.NoError(t, err)
	require.Len(t, sets, 2, "identity and oomkill, of the second alone")
	out := commandtest.Finish(t, commandtest.New(t, "unpin", "--folder="+root))
	require.Zero(t, out.Code, out.Stderr)
	require.Equal(t, fmt.Sprintf("removed the pins of 2 probes in %s\n", root), out.Stdout)
	var still []string
	require.Eventually(t, func() bool { // the kernel frees them behind a grace period
		still = append(objects.Still(), more.Still()...)
		return len(still) == 0
	}, hosttest.Patience, 20*time.Millisecond, "%v", &still)
	out = commandtest.Finish(t, commandtest.New(t, "unpin", "--folder="+root))
	require.Zero(t, out.Code, out.Stderr)
	require.Equal(t, fmt.Sprintf("nothing to remove in %s\n", root), out.Stdout)
}

// Nothing is pinned. The agent is killed, and a rank dies before the next one starts, of which the others die: that
// rank is named, though nobody saw how it ended.
func TestARankThatDiesUnseenIsNamedByTheNextAgent(t *testing.T) {
	privtest.Require(t)
	state := t.TempDir()
	var pids [3]int
	var ends [3]func()
	for rank := range pids {
		pids[rank], ends[rank] = startMortal(t, rank)
	}
	const keeps = "--set=receivers.kernelevents.storage=file_storage"
	first := startAgent(t, state, keeps)
	for _, pid := range pids {
		require.Eventually(t, func() bool { return written(t, state, fmt.Sprintf(`"PID":%d,`, pid)) }, hosttest.Patience, 100*time.Millisecond)
	}
	first.Kill()
	before := time.Now()
	ends[2]()

	second := startAgent(t, state, keeps)
	ends[0]()
	ends[1]()
	death := second.await(t, "the death", about("rank_exit", "pid", strconv.Itoa(pids[2])))
	require.Equal(t, fmt.Sprintf("rank 2 (exe, pid %d) on %s ended while no agent watched, before others of its job died: how it ended is not known", pids[2], death.Culprit["host"]), death.Headline)
	require.Equal(t, verdict.Partial, death.Confidence)
	require.True(t, death.Onset.After(before))
}

// written reports whether a file of the folder has that text.
func written(t *testing.T, folder, text string) (found bool) {
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			content, _ := os.ReadFile(path) // it may be gone by now
			found = found || bytes.Contains(content, []byte(text))
		}
		return nil
	}))
	return found
}

// A relative path would name another folder in each working directory.
func TestUnpinWantsAWholePath(t *testing.T) {
	out := commandtest.Finish(t, commandtest.New(t, "unpin", "--folder=tracecore"))
	require.Equal(t, 2, out.Code)
	require.Contains(t, out.Stderr, "give the whole path")
}
