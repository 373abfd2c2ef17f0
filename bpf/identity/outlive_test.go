//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// Of a wrapper and the process that takes part in the job, the end of the second is the rank's.
func TestARankOutlivesItsWrapper(t *testing.T) {
	const kill, segv = 9, 11
	begin := func(at float64, pid, parent uint32, comm string) line {
		return line{at, "exec", pid, parent, 0, comm, rank3()}
	}
	end := func(at float64, pid, parent, status uint32) line {
		return line{at, "exit", pid, parent, status, "x", nil}
	}
	joins := func(at float64, pid uint32) line { return line{at: at, does: "joins", pid: pid} }
	trains := func(at float64, pid uint32) line { return line{at: at, does: "trains", pid: pid} }
	shell, python := begin(0, 10, 1, "bash"), begin(1, 20, 10, "torch")
	for name, tc := range map[string]struct {
		lines []line
		want  string // who was told as what, in order

		outlived bool // its wrapper
	}{
		"the shell is killed, and the rank trains on": {
			[]line{shell, python, joins(30, 20), end(60, 10, 1, kill)}, "10 helper", false,
		},
		"later the rank crashes": {
			[]line{shell, python, joins(30, 20), end(60, 10, 1, kill), end(90, 20, 1, segv)}, "10 helper, 20 rank of 10", true,
		},
		"the shell ends well and leaves the rank in the background": {
			[]line{shell, python, joins(30, 20), end(60, 10, 1, 0), end(90, 20, 1, segv)}, "10 helper, 20 rank of 10", true,
		},
		"both are killed, the shell first": {
			[]line{shell, python, joins(30, 20), end(60, 10, 1, kill), end(60.001, 20, 1, kill)}, "10 helper, 20 rank of 10", true,
		},
		"both are killed, the rank first": {
			[]line{shell, python, joins(30, 20), end(60, 20, 10, kill), end(60.001, 10, 1, kill)}, "20 rank of 10, 10 helper", false,
		},
		"a wrapper in a wrapper is killed, and the outer one passes that on": {
			[]line{shell, begin(0.5, 11, 10, "sh"), begin(1, 20, 11, "torch"), joins(30, 20), end(60, 11, 10, kill), end(60.01, 10, 1, (128+kill)<<8), end(90, 20, 1, segv)},
			"11 helper, 10 helper, 20 rank of 10", true,
		},
		"of two wrappers the outer one is killed, then the inner one": {
			[]line{shell, begin(0.5, 11, 10, "sh"), begin(1, 20, 11, "torch"), joins(30, 20), end(60, 10, 1, kill), end(70, 11, 1, kill), end(90, 20, 1, segv)},
			"10 helper, 11 helper, 20 rank of 10", true,
		},
		"under a launch script, which goes on to tidy up": {
			[]line{
				{0, "exec", 5, 1, 0, "bash", nil}, begin(1, 10, 5, "sh"), begin(2, 20, 10, "torch"), joins(30, 20), end(60, 10, 5, kill), begin(61, 30, 5, "rm"), end(61.1, 30, 5, 1<<8),
				end(90, 20, 1, segv),
			},
			"10 helper, 30 helper, 20 rank of 10", true,
		},
		"its program is executed anew": {
			[]line{shell, python, joins(30, 20), end(60, 10, 1, kill), begin(70, 20, 1, "torch"), end(90, 20, 1, segv)}, "10 helper, 20 rank of 10", true,
		},

		"a launcher is killed, and its child trains": {
			[]line{begin(0, 10, 1, "python3"), python, trains(3, 20), end(4, 10, 1, kill), end(90, 20, 1, segv)}, "10 helper, 20 rank of 10", true,
		},
		"the same, and the child takes part later": {
			[]line{begin(0, 10, 1, "python3"), python, trains(3, 20), end(4, 10, 1, kill), joins(30, 20), end(90, 20, 1, segv)}, "10 helper, 20 rank of 10", true,
		},
		"a launcher fails with its child, which trained": {
			[]line{begin(0, 10, 1, "python3"), python, trains(3, 20), end(60, 20, 10, segv), end(60.5, 10, 1, 1<<8)}, "20 inherited, 10 rank of 10", false,
		},
		"a rank that trains is killed, and what it has started trains, too": {
			[]line{begin(0, 10, 1, "python"), python, trains(3, 20), end(4, 10, 1, kill), end(90, 20, 1, segv)}, "10 rank of 10, 20 inherited", false,
		},

		"nothing shows that the child takes part": {
			[]line{shell, python, end(60, 10, 1, kill), end(90, 20, 1, 0)}, "10 rank of 10, 20 inherited", false,
		},
		"the child takes part later": {
			[]line{shell, python, begin(1.5, 21, 20, "x"), end(2, 10, 1, kill), joins(30, 20), end(89, 21, 20, segv), end(90, 20, 1, segv)},
			"10 rank of 10, 21 inherited, 20 rank of 20", false,
		},
		"two take part later": {
			[]line{shell, python, begin(1.5, 21, 20, "x"), end(2, 10, 1, kill), joins(30, 20), joins(31, 21), end(89, 21, 20, segv), end(90, 20, 1, segv)},
			"10 rank of 10, 21 inherited, 20 rank of 20", false,
		},
		"a rank crashes, and its worker has its connections for a while": {
			[]line{shell, python, begin(2, 21, 20, "x"), joins(30, 20), joins(31, 21), end(60, 20, 10, segv), end(60.01, 10, 1, (128+segv)<<8), end(65, 21, 1, 0)},
			"20 rank of 10, 10 helper, 21 inherited", false,
		},
		"the same, and its wrapper says nothing of it": {
			[]line{shell, python, begin(2, 21, 20, "x"), joins(30, 20), joins(31, 21), end(60, 20, 10, segv), end(60.01, 10, 1, 5<<8), end(65, 21, 1, 0)},
			"20 rank of 10, 10 helper, 21 inherited", false,
		},
		"a rank without a wrapper crashes, and a program that it runs takes part in another job": {
			[]line{python, begin(2, 21, 20, "x"), joins(30, 20), joins(31, 21), end(60, 20, 1, segv), end(65, 21, 1, 0)}, "20 rank of 20, 21 inherited", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1", opts: Options{MaxProcesses: 100}}
			tracker.launches = newLaunches(func(e Exit) {
				text := fmt.Sprint(e.PID, " ", told(e))
				if told(e) == "rank" {
					text += fmt.Sprint(" of ", e.RankPID)
					require.Equal(t, tc.outlived, e.Wrapper != nil, "%+v", e)
				}
				if e.Wrapper != nil {
					require.Equal(t, []any{uint32(10), tc.outlived}, []any{e.Wrapper.PID, e.Wrapper.Outlived})
				}
				got = append(got, text)
			}, nobody)
			var all []signalledLine
			for _, l := range tc.lines {
				all = append(all, signalledLine{line: l})
			}
			playInto(tracker, all)
			tracker.launches.expire(scriptNS(200))
			require.Equal(t, tc.want, strings.Join(got, ", "))
		})
	}
}

// The end of the first process of a container is the end of all that is in it. The process that takes part is another
// user's here: nobody's wrapper is known by that of somebody else.
func TestNothingOutlivesTheFirstProcessOfAContainer(t *testing.T) {
	for name, tc := range map[string]struct {
		parent string // its container
		want   string
	}{
		"it is the first":            {"", "rank"},
		"it is one within":           {"a", "helper"},
		"it is started from another": {"b", "rank"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := map[uint32]string{}
			tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1", opts: Options{MaxProcesses: 100}}
			tracker.launches = newLaunches(func(e Exit) { ends[e.PID] = told(e) }, nobody)
			put := func(pid, parent uint32, container, domain string, l launch) {
				var above *record
				if parent > 1 {
					above = tracker.table.at(parent, scriptNS(1))
				}
				tracker.put(facts{pid: pid, parentPID: parent, startNS: scriptNS(1), comm: "x", launch: l, home: home{membership{Path: "/x", ContainerID: container}, domain, ""}}, above)
			}
			put(5, 1, tc.parent, "user 0", noLaunch())
			put(10, 5, "a", "user 0", parseEnviron(block(rank3()...)))
			put(20, 10, "a", "user 1000", parseEnviron(block(rank3()...)))
			tracker.Joined(Process{PID: 20, StartNS: scriptNS(1)})
			tracker.onExit(&event{kind: kindExit, pid: 10, parentPID: 5, startNS: scriptNS(1), timeNS: scriptNS(60), status: 9, comm: "x"})
			require.Equal(t, tc.want, ends[10])
		})
	}
}

// What has libraries of a training mapped is the rank, whatever it has started.
func TestNothingOutlivesATraining(t *testing.T) {
	for name, tc := range map[string]struct{ maps, want string }{
		"a training": {"/venv/torch/lib/libtorch_cpu.so", "rank"},
		"a wrapper":  {"/lib/libc.so.6", "helper"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "10"), 0o750))
			require.NoError(t, os.WriteFile(filepath.Join(root, "10", "maps"), []byte("7f0000000000-7f0000001000 r-xp 00000000 fd:01 77 "+tc.maps+"\n"), 0o600))
			tracker := &Tracker{proc: newReader(root), table: newTable(100, DefaultRetention), host: "n1", opts: Options{MaxProcesses: 100}}
			ends := map[uint32]string{}
			tracker.launches = newLaunches(func(e Exit) { ends[e.PID] = told(e) }, nobody)
			playInto(tracker, []signalledLine{
				{line: line{0, "exec", 10, 1, 0, "x", rank3()}}, {line: line{1, "exec", 11, 10, 0, "sh", rank3()}}, {line: line{2, "exec", 20, 11, 0, "x", rank3()}},
				{line: line{at: 30, does: "joins", pid: 20}}, {line: line{60, "exit", 10, 1, 11, "x", nil}},
			})
			require.Equal(t, tc.want, ends[10])
		})
	}
}

// A real shell is killed, and its child is not.
func TestARealShellIsKilledAndItsRankLivesOn(t *testing.T) {
	privtest.Require(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no shell here")
	}
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	shell := exec.Command("bash", "-c", "sleep 600; true")
	shell.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "RANK=3", "WORLD_SIZE=8", "JOB_ID=outlive"}
	require.NoError(t, shell.Start())
	pid := uint32(shell.Process.Pid)
	var rank Process
	find := func() bool {
		for _, p := range tracker.Ranks() {
			if p.RankPID == pid && p.PID != pid && p.Comm == "sleep" {
				rank = p
			}
		}
		return rank.PID != 0
	}
	require.Eventually(t, find, hosttest.Patience, time.Millisecond)
	t.Cleanup(func() { _ = unix.Kill(int(rank.PID), unix.SIGKILL) })
	tracker.Joined(rank)
	require.NoError(t, unix.Kill(int(pid), unix.SIGKILL))
	_ = shell.Wait()
	require.Equal(t, "helper", told(exitOf(t, exits, pid)))
	after, known := tracker.Lookup(rank.PID, 0, time.Now())
	require.True(t, known)
	require.Equal(t, []any{3, false, pid}, []any{after.Rank, after.Inherited, after.RankPID})

	require.NoError(t, unix.Kill(int(rank.PID), unix.SIGKILL))
	e := exitOf(t, exits, rank.PID)
	require.Equal(t, []any{"rank", int(unix.SIGKILL), pid}, []any{told(e), e.Signal, e.RankPID})
}
