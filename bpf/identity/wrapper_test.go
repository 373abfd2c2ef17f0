//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// wrapped is the end of a rank as it is told.
type wrapped struct {
	pid          uint32
	code, signal int
	by           uint32 // the wrapper
}

// playWrapped feeds processes of one rank, whose outermost is pid 10, and returns the end of the rank.
func playWrapped(t *testing.T, lines []signalledLine) wrapped {
	t.Helper()
	var ends []wrapped
	tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1"}
	tracker.launches = newLaunches(func(e Exit) {
		if e.Inherited || e.Helper {
			return
		}
		w := wrapped{pid: e.PID, code: e.Code, signal: e.Signal}
		if e.Wrapper != nil {
			w.by = e.Wrapper.PID
		}
		require.EqualValues(t, 10, e.RankPID, "whose end it is")
		ends = append(ends, w)
	}, nobody)
	playInto(tracker, lines)
	require.Len(t, ends, 1)
	return ends[0]
}

// A launcher of one job that is a rank of another ends of its own.
func TestTheEndOfARankOfAnotherJobIsNotPassedOn(t *testing.T) {
	var ends []Exit
	tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1"}
	tracker.launches = newLaunches(func(e Exit) { ends = append(ends, e) }, nobody)
	playInto(tracker, []signalledLine{
		{line: line{at: 0, does: "exec", pid: 10, parent: 1, comm: "bash", environ: rank3()}},
		{line: line{at: 1, does: "exec", pid: 20, parent: 10, comm: "python3", environ: []string{"RANK=3", "WORLD_SIZE=8", "JOB_ID=other"}}},
		{line: line{at: 60, does: "exit", pid: 20, parent: 10, status: 11, comm: "python3"}},
		{line: line{at: 60.01, does: "exit", pid: 10, parent: 1, status: (128 + 11) << 8, comm: "bash"}},
	})
	require.NotEmpty(t, ends)
	for _, e := range ends {
		require.Nil(t, e.Wrapper, "%+v", e)
	}
}

func TestAWrapperPassesTheEndOfItsChildOn(t *testing.T) {
	const segv, abrt, kill, term, hup = 11, 6, 9, 15, 1
	status := func(code uint32) uint32 { return code << 8 }
	begin := func(at float64, pid, parent uint32, comm string) signalledLine {
		return signalledLine{line: line{at: at, does: "exec", pid: pid, parent: parent, comm: comm, environ: rank3()}}
	}
	end := func(at float64, pid, parent, how uint32) signalledLine {
		return signalledLine{line: line{at: at, does: "exit", pid: pid, parent: parent, status: how, comm: "worker"}}
	}
	// killed ends a process by a signal, from a sender.
	killed := func(l signalledLine, signal, from uint32) signalledLine {
		l.signals = &signals{asked: asked{sent: sent{signal: signal, pid: from, timeNS: scriptNS(l.at)}}}
		return l
	}
	raised := func(l signalledLine, signal uint32) signalledLine {
		l.signals = &signals{own: sent{signal: signal, pid: l.pid, startNS: scriptNS(0), timeNS: scriptNS(l.at)}}
		return l
	}
	shell := begin(0, 10, 1, "bash")
	for name, tc := range map[string]struct {
		lines []signalledLine
		want  wrapped
	}{
		"a shell, of a crash": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), end(60, 20, 10, segv), end(60.01, 10, 1, status(128+segv))}, wrapped{20, 0, segv, 10},
		},
		"of a crash in its first second": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), end(1.2, 20, 10, abrt), end(1.21, 10, 1, status(128+abrt))}, wrapped{20, 0, abrt, 10},
		},
		"of one that was killed, once the logs are copied": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), end(60, 20, 10, kill), begin(60.1, 21, 10, "cp"), end(80, 21, 10, 0), end(80.1, 10, 1, status(128+kill))},
			wrapped{20, 0, kill, 10},
		},
		"of one that was asked to end, while the shell was not": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), killed(end(60, 20, 10, term), term, 70), end(60.01, 10, 1, status(128+term))}, wrapped{20, 0, term, 10},
		},
		"what watches beside it is ended after it": {
			[]signalledLine{shell, begin(1, 20, 10, "dmesg"), begin(1, 21, 10, "python3"), end(60, 21, 10, segv), killed(end(60.1, 20, 10, term), term, 10), end(60.2, 10, 1, status(128+segv))},
			wrapped{21, 0, segv, 10},
		},
		"a shell under a shell": {
			[]signalledLine{shell, begin(1, 11, 10, "sh"), begin(1.1, 20, 11, "python3"), end(60, 20, 11, segv), end(60.01, 11, 10, status(128+segv)), end(60.02, 10, 1, status(128+segv))},
			wrapped{20, 0, segv, 10},
		},
		"timeout under a shell": {
			[]signalledLine{
				shell, begin(1, 11, 10, "timeout"), begin(1.1, 20, 11, "python3"), end(60, 20, 11, segv), raised(end(60.01, 11, 10, segv), segv),
				end(60.02, 10, 1, status(128+segv)),
			}, wrapped{20, 0, segv, 10},
		},
		"timeout, which sends itself the signal": {
			[]signalledLine{begin(0, 10, 1, "timeout"), begin(0.1, 20, 10, "python3"), end(60, 20, 10, segv), raised(end(60.01, 10, 1, segv), segv)}, wrapped{20, 0, segv, 10},
		},
		"Python, by the return code of a child": {
			[]signalledLine{begin(0, 10, 1, "python3"), begin(1, 20, 10, "python3"), end(60, 20, 10, segv), end(60.1, 10, 1, status(256-segv))}, wrapped{20, 0, segv, 10},
		},
		"a status": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), end(60, 20, 10, status(3)), end(60.01, 10, 1, status(3))}, wrapped{20, 3, 0, 10},
		},
		"a status after a short life": {
			[]signalledLine{shell, begin(1, 20, 10, "grep"), end(1.01, 20, 10, status(1)), begin(1.1, 21, 10, "python3"), end(2, 21, 10, status(1)), end(2.01, 10, 1, status(1))},
			wrapped{21, 1, 0, 10},
		},

		"a shell that has no child": {[]signalledLine{shell, end(60, 10, 1, status(128+segv))}, wrapped{10, 128 + segv, 0, 0}},
		"a helper crashed long before": {
			[]signalledLine{shell, begin(1, 20, 10, "nvidia-smi"), end(2, 20, 10, segv), begin(3, 21, 10, "python3"), end(90, 21, 10, 0), end(90.01, 10, 1, status(128+segv))},
			wrapped{10, 128 + segv, 0, 0},
		},
		"a helper crashed, and the training says the status itself": {
			[]signalledLine{shell, begin(1, 20, 10, "nvidia-smi"), end(2, 20, 10, segv), begin(3, 21, 10, "python3"), end(30, 21, 10, status(128+segv)), end(30.01, 10, 1, status(128+segv))},
			wrapped{21, 128 + segv, 0, 10},
		},
		"another signal": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), end(60, 20, 10, abrt), end(60.01, 10, 1, status(128+segv))}, wrapped{10, 128 + segv, 0, 0},
		},
		"the shell is killed with its child": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), killed(end(60, 20, 10, kill), kill, 70), killed(end(60.01, 10, 1, kill), kill, 70)}, wrapped{10, 0, kill, 0},
		},
		"the shell was asked to end, and asked its child": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), killed(end(60, 20, 10, term), term, 10), killed(end(60.01, 10, 1, status(128+term)), term, 70)}, wrapped{10, 128 + term, 0, 0},
		},
		"a rank whose compiler failed before it raised": {
			[]signalledLine{begin(0, 10, 1, "python3"), begin(1, 20, 10, "gcc"), end(20, 20, 10, status(1)), end(20.1, 10, 1, status(1))}, wrapped{10, 1, 0, 0},
		},
		"a rank whose worker crashed before it raised": {
			[]signalledLine{begin(0, 10, 1, "python3"), end(20, 20, 10, segv), end(20.1, 10, 1, status(1))}, wrapped{10, 1, 0, 0},
		},
		"255 after a terminal has hung up": {
			[]signalledLine{shell, begin(1, 20, 10, "python3"), end(60, 20, 10, hup), end(60.01, 10, 1, status(255))}, wrapped{10, 255, 0, 0},
		},
		"a shell that becomes the training": {
			[]signalledLine{shell, begin(1, 20, 10, "grep"), end(1.2, 20, 10, segv), begin(1.3, 10, 1, "train"), end(1.9, 10, 1, status(128+segv))}, wrapped{10, 128 + segv, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, playWrapped(t, tc.lines)) })
	}
}

// childOf is the child that the end of a process names, nil for none, after these lines.
func childOf(t *testing.T, pid uint32, lines ...signalledLine) (got *Child) {
	t.Helper()
	tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1"}
	tracker.launches = newLaunches(func(e Exit) {
		if e.PID == pid {
			got = e.Child
		}
	}, nobody)
	playInto(tracker, lines)
	return got
}

func TestARankThatEndsAfterAChildCrashedNamesIt(t *testing.T) {
	rank := func(at float64, status uint32) []signalledLine {
		return []signalledLine{{line: line{at: 0, does: "exec", pid: 10, parent: 1, comm: "python3", environ: rank3()}}, {line: line{at: at, does: "exit", pid: 10, parent: 1, status: status, comm: "python3"}}}
	}
	worker := func(at float64, status uint32, by *signals) signalledLine {
		return signalledLine{line: line{at: at, does: "exit", pid: 20, parent: 10, status: status, comm: "pt_data_worker"}, signals: by}
	}
	by := func(at float64, pid uint32) *signals {
		return &signals{asked: asked{sent: sent{signal: 9, pid: pid, startNS: scriptNS(0), timeNS: scriptNS(at)}}}
	}
	child := func(signal int, relation Relation, sender uint32) *Child {
		c := &Child{PID: 20, Comm: "pt_data_worker", Signal: signal}
		if c.By.Relation, c.By.PID = relation, sender; sender != 0 {
			c.By.StartNS = scriptNS(0)
		}
		return c
	}
	for name, tc := range map[string]struct {
		worker signalledLine
		at     float64
		status uint32
		want   *Child
	}{
		"a crash":                         {worker(20, 11, nil), 24, 1 << 8, child(11, "", 0)},
		"killed by a stranger":            {worker(20, 9, by(20, 70)), 20.5, 1 << 8, child(9, RelationOther, 70)},
		"killed by what started the rank": {worker(20, 9, by(20, 1)), 20.5, 1 << 8, child(9, RelationLauncher, 1)},
		"killed by the rank":              {worker(20, 9, by(20, 10)), 20.5, 1 << 8, nil},
		"asked to end":                    {worker(20, 15, nil), 20.5, 1 << 8, nil},
		"it failed by a status":           {worker(20, 1<<8, nil), 20.5, 1 << 8, nil},
		"long before":                     {worker(20, 11, nil), 40, 1 << 8, nil},
		"the rank goes on and ends well":  {worker(20, 11, nil), 21, 0, nil},
		"the rank crashes, too":           {worker(20, 11, nil), 21, 11, nil},
	} {
		t.Run(name, func(t *testing.T) {
			life := rank(tc.at, tc.status)
			require.Equal(t, tc.want, childOf(t, 10, life[0], tc.worker, life[1]))
		})
	}
}

// The end of what timeout(1) asked to end after its time is the rank's, however that then ends: by the signal, or by a
// status of its handler. What a rank asks to end as it ends itself is not.
func TestATimeoutPassesOnTheEndThatItAskedFor(t *testing.T) {
	shell, limit := line{0, "exec", 10, 1, 0, "bash", rank3()}, line{0, "exec", 10, 1, 0, "timeout", rank3()}
	for name, tc := range map[string]struct {
		outermost   line
		by          uint32
		ended, with uint32 // the child, and what ran it
		want        wrapped
	}{
		"its time is over":              {limit, 10, sigTERM, timedOut << 8, wrapped{20, 0, sigTERM, 10}},
		"its child handles the signal":  {limit, 10, 0, timedOut << 8, wrapped{20, 0, 0, 10}},
		"and fails as it does so":       {limit, 10, 1 << 8, timedOut << 8, wrapped{20, 1, 0, 10}},
		"somebody else asked":           {limit, 70, sigTERM, timedOut << 8, wrapped{10, timedOut, 0, 0}},
		"a rank ends its workers":       {line{0, "exec", 10, 1, 0, "python3", rank3()}, 10, sigTERM, timedOut << 8, wrapped{10, timedOut, 0, 0}},
		"a script ends what it started": {shell, 10, sigTERM, 1 << 8, wrapped{10, 1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := &signals{asked: asked{sent: sent{signal: sigTERM, pid: tc.by, startNS: scriptNS(0), timeNS: scriptNS(60)}}}
			require.Equal(t, tc.want, playWrapped(t, []signalledLine{
				{line: tc.outermost}, {line: line{0.1, "exec", 20, 10, 0, "torch", rank3()}},
				{line: line{60, "exit", 20, 10, tc.ended, "torch", nil}, signals: asked}, {line: line{60.01, "exit", 10, 1, tc.with, "x", nil}},
			}))
		})
	}
}

// What the shell kills that runs the rank did crash, as far as the rank can tell. What another process of the job
// kills did not.
func TestAChildThatItsRanksWrapperKilledIsNamed(t *testing.T) {
	for sender, want := range map[uint32]bool{10: true, 30: false} {
		by := &signals{asked: asked{sent: sent{signal: 9, pid: sender, startNS: scriptNS(0), timeNS: scriptNS(20)}}}
		got := childOf(t, 11, []signalledLine{
			{line: line{0, "exec", 10, 1, 0, "bash", rank3()}}, {line: line{0, "exec", 30, 1, 0, "python3", []string{"RANK=4", "WORLD_SIZE=8", "JOB_ID=job"}}},
			{line: line{1, "exec", 11, 10, 0, "python3", rank3()}}, {line: line{20, "exit", 12, 11, 9, "pt_data_worker", nil}, signals: by}, {line: line{25, "exit", 11, 10, 1 << 8, "python3", nil}},
		}...)
		require.Equal(t, want, got != nil, "process %d", sender)
		if want {
			require.Equal(t, []any{RelationRank, sender}, []any{got.By.Relation, got.By.PID})
		}
	}
}

func TestAWrapperPassesOnThatAChildOfTheRankCrashed(t *testing.T) {
	tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1"}
	var got Exit
	tracker.launches = newLaunches(func(e Exit) {
		if !e.Inherited {
			got = e
		}
	}, nobody)
	playInto(tracker, []signalledLine{
		{line: line{0, "exec", 10, 1, 0, "bash", rank3()}}, {line: line{1, "exec", 11, 10, 0, "python3", rank3()}}, {line: line{20, "exit", 12, 11, 11, "pt_data_worker", nil}},
		{line: line{25, "exit", 11, 10, 1 << 8, "python3", nil}}, {line: line{25.01, "exit", 10, 1, 1 << 8, "bash", nil}},
	})
	require.Equal(t, []any{uint32(11), 1, &Wrapper{PID: 10, Comm: "bash", Code: 1}, &Child{PID: 12, Comm: "pt_data_worker", Signal: 11}}, []any{got.PID, got.Code, got.Wrapper, got.Child})
}

func TestAProcessRemembersFewEndsOfItsChildren(t *testing.T) {
	var c children
	for i := range 100 {
		c.ended(&record{startNS: 1, endNS: 2}, &Exit{Code: i + 1}, &Exit{Code: i + 1})
	}
	require.Len(t, c.failed, maxChildEnds)
	require.Equal(t, 100, c.failed[maxChildEnds-1].Code)
}

// What real shells and timeout(1) do.
func TestWrappersPassOnWhatEndedTheRank(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	for name, tc := range map[string]struct {
		args   []string
		signal int
	}{
		"sh":                     {[]string{"sh", "-c", "ulimit -c 0; sh -c 'kill -SEGV $$'; exit $?"}, 11},
		"bash":                   {[]string{"bash", "-c", "ulimit -c 0; sh -c 'kill -KILL $$'; rc=$?; ls / > /dev/null; exit $rc"}, 9},
		"bash in the background": {[]string{"bash", "-c", "ulimit -c 0; sh -c 'kill -ABRT $$' & wait $!"}, 6},
		"timeout":                {[]string{"timeout", "60", "sh", "-c", "ulimit -c 0; kill -SEGV $$"}, 11},
		"its time is over":       {[]string{"timeout", "1", "sh", "-c", "while :; do :; done"}, 15},
		"a pipe":                 {[]string{"bash", "-o", "pipefail", "-c", "ulimit -c 0; sh -c 'kill -BUS $$' | cat; exit $?"}, 7},
	} {
		if _, err := exec.LookPath(tc.args[0]); err != nil {
			t.Logf("%s: %v: tried on a host", name, err) // the machines have busybox alone
			continue
		}
		t.Run(name, func(t *testing.T) {
			for try := 0; ; try++ {
				cmd := exec.Command(tc.args[0], tc.args[1:]...)
				cmd.Env = append(os.Environ(), "RANK=3", "WORLD_SIZE=8", fmt.Sprintf("JOB_ID=wrapper-%s-%d", name, try))
				require.NoError(t, cmd.Start())
				pid := uint32(cmd.Process.Pid)
				require.Error(t, cmd.Wait())
				e, after := endOfRank(t, exits, pid)
				if e.PID == pid && tc.args[0] == "timeout" { // that of busybox becomes the program, which a child of it watches
					require.Equal(t, tc.signal, e.Signal)
					return
				}
				if e.Wrapper == nil && after > atOnce && try < 20 {
					continue // on a busy machine it comes to that too late
				}
				require.NotNil(t, e.Wrapper, "%+v", e)
				require.Equal(t, []any{pid, tc.signal}, []any{e.Wrapper.PID, e.Signal})
				require.Contains(t, []string{"sh", "exe"}, e.Comm, "busybox executes itself")
				require.NotEqual(t, pid, e.PID)
				return
			}
		})
	}
}

// endOfRank is the end of the rank whose outermost process that is, and how long after one of its
// children that came.
func endOfRank(t *testing.T, exits <-chan Exit, pid uint32) (e Exit, after time.Duration) {
	t.Helper()
	timeout := time.After(hosttest.Patience)
	var child time.Time
	for {
		select {
		case e = <-exits:
			switch {
			case e.RankPID != pid:
			case e.Inherited:
				child = e.Time
			default:
				return e, e.Time.Sub(child)
			}
		case <-timeout:
			require.FailNow(t, "no end", "of the rank of process %d", pid)
		}
	}
}
