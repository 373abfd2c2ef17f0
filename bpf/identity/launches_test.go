//go:build linux && (amd64 || arm64)

package identity

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/privtest"
)

// told is what an exit is told as.
func told(e Exit) string {
	switch {
	case e.Inherited:
		return "inherited"
	case e.Helper:
		return "helper"
	default:
		return "rank"
	}
}

// nobody is asked to end.
func nobody(*record, uint64) bool { return false }

// line is one event of a script of processes: pid 10 is the launch script, which has no
// rank, 11 a subshell of it.
type line struct {
	at          float64
	does        string // exec, exit, joins, raises
	pid, parent uint32
	status      uint32
	comm        string
	environ     []string
}

// play feeds the lines, then lets the time pass that is given, and returns who was told as
// what.
func play(t *testing.T, lines []line, until float64) map[uint32]string {
	t.Helper()
	out := map[uint32]string{}
	tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1"}
	tracker.launches = newLaunches(func(e Exit) { out[e.PID] = told(e) }, nobody)
	var all []signalledLine
	for _, l := range lines {
		all = append(all, signalledLine{line: l})
	}
	playInto(tracker, all)
	tracker.launches.expire(scriptNS(until))
	return out
}

// signalledLine is the exit of a process that was sent signals, or its start with arguments.
type signalledLine struct {
	line
	signals   *signals
	arguments []string
}

// scriptNS is the boot clock at a line.
func scriptNS(at float64) uint64 { return uint64((at + 100) * 1e9) }

// inOrder sorts lines by their time.
func inOrder(lines []signalledLine) []signalledLine {
	slices.SortStableFunc(lines, func(a, b signalledLine) int { return cmp.Compare(a.at, b.at) })
	return lines
}

func playInto(tracker *Tracker, lines []signalledLine) {
	began := map[uint32]float64{}
	for _, l := range lines {
		if _, known := began[l.pid]; !known {
			began[l.pid] = l.at
		}
		e := event{pid: l.pid, parentPID: l.parent, startNS: scriptNS(began[l.pid]), timeNS: scriptNS(l.at), status: l.status, comm: l.comm, whole: true, environ: block(l.environ...), signals: l.signals}
		tracker.launches.expire(e.timeNS)
		if l.does == "raises" {
			tracker.Raised(Process{PID: l.pid, StartNS: e.startNS})
		} else if l.does == "joins" {
			tracker.Joined(Process{PID: l.pid, StartNS: e.startNS})
		} else if l.does == "trains" {
			tracker.Trains(Process{PID: l.pid, StartNS: e.startNS})
		} else if l.does == "exec" {
			f := facts{pid: e.pid, parentPID: e.parentPID, startNS: e.startNS, comm: e.comm, launch: parseEnviron(e.environ), arguments: l.arguments}
			r := tracker.put(f, tracker.parent(e.parentPID, e.timeNS, maxAncestors))
			r.work = map[string]work{"python": training, "wait": otherWork, "stage": otherWork, "rsync": otherWork}[l.comm]
		} else {
			e.kind = kindExit
			tracker.onExit(&e)
		}
	}
}

func TestWhatALaunchScriptRunsIsNoRank(t *testing.T) {
	script := line{0, "exec", 10, 1, 0, "bash", nil}
	again := func(attempt int) []string {
		return append(rank3(), fmt.Sprintf("TORCHELASTIC_RESTART_COUNT=%d", attempt))
	}
	run := func(at, lived float64, pid uint32, status uint32) []line {
		return []line{{at, "exec", pid, 10, 0, "x", rank3()}, {at + lived, "exit", pid, 10, status, "x", nil}}
	}
	named := func(comm string, at, lived float64, pid uint32, status uint32) []line {
		return []line{{at, "exec", pid, 10, 0, comm, rank3()}, {at + lived, "exit", pid, 10, status, comm, nil}}
	}
	of := func(parts ...[]line) (all []line) {
		all = []line{script}
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	end := func(at float64, status uint32) []line { return []line{{at, "exit", 10, 1, status, "bash", nil}} }
	for name, tc := range map[string]struct {
		lines []line
		until float64
		want  map[uint32]string
	}{
		"grep and ls fail, then the training runs and fails": {
			of(run(1, 0.002, 20, 1<<8), run(1.01, 0.002, 21, 2<<8), run(1.02, 300, 22, 1<<8)), 302,
			map[uint32]string{20: "helper", 21: "helper", 22: "rank"},
		},
		"the training dies at its import": {of(run(1, 0.3, 20, 1<<8)), 3, map[uint32]string{20: "rank"}},
		"it dies so after a grep that failed": {
			of(run(1, 0.002, 20, 1<<8), run(1.01, 0.3, 21, 1<<8)), 3, map[uint32]string{20: "helper", 21: "rank"},
		},
		"it dies so, and the script cleans up and ends well": {
			of(run(1, 0.3, 20, 1<<8), run(1.31, 0.002, 21, 0), end(1.32, 0)), 3, map[uint32]string{20: "rank", 21: "helper"},
		},
		"set -e: a command fails, and so does the script": {of(run(1, 0.002, 20, 1<<8), end(1.01, 1<<8)), 1.01, map[uint32]string{20: "rank"}},
		"a short training that ends well": {
			of(run(1, 0.002, 20, 1<<8), run(1.01, 0.2, 21, 0), end(1.22, 0)), 1.3, map[uint32]string{20: "helper", 21: "rank"},
		},
		"it waited for the store, then died at its import": {
			of(run(1, 1, 20, 0), run(2.1, 0.01, 21, 1<<8), run(2.2, 1, 22, 0), run(3.3, 0.3, 23, 1<<8), end(3.7, 1<<8)), 3.7,
			map[uint32]string{20: "helper", 21: "helper", 22: "helper", 23: "rank"},
		},
		"nvidia-smi beside the training": {
			of([]line{{1, "exec", 20, 10, 0, "python", rank3()}}, run(10, 2, 21, 9<<8), run(20, 2, 22, 9), []line{{30, "exit", 20, 10, 9, "python", nil}}), 31,
			map[uint32]string{21: "helper", 22: "helper", 20: "rank"},
		},
		"a cleanup that fails after a training that ended well": {
			of(run(1, 60, 20, 0), run(61.1, 0.002, 21, 1<<8), end(61.2, 1<<8)), 62, map[uint32]string{20: "rank", 21: "helper"},
		},
		"a short one is killed by a signal": {of(run(1, 0.3, 20, 11), run(1.4, 60, 21, 0)), 70, map[uint32]string{20: "rank", 21: "rank"}},
		"its pipe was closed":               {of(run(1, 0.3, 20, 13), run(1.4, 60, 21, 0)), 70, map[uint32]string{20: "helper", 21: "rank"}},
		"a long preparation ends well, then the training dies at its import, and the script with it": {
			of(named("stage", 1, 60, 20, 0), named("python", 61.1, 2, 21, 1<<8), end(63.2, 1<<8)), 64, map[uint32]string{20: "rank", 21: "rank"},
		},
		"a long preparation ends well, then the training dies at its import": {
			of(named("stage", 1, 60, 20, 0), named("python", 61.1, 2, 21, 1<<8)), 65, map[uint32]string{20: "rank", 21: "rank"},
		},
		"a cleanup that fails after a training that ended well, and is known as one": {
			of(named("python", 1, 60, 20, 0), named("rsync", 61.1, 2, 21, 1<<8), end(63.2, 1<<8)), 64, map[uint32]string{20: "rank", 21: "helper"},
		},
		"a long wait fails and is tolerated, then the training runs": {
			of(named("wait", 1, 10, 20, 1<<8), named("python", 11.1, 300, 21, 0), end(311.2, 0)), 312, map[uint32]string{20: "helper", 21: "rank"},
		},
		"a long wait fails and is tolerated, then the training dies at its import, and the script with it": {
			of(named("wait", 1, 10, 20, 1<<8), named("python", 11.1, 2, 21, 1<<8), end(13.2, 1<<8)), 13.2, map[uint32]string{20: "rank", 21: "rank"},
		},
		"a long wait fails and is tolerated, a short program ends well, and the script fails": {
			of(named("wait", 1, 10, 20, 1<<8), run(11.1, 2, 21, 0), end(13.2, 1<<8)), 13.2, map[uint32]string{20: "rank", 21: "helper"},
		},
		"a long wait fails and is tolerated, then the script executes the training in its own place": {
			of(named("wait", 1, 10, 20, 1<<8), []line{{11.1, "exec", 10, 1, 0, "python", rank3()}}), 300, map[uint32]string{20: "helper"},
		},
		"a long wait fails, and the script with it": {
			of(named("wait", 1, 10, 20, 1<<8), end(11.1, 1<<8)), 11.1, map[uint32]string{20: "rank"},
		},
		"a long wait fails, and the script waits for nothing": {of(named("wait", 1, 10, 20, 1<<8)), 12.1, map[uint32]string{20: "rank"}},
		// Nothing tells it from a training that its script tries again: both are told.
		"a preparation with the libraries of a training fails, is tried again, and the training runs": {
			of(named("python", 1, 10, 20, 1<<8), named("python", 12, 10, 21, 0), named("python", 22.1, 300, 22, 0), end(322.2, 0)), 323,
			map[uint32]string{20: "rank", 21: "rank", 22: "rank"},
		},
		"a training fails, and the script tidies up for long": {
			of(named("python", 1, 10, 20, 1<<8), named("rsync", 11.1, 300, 21, 0), end(311.2, 0)), 12, map[uint32]string{20: "rank", 21: "rank"},
		},
		"a training without the libraries of one fails, and the script tidies up for long": {
			of(named("wait", 1, 30, 20, 1<<8), named("rsync", 31.1, 300, 21, 0), end(331.2, 0)), 332, map[uint32]string{20: "rank", 21: "rank"},
		},
		"a launcher starts the rank again": {
			of([]line{{1, "exec", 20, 10, 0, "python", again(0)}, {1.3, "exit", 20, 10, 1 << 8, "python", nil}, {1.4, "exec", 21, 10, 0, "python", again(1)}, {1.7, "exit", 21, 10, 1 << 8, "python", nil}}), 4,
			map[uint32]string{20: "rank", 21: "rank"},
		},
		"a launcher of two ranks waits for nothing": {
			of([]line{{1, "exec", 20, 10, 0, "python", rank3()}, {1, "exec", 21, 10, 0, "python", []string{"RANK=4", "WORLD_SIZE=8", "JOB_ID=job"}}, {1.3, "exit", 20, 10, 1 << 8, "python", nil}}), 1.3,
			map[uint32]string{20: "rank"},
		},
		"a script that executes the training in its own place": {
			of(run(1, 0.002, 20, 1<<8), []line{{1.1, "exec", 10, 1, 0, "python", rank3()}, {1.4, "exit", 10, 1, 1 << 8, "python", nil}}), 1.4,
			map[uint32]string{20: "helper", 10: "rank"},
		},
		"readlink in a subshell that nobody saw begin": { // $(f), and f runs readlink
			of([]line{{1, "exec", 20, 11, 0, "readlink", rank3()}, {1.01, "exit", 20, 11, 1 << 8, "readlink", nil}, {1.02, "exit", 11, 10, 1 << 8, "bash", nil}}, run(1.03, 100, 21, 1<<8)), 103,
			map[uint32]string{20: "helper", 21: "rank"},
		},
		"the same in a shim that has the rank itself": {
			[]line{
				{0, "exec", 10, 1, 0, "bash", rank3()}, {1, "exec", 20, 11, 0, "readlink", rank3()}, {1.01, "exit", 20, 11, 1 << 8, "readlink", nil},
				{1.02, "exit", 11, 10, 1 << 8, "bash", nil}, {1.03, "exec", 10, 1, 0, "python", rank3()}, {9, "exit", 10, 1, 1 << 8, "python", nil},
			}, 9,
			map[uint32]string{20: "inherited", 11: "inherited", 10: "rank"},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, play(t, tc.lines, tc.until)) })
	}
}

// What is slow to load its libraries is asked again, and what starts other programs is not asked.
func TestATrainingHasItsLibrariesMapped(t *testing.T) {
	root := t.TempDir()
	maps := func(pid, file string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, pid), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(root, pid, "maps"), []byte("7f0000000000-7f0000001000 r-xp 00000000 fd:01 77 "+file+"\n"), 0o600))
	}
	tracker := &Tracker{proc: newReader(root), table: newTable(100, DefaultRetention), host: "n1"}
	tracker.launches = newLaunches(func(Exit) {}, nobody)
	script := line{0, "exec", 10, 1, 0, "bash", nil}
	playInto(tracker, []signalledLine{{line: script}, {line: line{1, "exec", 20, 10, 0, "x", rank3()}}, {line: line{1, "exec", 21, 10, 0, "sh", rank3()}}, {line: line{2, "exec", 22, 21, 0, "x", rank3()}}})
	work := func(pid uint32) work { return tracker.table.at(pid, scriptNS(100)).work }
	maps("20", "/lib/libc.so.6")
	maps("21", "/lib/libc.so.6")
	tracker.askWork(scriptNS(4))
	require.Equal(t, unknownWork, work(20), "it has not lived long")
	tracker.askWork(scriptNS(6))
	require.Equal(t, otherWork, work(20))
	require.Equal(t, unknownWork, work(21), "it starts others")
	maps("20", "/venv/torch/lib/libtorch_cpu.so")
	tracker.askWork(scriptNS(7))
	require.Equal(t, otherWork, work(20), "it was asked just now")
	tracker.askWork(scriptNS(12))
	require.Equal(t, training, work(20))
}

// TestAHealthCheckIsNoRank: the runtime of the container starts it, not what started the rank.
func TestAHealthCheckIsNoRank(t *testing.T) {
	var last string
	l := newLaunches(func(e Exit) { last = told(e) }, nobody)
	start := func(pid, parent uint32, container string, at uint64) *record {
		r, _ := derive(facts{pid: pid, parentPID: parent, startNS: at, launch: launch{rank: 1, worldSize: 2}, home: home{membership: membership{ContainerID: container}}}, nil)
		l.started(r, nil)
		return r
	}
	start(20, 10, "a", 1e9)
	for container, want := range map[string]string{"a": "helper", "b": "rank"} {
		check := start(30, 11, container, 60e9)
		check.endNS = 61e9
		l.ended(check, Exit{Process: check.Process, Code: 1})
		l.expire(63e9)
		require.Equal(t, want, last)
	}
}

func TestSiblingsThatLiveTogetherAreOneRank(t *testing.T) {
	l := newLaunches(func(Exit) {}, nobody)
	shell := &record{startNS: 1e9, Process: Process{PID: 10, Rank: Unknown}}
	start := func(pid uint32, at uint64) *record {
		r, _ := derive(facts{pid: pid, parentPID: 10, startNS: at, launch: launch{rank: 1, worldSize: 2, jobID: "j"}}, shell)
		l.started(r, shell)
		return r
	}
	python, tee := start(20, 2e9), start(21, 2e9+1)
	require.Equal(t, []uint32{20, 20}, []uint32{python.RankPID, tee.RankPID})
	for _, r := range []*record{python, tee} {
		r.endNS = 3e9
		l.ended(r, Exit{Process: r.Process})
	}
	require.EqualValues(t, 22, start(22, 4e9).RankPID, "a restart is another one")
}

// A launcher asks a rank to end, which does not for a while, and starts it again: that is another
// process of the rank, and what it runs beside itself is of that one.
func TestARankThatIsStartedAgainWhileItLivesIsAnotherOne(t *testing.T) {
	for name, tc := range map[string]struct {
		asked    bool
		program  string
		another  bool
		subshell bool // started both, and ends
	}{
		"it was asked to end":                             {asked: true, program: "python", another: true},
		"it was asked to end, in a subshell":              {asked: true, program: "python", another: true, subshell: true},
		"nobody asked it":                                 {program: "python"},
		"nobody asked it, in a subshell":                  {program: "python", subshell: true},
		"a script that is stopped tidies up":              {asked: true, program: "rm"},
		"nobody asked it, and the script goes on with it": {program: "tee"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := map[uint32]string{}
			l := newLaunches(func(e Exit) { ends[e.PID] = told(e) }, func(r *record, _ uint64) bool { return tc.asked && r.PID == 20 })
			launcher := &record{startNS: 1e9, Process: Process{PID: 10, Rank: Unknown}}
			start := func(pid uint32, program string, at uint64) *record {
				r, _ := derive(facts{pid: pid, parentPID: 10, startNS: at, comm: program, launch: launch{rank: 1, worldSize: 2, jobID: "j"}}, launcher)
				l.started(r, launcher)
				return r
			}
			end := func(r *record, at uint64) {
				r.endNS = at
				l.ended(r, Exit{Process: r.Process, Code: 1})
				l.expire(at + uint64(undecided))
			}
			old := start(20, "python", 2e9)
			old.Comm = "pt_main_thread" // what it calls itself
			again := start(30, tc.program, 60e9)
			l.started(old, launcher) // it is read again
			require.Equal(t, tc.another, again.RankPID == 30)
			beside := start(31, "tee", 60e9+1)
			require.Equal(t, again.RankPID, beside.RankPID)
			if tc.subshell {
				shell := &record{startNS: 1e8, Process: Process{PID: 9, Rank: Unknown}}
				l.parentEnded(launcher, shell, Exit{})
				launcher = shell
				require.Equal(t, tc.another, again.RankPID == 30)
			}
			end(beside, 61e9)
			end(again, 62e9)
			require.Equal(t, map[bool]string{true: "rank", false: "helper"}[tc.another], ends[30], "it fails at its import")
			end(old, 63e9)
			require.Equal(t, "rank", ends[20])
			l.parentEnded(launcher, nil, Exit{})
			require.Zero(t, l.order.Len())
		})
	}
}

// A program that a rank sends into the background loses its parent, and may execute another one.
// It is of the rank, and its failure is not the rank's.
func TestAProgramInTheBackgroundIsOfItsRank(t *testing.T) {
	script := []line{
		{0, "exec", 10, 1, 0, "torchrun", nil}, {1, "exec", 20, 10, 0, "python", rank3()},
		{100, "exec", 30, 20, 0, "bash", rank3()}, {100.1, "exec", 40, 30, 0, "setsid", rank3()}, {100.2, "exit", 30, 20, 0, "bash", nil},
		{100.3, "exec", 40, 1, 0, "wandb", rank3()},
		{101, "exec", 50, 1, 0, "its parent ended first", rank3()},
		{102, "exec", 60, 1, 0, "another job's", []string{"RANK=3", "WORLD_SIZE=8", "JOB_ID=other"}},
		{120, "exit", 40, 1, 1 << 8, "wandb", nil}, {121, "exit", 50, 1, 1 << 8, "x", nil}, {122, "exit", 60, 1, 1 << 8, "x", nil},
		{130, "exit", 20, 10, 1 << 8, "python", nil},
	}
	require.Equal(t, map[uint32]string{30: "inherited", 40: "inherited", 50: "inherited", 60: "rank", 20: "rank"}, play(t, script, 200))
}

func TestLaunchesAreBounded(t *testing.T) {
	exits := 0
	l := newLaunches(func(Exit) { exits++ }, nobody)
	for i := range uint32(2 * maxLaunches) {
		r, _ := derive(facts{pid: i + 100, parentPID: i + 1e6, startNS: 1e9, launch: launch{rank: 1, worldSize: 2}}, nil)
		l.started(r, nil)
		r.endNS = 1e9 + 1
		l.ended(r, Exit{Process: r.Process, Code: 1})
	}
	require.Equal(t, maxLaunches, l.order.Len())
	require.EqualValues(t, maxLaunches, l.evicted)
	require.Equal(t, maxLaunches, exits, "what there is no room for is told")
	l.flush()
	require.Equal(t, 2*maxLaunches, exits)
	require.Empty(t, l.of)
}

// Who starts ranks without end takes no room from others: what the launch script of another user runs
// beside its rank stays a helper.
func TestLaunchesAreSharedBetweenDomains(t *testing.T) {
	told := map[uint32]bool{}
	l := newLaunches(func(e Exit) { told[e.PID] = e.Helper }, nobody)
	begin := func(pid, parent uint32, domain string, ns uint64) *record {
		r, _ := derive(facts{pid: pid, parentPID: parent, startNS: ns, home: home{domain: domain}, launch: launch{rank: 1, worldSize: 2}}, nil)
		l.started(r, nil)
		return r
	}
	rank := begin(20, 10, "user 1000", 1e9)
	for i := range uint32(2 * maxLaunches) {
		begin(i+100, i+1e6, "user 1001", 2e9)
	}
	require.Equal(t, maxLaunches, l.order.Len())
	grep := begin(21, 10, "user 1000", 60e9)
	grep.endNS = 60e9 + 1e6
	l.ended(grep, Exit{Process: grep.Process, Code: 1})
	l.expire(120e9)
	require.Equal(t, map[uint32]bool{21: true}, told)
	rank.endNS = 121e9
	l.ended(rank, Exit{Process: rank.Process, Code: 1})
	require.Equal(t, map[uint32]bool{20: false, 21: true}, told)
}

// TestRealLaunchScripts runs a shell that exports a rank, on the real kernel.
func TestRealLaunchScripts(t *testing.T) {
	privtest.Require(t)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no shell here")
	}
	for name, tc := range map[string]struct {
		script string
		want   map[string]int // exits that are told, by what they are and their status
	}{
		"helpers that fail": {`grep -q X ` + os.DevNull + `; ls /nonexistent; "$TRAIN"`, map[string]int{"helper 1": 1, "helper 2": 1, "rank 7": 1}},
		"in subshells":      {`f() { ls /nonexistent/$1; }; y=$(f 1); y=$(f 2); "$TRAIN"`, map[string]int{"helper 2": 2, "rank 7": 1}},
		"the training only": {`"$TRAIN"; exit 0`, map[string]int{"rank 7": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := openTracker(t, Options{Rung: RungSignals})
			exits := watch(t, tracker)
			job := fmt.Sprintf("launch-%d", os.Getpid()) // others may run jobs here
			train := filepath.Join(t.TempDir(), "train")
			require.NoError(t, os.WriteFile(train, []byte("#!"+bash+"\nfor i in 1 2 3 4 5 6 7 8 9 10; do read -t 0.03 <> <(:); done\nexit 7\n"), 0o700)) //nolint:gosec // it is executed
			c := exec.Command(bash, "-c", `export RANK=1 WORLD_SIZE=2 JOB_ID=`+job+`; `+tc.script)
			c.Env = []string{"PATH=" + os.Getenv("PATH"), "TRAIN=" + train}
			_ = c.Run()
			got := map[string]int{}
			for total(got) < total(tc.want) {
				if e := <-exits; !e.Inherited && e.JobID == job {
					got[fmt.Sprintf("%s %d", told(e), e.Code)]++
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
