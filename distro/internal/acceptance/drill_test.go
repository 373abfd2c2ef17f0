//go:build linux

package acceptance

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// TestDrillsShowTheirVerdictAndItsDelay runs each drill as an operator does.
func TestDrillsShowTheirVerdictAndItsDelay(t *testing.T) {
	privtest.Require(t)
	for name, says := range map[string][]string{
		"xid":    {"ffff:ff:1f.0", "rank 3", "job tracecore-drill", "SIGABRT", "gpu_lost (18)"},
		"oom":    {"rank 3", "job tracecore-drill", "32 MiB", "host_oom_kill (12)"},
		"fuse":   {"rank 3", "job tracecore-drill", "is stopped", "fuse_stall (15)"},
		"socket": {"rank 1", "job tracecore-drill", "its process is stopped", "nccl_socket_stall (17)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := commandtest.Finish(t, commandtest.New(t, "drill", name))
			require.Equal(t, 0, got.Code, "%s%s", got.Stdout, got.Stderr)
			said := strings.Join(strings.Fields(got.Stdout), " ") // lines break where names let them
			for _, want := range append(says, "This is a drill", "verdict after", "DRILL, ") {
				require.Contains(t, said, want)
			}
		})
	}
}

// TestInterruptedDrillsLeaveNothing ends each drill while its fault lasts: by
// Ctrl-C, and by a kill. Of small tests, one drill of each kind of child dies by a kill.
func TestInterruptedDrillsLeaveNothing(t *testing.T) {
	privtest.Require(t)
	for name, state := range map[string]string{"xid": "", "oom": "", "fuse": "T", "socket": "T"} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			if hosttest.Small() && (signal == syscall.SIGINT || name == "xid" || name == "socket") {
				continue
			}
			t.Run(fmt.Sprint(name, " ", signal), func(t *testing.T) {
				t.Parallel()
				interrupt(t, name, state, signal)
			})
		}
	}
}

// interrupt sends a drill a signal once one of its children is in a state, and
// sees all of them gone. A drill that ended before is as good.
func interrupt(t *testing.T, name, state string, signal syscall.Signal) {
	stdout, stderr := commandtest.NewOutput(t), commandtest.NewOutput(t)
	cmd := commandtest.New(t, "drill", name)
	cmd.Stdout, cmd.Stderr = stdout.File(), stderr.File()
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	made := map[process]bool{}
	for found := false; !found; {
		looked := time.Now()
		found = isClosed(ended)
		begun := strings.Contains(stdout.String(), "This is a drill")
		for p, now := range descendants(t, cmd.Process.Pid) {
			made[p] = true
			found = found || begun && (state == "" || now == state)
		}
		time.Sleep(10 * time.Since(looked)) // in an emulated machine looking takes most of a CPU from the drill
	}
	_ = cmd.Process.Signal(signal) // it may have ended
	require.Eventually(t, func() bool { return isClosed(ended) }, hosttest.Patience, 20*time.Millisecond, "%s%s", stdout, stderr)
	if code := cmd.ProcessState.ExitCode(); code == 0 {
		require.Contains(t, stdout.String(), "verdict after", "an interrupted drill does not end well")
	}
	require.Eventually(t, func() bool { return !anyAlive(made) }, hosttest.Patience, 20*time.Millisecond, "children live on: %v\n%s%s", made, stdout, stderr)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), "tracecore-drill")
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// process is a pid and when it began, so that a pid that is given again is
// another process.
type process struct{ pid, start string }

// stat is a part of /proc/<pid>/stat: state, parent and start
// (proc(5), fields 3, 4 and 22; the name before them may hold anything).
func stat(pid string) (state, parent, start string, ok bool) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", "", "", false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return "", "", "", false
	}
	return fields[0], fields[1], fields[19], true
}

// descendants are the living processes below pid, with their states.
func descendants(t *testing.T, pid int) map[process]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	parents, all := map[string]string{}, map[string]process{}
	states := map[process]string{}
	for _, e := range entries {
		if e.Name()[0] < '1' || e.Name()[0] > '9' {
			continue
		}
		if state, parent, start, ok := stat(e.Name()); ok {
			p := process{e.Name(), start}
			parents[e.Name()], all[e.Name()], states[p] = parent, p, state
		}
	}
	below := map[process]string{}
	for child, p := range all {
		for at := parents[child]; at != "" && at != "0"; at = parents[at] {
			if at == strconv.Itoa(pid) {
				below[p] = states[p]
			}
		}
	}
	return below
}

func anyAlive(processes map[process]bool) bool {
	for p := range processes {
		if state, _, start, ok := stat(p.pid); ok && start == p.start && state != "Z" {
			return true
		}
	}
	return false
}
