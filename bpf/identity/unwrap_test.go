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

// wrapperTest is a tracker whose ends are told as text.
type wrapperTest struct {
	*Tracker
	ends []string
}

func newWrapperTest(t *testing.T) *wrapperTest {
	w := &wrapperTest{Tracker: &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1", opts: Options{MaxProcesses: 100}, source: newScript()}}
	w.launches = newLaunches(func(e Exit) {
		text := fmt.Sprint(e.PID, " ", told(e))
		if told(e) == "rank" {
			text += fmt.Sprint(" of ", e.RankPID)
		}
		w.ends = append(w.ends, text)
	}, nobody)
	return w
}

// runs writes with which arguments a process runs.
func (w *wrapperTest) runs(t *testing.T, pid int, arguments ...string) {
	folder := filepath.Join(w.proc.Root(), fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(folder, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "cmdline"), []byte(strings.Join(arguments, "\x00")+"\x00"), 0o600))
}

func (w *wrapperTest) told() string { return strings.Join(w.ends, ", ") }

// A wrapper that goes on after its rank: a loop of a shell, a supervisor. Pid 10 is the wrapper, and 20, 30, 40 run train.py.
func TestTheEndOfWhatAWrapperRunsIsTheRanks(t *testing.T) {
	const term, segv = 15, 11
	begin := func(at float64, pid, parent uint32, comm string, arguments ...string) signalledLine {
		return signalledLine{line: line{at, "exec", pid, parent, 0, comm, rank3()}, arguments: append([]string{comm}, arguments...)}
	}
	train := func(at float64, pid, parent uint32) signalledLine {
		return begin(at, pid, parent, "torch", "-u", "train.py")
	}
	end := func(at float64, pid, parent, status uint32) signalledLine {
		return signalledLine{line: line{at, "exit", pid, parent, status, "x", nil}}
	}
	joins := func(at float64, pid uint32) signalledLine {
		return signalledLine{line: line{at: at, does: "joins", pid: pid}}
	}
	of := func(parts ...any) (all []signalledLine) {
		for _, p := range parts {
			switch p := p.(type) {
			case signalledLine:
				all = append(all, p)
			case []signalledLine:
				all = append(all, p...)
			}
		}
		return all
	}
	shell, first := begin(0, 10, 1, "bash"), of(train(1, 20, 10), joins(30, 20))
	died := of(shell, first, end(60, 20, 10, 3<<8))
	sleeps := func(at float64, pid uint32) []signalledLine {
		return of(begin(at, pid, 10, "sleep", "1"), end(at+1, pid, 10, 0))
	}
	for name, tc := range map[string]struct {
		lines []signalledLine
		want  string
	}{
		"it dies, and the shell goes on":            {died, "20 rank of 10"},
		"it ends well, and the shell goes on":       {of(shell, first, end(60, 20, 10, 0)), "20 rank of 10"},
		"the shell passes its status on":            {of(died, end(60.01, 10, 1, 3<<8)), "20 rank of 10, 10 helper"},
		"the shell passes a crash on":               {of(shell, first, end(60, 20, 10, segv), end(60.01, 10, 1, (128+segv)<<8)), "20 rank of 10, 10 helper"},
		"the shell is killed between two lives":     {of(died, sleeps(60.1, 21), end(62, 10, 1, 9)), "20 rank of 10, 21 inherited, 10 helper"},
		"the next life dies before it takes part":   {of(died, sleeps(60.1, 21), train(61.2, 30, 10), end(64, 30, 10, 3<<8)), "20 rank of 10, 21 inherited, 30 rank of 30"},
		"the next life dies after a tenth":          {of(died, train(61.2, 30, 10), end(61.3, 30, 10, 1<<8)), "20 rank of 10, 30 rank of 30"},
		"it dies again and again":                   {of(died, train(61, 30, 10), joins(70, 30), end(90, 30, 10, 3<<8), train(91, 40, 10), end(95, 40, 10, 3<<8)), "20 rank of 10, 30 rank of 30, 40 rank of 40"},
		"it waits for a minute between two tries":   {of(died, begin(60.1, 21, 10, "sleep", "60"), end(120, 21, 10, 0), train(121, 30, 10)), "20 rank of 10, 21 inherited"},
		"what fails between two tries is no rank":   {of(died, begin(60.1, 21, 10, "nvidia-smi"), end(61, 21, 10, 9<<8), begin(62, 22, 10, "torch", "notify.py"), end(70, 22, 10, 1<<8)), "20 rank of 10, 21 inherited, 22 inherited"},
		"what fails beside it is no rank":           {of(shell, first, begin(40, 21, 10, "nvidia-smi"), end(50, 21, 10, 9<<8), train(41, 22, 10), end(51, 22, 10, 1<<8)), "21 inherited, 22 inherited"},
		"what fails after it ended well fails it":   {of(shell, first, end(60, 20, 10, 0), begin(61, 21, 10, "torch", "eval.py"), end(80, 21, 10, 1<<8), end(80.1, 10, 1, 1<<8)), "20 rank of 10, 21 inherited, 21 rank of 10"},
		"another program takes part afterwards":     {of(shell, first, end(60, 20, 10, 0), begin(61, 30, 10, "torch", "eval.py"), joins(70, 30), end(80, 30, 10, 1<<8), end(80.1, 10, 1, 1<<8)), "20 rank of 10, 30 rank of 30, 10 helper"},
		"its next life is executed by a shim":       {of(died, begin(61, 30, 10, "torch", "/shims/torch", "-u", "train.py"), begin(61.1, 31, 30, "readlink"), end(61.2, 31, 30, 1<<8), begin(61.3, 30, 10, "pyenv"), begin(61.4, 30, 10, "python3.11"), end(63, 30, 10, 1<<8)), "20 rank of 10, 31 inherited, 30 rank of 30"},
		"its worker is no rank":                     {of(died, train(61, 30, 10), begin(70, 31, 30, "torch", "-u", "train.py"), end(80, 31, 30, segv)), "20 rank of 10, 31 inherited"},
		"a worker has its connections":              {of(shell, train(1, 20, 10), begin(2, 21, 20, "torch"), joins(30, 20), joins(31, 21), end(60, 21, 20, segv)), "21 inherited"},
		"timeout under a shell":                     {of(shell, begin(0.5, 11, 10, "timeout", "60", "train.py"), train(1, 20, 11), joins(30, 20), end(60, 20, 11, 3<<8), end(60.01, 11, 10, 3<<8)), "20 rank of 10, 11 helper"},
		"its next life, too":                        {of(shell, begin(0.5, 11, 10, "timeout", "60", "train.py"), train(1, 20, 11), joins(30, 20), end(60, 20, 11, 3<<8), end(60.01, 11, 10, 3<<8), begin(61, 12, 10, "timeout", "60", "train.py"), train(61.1, 30, 12), joins(70, 30), end(80, 30, 12, 3<<8), end(80.1, 12, 10, 3<<8)), "20 rank of 10, 11 helper, 30 rank of 12, 12 helper"},
		"one that dies before it takes part, too":   {of(shell, begin(0.5, 11, 10, "timeout", "60", "train.py"), train(1, 20, 11), joins(30, 20), end(60, 20, 11, 3<<8), end(60.01, 11, 10, 3<<8), begin(61, 12, 10, "timeout", "60", "train.py"), train(61.1, 30, 12), end(64, 30, 12, 3<<8), end(64.1, 12, 10, 3<<8)), "20 rank of 10, 11 helper, 30 inherited, 30 rank of 12"},
		"the shell executes the rank in its place":  {of(died, begin(61, 10, 1, "torch", "last.py"), end(80, 10, 1, 1<<8)), "20 rank of 10, 10 rank of 10"},
		"a launch script runs the wrapper":          {of(signalledLine{line: line{0, "exec", 5, 1, 0, "bash", nil}}, begin(0.1, 10, 5, "bash"), first, end(60, 20, 10, 3<<8), train(61, 30, 10), begin(62, 50, 5, "nvidia-smi"), end(64, 50, 5, 9<<8), end(80, 30, 10, 1<<8)), "20 rank of 10, 50 helper, 30 rank of 30"},
		"it is known before the wrapper has ended":  {of(shell, first, end(59, 10, 1, 0), end(60, 20, 1, 3<<8)), "10 helper, 20 rank of 10"},
		"the wrapper is asked to end, and ends it":  {of(shell, first, signalledLine{line: line{60, "exit", 20, 10, term, "x", nil}}, end(60.1, 10, 1, (128+term)<<8)), "20 rank of 10, 10 helper"},
		"nobody takes part: the shell is the rank":  {of(shell, train(1, 20, 10), end(60, 20, 10, 3<<8), end(61.5, 10, 1, 1<<8)), "20 inherited, 10 rank of 10"},
		"a rank starts another that takes part too": {of(begin(0, 10, 1, "python"), train(1, 20, 10), joins(30, 20), end(60, 20, 10, 3<<8)), "20 inherited"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWrapperTest(t)
			w.runs(t, 20, "torch", "-u", "train.py")
			w.runs(t, 11, "timeout", "60", "train.py")
			playInto(w.Tracker, tc.lines)
			w.launches.expire(scriptNS(200))
			require.Equal(t, tc.want, w.told())
			for _, p := range w.Ranks() {
				require.NotEqual(t, p.Leads() && p.PID == 10, w.table.at(20, scriptNS(200)).work == member && w.table.at(20, scriptNS(200)).Leads(), "one leads: %+v", p)
			}
		})
	}
}

// What a wrapper wraps is known from its own processes alone: nobody else's take its place.
func TestAnothersProcessIsNotWhatAWrapperWraps(t *testing.T) {
	for name, tc := range map[string]struct {
		domain string
		rank   []string
		want   string
	}{
		"its own":          {"user 1000", rank3(), "20 rank of 10, 10 helper"},
		"another user's":   {"user 1001", rank3(), "20 inherited, 20 rank of 10"},
		"another rank":     {"user 1000", []string{"RANK=4", "WORLD_SIZE=8", "JOB_ID=job"}, "20 rank of 20, 10 rank of 10"},
		"of another world": {"user 1000", []string{"RANK=3", "WORLD_SIZE=4", "JOB_ID=job"}, "20 rank of 20, 10 rank of 10"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWrapperTest(t)
			put := func(pid, parent uint32, domain string, environ []string) {
				w.put(facts{pid: pid, parentPID: parent, startNS: scriptNS(float64(pid)), comm: "x", launch: parseEnviron(block(environ...)), home: home{domain: domain}}, w.table.at(parent, scriptNS(100)))
			}
			put(10, 1, "user 1000", rank3())
			put(20, 10, tc.domain, tc.rank)
			w.Joined(Process{PID: 20, StartNS: scriptNS(20)})
			w.onExit(&event{kind: kindExit, pid: 20, parentPID: 10, startNS: scriptNS(20), timeNS: scriptNS(60), status: 3 << 8})
			w.onExit(&event{kind: kindExit, pid: 10, parentPID: 1, startNS: scriptNS(10), timeNS: scriptNS(60.01), status: 3 << 8})
			w.launches.expire(scriptNS(200))
			require.Equal(t, tc.want, w.told())
		})
	}
}

// What is started from outside in the container of a rank is none, also between two of its lives.
func TestACheckBetweenTwoLivesIsNoRank(t *testing.T) {
	w := newWrapperTest(t)
	put := func(pid, parent uint32, container string, at float64, l launch) {
		w.put(facts{pid: pid, parentPID: parent, startNS: scriptNS(at), comm: "x", launch: l, home: home{membership{Path: "/x", ContainerID: container}, "pods a", "p"}}, w.table.at(parent, scriptNS(at)))
	}
	rank := parseEnviron(block(rank3()...))
	put(5, 1, "", 0, noLaunch()) // the container's runtime
	put(10, 5, "a", 1, rank)
	put(20, 10, "a", 2, rank)
	w.Joined(Process{PID: 20, StartNS: scriptNS(2)})
	w.onExit(&event{kind: kindExit, pid: 20, parentPID: 10, startNS: scriptNS(2), timeNS: scriptNS(60), status: 3 << 8})
	put(30, 5, "a", 61, rank)
	w.onExit(&event{kind: kindExit, pid: 30, parentPID: 5, startNS: scriptNS(61), timeNS: scriptNS(70), status: 1 << 8})
	w.launches.expire(scriptNS(200))
	require.Equal(t, "20 rank of 10", w.told())
}

// The next agent is told which process the rank was, and its wrapper is known again, in its first life and in a later one.
func TestTheNextAgentKnowsWhatAWrapperWraps(t *testing.T) {
	for name, second := range map[string]bool{"its first life": false, "its second life": true} {
		for _, by := range []string{"the note", "the map"} {
			t.Run(name+", by "+by, func(t *testing.T) {
				lines := []signalledLine{
					{line: line{0, "exec", 10, 1, 0, "bash", rank3()}}, {line: line{1, "exec", 20, 10, 0, "torch", rank3()}}, {line: line{at: 30, does: "joins", pid: 20}},
				}
				rank, start, of := uint32(20), 1.0, 10
				if second {
					lines = append(lines, signalledLine{line: line{60, "exit", 20, 10, 3 << 8, "x", nil}}, signalledLine{line: line{61, "exec", 30, 10, 0, "torch", rank3()}, arguments: []string{"torch", "train.py"}})
					rank, start, of = 30, 61, 30
				}
				before := newWrapperTest(t)
				playInto(before.Tracker, lines)
				known := before.table.exact(rank, scriptNS(start))
				require.True(t, known.Leads())

				w := newWrapperTest(t)
				w.runs(t, int(rank), "torch", "train.py")
				playInto(w.Tracker, []signalledLine{{line: line{0, "exec", 10, 1, 0, "bash", rank3()}}})
				if by == "the note" {
					playInto(w.Tracker, []signalledLine{{line: line{start, "exec", rank, 10, 0, "torch", rank3()}}, {line: line{start + 1, "exec", 21, rank, 0, "gcc", rank3()}}})
					w.Led(known.Process)
				} else {
					value, err := known.remembered()
					require.NoError(t, err)
					f, err := parseRemembered(value)
					require.NoError(t, err)
					r := w.put(f, w.table.at(10, scriptNS(0)))
					w.leads(r, life{f.led.PID, wall(f.led.StartNS)})
				}
				after := w.table.exact(rank, scriptNS(start))
				require.True(t, after.Leads())
				require.Equal(t, []any{known.RankPID, known.Wrapped}, []any{after.RankPID, after.Wrapped})
				require.WithinDuration(t, known.RankStart, after.RankStart, tick)
				require.Len(t, w.Ranks(), map[string]int{"the note": 2, "the map": 1}[by], "without the wrapper")
				for _, p := range w.Ranks() {
					require.EqualValues(t, of, p.RankPID)
				}
				w.onExit(&event{kind: kindExit, pid: rank, parentPID: 10, startNS: scriptNS(start), timeNS: scriptNS(90), status: 3 << 8})
				playInto(w.Tracker, []signalledLine{{line: line{91, "exec", 40, 10, 0, "torch", rank3()}, arguments: []string{"torch", "train.py"}}, {line: line{92, "exit", 40, 10, 1 << 8, "x", nil}}})
				require.Equal(t, fmt.Sprint(rank, " rank of ", of, ", 40 rank of 40"), w.told())
			})
		}
	}
}

// The rank of a wrapper has ended while no agent ran: it is gone, what lives is its wrapper, and what that starts is the rank.
func TestTheNextAgentKnowsTheWrapperOfWhatHasEnded(t *testing.T) {
	for name, seen := range map[string]bool{"before it began": false, "as it began": true} {
		t.Run(name, func(t *testing.T) {
			w := newWrapperTest(t)
			playInto(w.Tracker, []signalledLine{{line: line{0, "exec", 10, 1, 0, "bash", rank3()}}})
			if seen {
				playInto(w.Tracker, []signalledLine{{line: line{1, "exec", 20, 10, 0, "torch", rank3()}}, {line: line{60, "exit", 20, 10, 3 << 8, "x", nil}}})
				w.ends = nil
			}
			p := Process{PID: 20, ParentPID: 10, StartNS: scriptNS(1), Comm: "torch", Rank: 3, WorldSize: 8, JobID: "job", RankPID: 10, Wrapped: true}
			w.Led(p)
			require.Empty(t, w.Ranks())
			require.True(t, w.EndedUnseen(p.Born()))
			playInto(w.Tracker, []signalledLine{{line: line{91, "exec", 40, 10, 0, "torch", rank3()}, arguments: []string{"torch", "train.py"}}, {line: line{92, "exit", 40, 10, 1 << 8, "x", nil}}})
			require.Equal(t, "40 rank of 40", w.told())
		})
	}
}

// askedScript is a source that knows who asked processes to end.
type askedScript struct {
	*script
	to map[uint32]*signals
}

func (a *askedScript) signalsTo(pid uint32, _ uint64) *signals { return a.to[pid] }

func askedBy(pid uint32, signal uint32, at float64) *signals {
	s := sent{signal: signal, pid: pid, timeNS: scriptNS(at)}
	return &signals{asked: asked{sent: s, first: s}}
}

// What a wrapper passes on comes from who had sent it to the wrapper; what it sends of its own, as timeout does, from what
// started the rank.
func TestWhoSentTheSignalOfAWrapper(t *testing.T) {
	const term = 15
	for name, tc := range map[string]struct {
		wrapper *signals
		want    []any
	}{
		"it passes on what it was sent":          {askedBy(70, term, 59.9), []any{uint32(70), RelationOther}},
		"another signal":                         {askedBy(70, 2, 59.9), []any{uint32(70), RelationOther}},
		"it was sent long before":                {askedBy(70, term, -80), []any{uint32(10), RelationLauncher}},
		"it was sent afterwards":                 {askedBy(70, term, 60.5), []any{uint32(10), RelationLauncher}},
		"it asks the rank of its own: a timeout": {nil, []any{uint32(10), RelationLauncher}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWrapperTest(t)
			w.source = &askedScript{newScript(), map[uint32]*signals{10: tc.wrapper}}
			var got Exit
			w.launches.tell = func(e Exit) { got = e }
			by := askedBy(10, term, 60)
			by.asked.startNS = scriptNS(0)
			playInto(w.Tracker, []signalledLine{
				{line: line{0, "exec", 10, 1, 0, "timeout", rank3()}}, {line: line{1, "exec", 20, 10, 0, "torch", rank3()}}, {line: line{at: 30, does: "joins", pid: 20}},
				{line: line{60.001, "exit", 20, 10, term, "x", nil}, signals: by},
			})
			require.Equal(t, "rank", told(got))
			require.Equal(t, tc.want, []any{got.Signalled.Sender.PID, got.Signalled.Sender.Relation})
			require.Equal(t, term, got.Signalled.Number)
		})
	}
}

// A wrapper asks the one rank that it wraps: what others do at the same time is no answer to its end. Of a rank that is
// the first, how many others have a wrapper of the same name is told.
func TestTimeoutsOfAllRanksEndTheJob(t *testing.T) {
	const term = 15
	for name, tc := range map[string]struct {
		wrappers [3]string
		joins    bool
		asked    uint32 // how many of them
		want     Others
	}{
		"all at once":                      {[3]string{"timeout", "timeout", "timeout"}, true, 3, Others{Lived: 2, Asked: 2, Wrapped: true}},
		"the first":                        {[3]string{"timeout", "timeout", "timeout"}, true, 1, Others{Lived: 2, Wrapped: true, Alike: 2}},
		"the first two":                    {[3]string{"timeout", "timeout", "timeout"}, true, 2, Others{Lived: 2, Asked: 1, Wrapped: true, Alike: 1}},
		"one that alone has a limit":       {[3]string{"timeout", "bash", "tini"}, true, 1, Others{Lived: 2, Wrapped: true}},
		"before anything shows who trains": {[3]string{"timeout", "timeout", "timeout"}, false, 1, Others{Lived: 2, Wrapped: true, Alike: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWrapperTest(t)
			source := &askedScript{newScript(), map[uint32]*signals{}}
			w.source = source
			var lines []signalledLine
			for r := range uint32(3) {
				environ := []string{fmt.Sprint("RANK=", r), "WORLD_SIZE=3", "JOB_ID=job"}
				lines = append(lines, signalledLine{line: line{0, "exec", 10 + r, 1, 0, tc.wrappers[r], environ}}, signalledLine{line: line{1, "exec", 20 + r, 10 + r, 0, "torch", environ}})
				if tc.joins {
					lines = append(lines, signalledLine{line: line{at: 30, does: "joins", pid: 20 + r}})
				}
			}
			playInto(w.Tracker, lines)
			var got Exit
			w.launches.tell = func(e Exit) {
				if !e.Inherited && !e.Helper {
					got = e
				}
			}
			for r := range tc.asked {
				source.to[20+r] = askedBy(10+r, term, 60+float64(r)/100)
				source.to[20+r].asked.startNS, source.to[20+r].asked.first.startNS = scriptNS(0), scriptNS(0)
			}
			w.onExit(&event{kind: kindExit, pid: 20, parentPID: 10, startNS: scriptNS(1), timeNS: scriptNS(60.001), status: term, signals: source.to[20]})
			w.onExit(&event{kind: kindExit, pid: 10, parentPID: 1, startNS: scriptNS(0), timeNS: scriptNS(60.002), status: timedOut << 8})
			var ranks []*record
			w.table.queues[livingRank].Each(func(r *record) { ranks = append(ranks, r) })
			require.EqualValues(t, 20, got.PID)
			require.Equal(t, RelationLauncher, got.Signalled.Sender.Relation)
			require.Equal(t, tc.want, w.others(&got, ranks))
		})
	}
}

// A real shell runs a rank again and again: each of its ends is the rank's, and none of what it runs in between.
func TestARealShellRunsARankAgainAndAgain(t *testing.T) {
	privtest.Require(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no shell here")
	}
	tracker := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, tracker)
	shell := exec.Command("bash", "-c", "while true; do sleep 600; sleep 0.02; done")
	shell.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "RANK=3", "WORLD_SIZE=8", "JOB_ID=loop"}
	require.NoError(t, shell.Start())
	pid := uint32(shell.Process.Pid)
	t.Cleanup(func() {
		for _, p := range tracker.Ranks() {
			if p.ParentPID == pid {
				_ = unix.Kill(int(p.PID), unix.SIGKILL)
			}
		}
	})
	rank := func(is func(Process) bool) (found Process) {
		require.Eventually(t, func() bool {
			for _, p := range tracker.Ranks() {
				if p.ParentPID == pid && p.Comm == "sleep" && is(p) {
					found = p
				}
			}
			return found.PID != 0
		}, hosttest.Patience, time.Millisecond)
		return found
	}
	one := rank(func(Process) bool { return true })
	tracker.Joined(one)
	outermost := pid
	for range 3 {
		one = rank(Process.Leads)
		require.Equal(t, outermost, one.RankPID)
		require.NoError(t, unix.Kill(int(one.PID), unix.SIGKILL))
		for e := range exits {
			if told(e) == "rank" {
				require.Equal(t, []any{one.PID, outermost, int(unix.SIGKILL)}, []any{e.PID, e.RankPID, e.Signal})
				break
			}
			require.Equal(t, "inherited", told(e), "%+v", e)
		}
		dead := one.PID
		outermost = rank(func(p Process) bool { return p.Leads() && p.PID != dead }).PID
	}
	require.NoError(t, shell.Process.Kill())
	_ = shell.Wait()
	require.NoError(t, unix.Kill(int(outermost), unix.SIGKILL))
	for e := range exits {
		if e.PID == outermost {
			require.Equal(t, "rank", told(e))
			return
		}
		require.NotEqual(t, "rank", told(e), "%+v", e)
	}
}
