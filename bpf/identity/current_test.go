//go:build linux && (amd64 || arm64)

package identity

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// says has a process of the script say who it is, as its memory would.
func (s *scripted) says(pid uint32, start float64, environ ...string) {
	s.becomes(&current{pid: pid, startNS: s.ns(start)}, parseEnviron(block(environ...)))
}

func TestARankMaySayWhoItIsAfterItsStart(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, "PATH=/bin") // calls mp.spawn
	s.exec(101, 100, 1, 1, "PATH=/bin")
	s.exec(102, 101, 2, 2, "PATH=/bin") // its resource tracker
	s.exec(103, 101, 3, 3, rank3()...)  // its fork server, with the environment that the rank has by now
	s.exec(104, 103, 4, 4, "PATH=/bin") // a program that this one started
	s.settle()
	require.Equal(t, 3, s.lookup(103, 0, 5).Rank, "nothing else is known yet")
	unranked := func() (pids []uint32) {
		for _, p := range s.Unranked() {
			if p.PID < 200 { // of the story
				pids = append(pids, p.PID)
			}
		}
		slices.Sort(pids)
		return pids
	}
	require.Equal(t, []uint32{100, 101, 102}, unranked())

	s.says(101, 1, rank3()...)
	for pid, want := range map[uint32]bool{101: false, 102: true, 103: true, 104: true} {
		p := s.lookup(pid, 0, 5)
		require.Equal(t, []any{3, 8, "job", want, uint32(101)}, []any{p.Rank, p.WorldSize, p.JobID, p.Inherited, p.RankPID}, "process %d", pid)
	}
	require.Equal(t, Unknown, s.lookup(100, 0, 5).Rank)
	require.Equal(t, []uint32{100}, unranked())
	require.Equal(t, 4, s.Counters().Ranks)

	s.exit(101, 100, 1, 8, 1<<8)
	e := exitOf(t, s.exits, 101)
	require.Equal(t, []any{3, false, false, 1}, []any{e.Rank, e.Inherited, e.Helper, e.Code})
}

// One parent starts the ranks of two jobs that are known by their calls: the same rank of both is
// two ranks.
func TestRanksThatTheirCallsShowAreNotOfOneAnother(t *testing.T) {
	for _, parent := range []uint32{100, 1} {
		s := newScripted(t, Options{}, nil)
		s.exec(100, 1, 0, 0, "PATH=/bin")
		for i := range uint32(2) {
			start := float64(1 + i)
			s.exec(101+i, parent, start, start, "PATH=/bin")
		}
		s.settle()
		for i := range uint32(2) {
			calls := noLaunch()
			calls.rank, calls.worldSize, calls.rendezvous, calls.byCalls = 1, 2, "communicator "+strconv.Itoa(int(i)), true
			start := float64(1 + i)
			s.becomes(&current{pid: 101 + i, startNS: s.ns(start)}, calls)
		}
		for i := range uint32(2) {
			p := s.lookup(101+i, 0, 5)
			require.Equal(t, []any{1, "communicator " + strconv.Itoa(int(i)), false, 101 + i}, []any{p.Rank, p.Rendezvous, p.Inherited, p.RankPID}, "parent %d", parent)
			require.Equal(t, p.StartTime, p.RankStart)
		}
		s.exit(101, parent, 1, 2.5, 1<<8)
		s.exit(102, parent, 2, 2.5, 1<<8)
		for i := range uint32(2) {
			require.False(t, exitOf(t, s.exits, 101+i).Helper, "parent %d", parent)
		}
	}
}

func TestALauncherThatSetsItsOwnEnvironmentIsNoRank(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, "PATH=/bin")
	s.exec(101, 100, 1, 1, "RANK=0", "WORLD_SIZE=2")
	s.exec(102, 100, 2, 2, "RANK=1", "WORLD_SIZE=2")
	s.settle()
	s.says(100, 0, "RANK=1", "WORLD_SIZE=2")
	require.Equal(t, Unknown, s.lookup(100, 0, 3).Rank)
	require.Equal(t, []any{1, false}, []any{s.lookup(102, 0, 3).Rank, s.lookup(102, 0, 3).Inherited})
}

func TestOnlyInterpretersThatAreNoRankAreLookedAt(t *testing.T) {
	c := currents{of: map[uint32]*fairlru.Element[*current]{}}
	one := func(pid uint32, comm string, rank int) *record {
		return &record{startNS: 7, Process: Process{PID: pid, Comm: comm, Rank: rank}}
	}
	c.note(one(1, "python3.12", Unknown), 0)
	c.note(one(2, "ray::IDLE", Unknown), 0)
	c.note(one(3, "nginx", Unknown), 0)
	c.note(one(4, "python3", 2), 0)
	require.Len(t, c.of, 2)
	require.Empty(t, c.next(uint64(whileYoung)-1))
	require.Len(t, c.next(uint64(whileYoung)), 2)
	c.note(one(1, "python3.12", 0), 0)
	require.Len(t, c.of, 1)
	for pid := range uint32(2 * maxCurrents) {
		c.note(one(100+pid, "python3", Unknown), 0)
	}
	require.Len(t, c.of, maxCurrents)
}

// A process is looked at often while most ranks say who they are, then seldom.
func TestLooksGetRare(t *testing.T) {
	var pauses []time.Duration
	for one, now := (&current{pause: firstAgain}), uint64(0); now < uint64(time.Minute); {
		pause := one.next(now)
		pauses, now = append(pauses, pause), now+uint64(pause)
	}
	young := int(importing / whileYoung)
	for _, pause := range pauses[:young] {
		require.Equal(t, whileYoung, pause)
	}
	require.Equal(t, []time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond}, pauses[young:young+3])
	old := &current{pause: longestAgain}
	require.Equal(t, longestAgain, old.next(uint64(time.Hour)))
	require.Equal(t, longestAgain, old.next(uint64(time.Hour)), "it gets no longer")
}

// A rank that dies as soon as it has said who it is, is one by its end: nobody could look twice.
func TestARankMaySayWhoItIsAndDie(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	said := func(pid uint32, environ ...string) {
		s.settle()
		s.currents.of[pid].Value.said = parseEnviron(block(environ...)).in("")
	}
	s.exec(100, 1, 0, 0, "PATH=/bin") // calls mp.spawn
	s.exec(101, 100, 1, 1, "PATH=/bin")
	s.exec(102, 101, 2, 2, "PATH=/bin") // its resource tracker
	said(101, rank3()...)
	s.exit(101, 100, 1, 8, 1<<8)
	s.exit(102, 101, 2, 8, 0)
	e := exitOf(t, s.exits, 101)
	require.Equal(t, []any{3, 8, "job", false, false, 1, uint32(101)}, []any{e.Rank, e.WorldSize, e.JobID, e.Inherited, e.Helper, e.Code, e.RankPID})
	require.True(t, exitOf(t, s.exits, 102).Inherited)

	s.exec(103, 100, 9, 9, "PATH=/bin") // said nothing
	s.exec(110, 1, 9, 9, "PATH=/bin")   // a launcher that says one rank after the other, and starts them
	s.exec(111, 110, 10, 10, "RANK=0", "WORLD_SIZE=2")
	s.exec(112, 110, 10, 10, "RANK=1", "WORLD_SIZE=2")
	said(110, "RANK=1", "WORLD_SIZE=2")
	s.exit(103, 100, 9, 11, 1<<8)
	s.exit(111, 110, 10, 20, 1<<8)
	s.exit(112, 110, 10, 20, 1<<8)
	s.exit(110, 1, 9, 21, 1<<8)
	require.Equal(t, 0, exitOf(t, s.exits, 111).Rank)
	require.Equal(t, 1, exitOf(t, s.exits, 112).Rank)
	s.settle()
	require.Empty(t, s.exits, "neither who says nothing nor the launcher is a rank")
	require.Equal(t, Unknown, s.lookup(110, 0, 22).Rank)
}

// TestARankThatDiesAtItsStartIsKnown is that of a real process, which lives for less than two looks once it has said who it is.
func TestARankThatDiesAtItsStartIsKnown(t *testing.T) {
	needsPython(t)
	tracker := openTracker(t, Options{})
	exits := watch(t, tracker)
	cmd, end, _ := starts(t, "-c", "import os, sys\nos.environ.update(RANK='3', WORLD_SIZE='8')\nprint('said', flush=True)\nsys.stdin.read()\nsys.exit(1)")
	pid := uint32(cmd.Process.Pid)
	require.Eventually(t, func() bool { // a look finds it; the next makes it a rank, where this test is slow
		if p, known := tracker.Lookup(pid, 0, time.Now()); known && p.IsRank() {
			return true
		}
		tracker.mu.RLock()
		defer tracker.mu.RUnlock()
		known := tracker.currents.of[pid]
		return known != nil && known.Value.said.rank == 3
	}, hosttest.Patience, time.Millisecond)
	require.NoError(t, end.Close())
	require.Error(t, cmd.Wait())
	e := exitOf(t, exits, pid)
	require.Equal(t, []any{3, 8, false, 1}, []any{e.Rank, e.WorldSize, e.Inherited, e.Code})
}

// TestThePresentEnvironmentIsInItsMemory reads that of Python, which sets variables by the C
// library's setenv(3).
func TestThePresentEnvironmentIsInItsMemory(t *testing.T) {
	needsPython(t)
	cmd := exec.Command(python, "-c", `
import os, sys
for order in sys.stdin:
    name, _, value = order.strip().partition("=")
    os.environ[name] = value
    print(os.getpid(), flush=True)
`)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/root", "RANK=5", "WORLD_SIZE=0"}
	orders, err := cmd.StdinPipe()
	require.NoError(t, err)
	answers, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, orders.Close())
		require.NoError(t, cmd.Wait())
	})
	proc, place, lines := newReader("/proc"), environPlace{}, bufio.NewScanner(answers)
	proc.WithPatience(hosttest.Patience)
	for _, order := range []string{"RANK=3", "WORLD_SIZE=8", "OTHER=" + strings.Repeat("x", 5000), "MASTER_ADDR=10.0.0.1", "RANK=4"} {
		_, err := orders.Write([]byte(order + "\n"))
		require.NoError(t, err)
		require.True(t, lines.Scan())
	}
	block, err := proc.current(uint32(cmd.Process.Pid), &place)
	require.NoError(t, err)
	l := parseEnviron(block)
	require.Equal(t, []any{4, 8, "10.0.0.1"}, []any{l.rank, l.worldSize, l.masterAddr})
	require.NotContains(t, string(block), "PATH", "others are nobody's business")

	_, err = proc.current(1<<30, &environPlace{})
	require.False(t, passing(err), "a process that is not there will not come: %v", err)
	began := time.Now()
	again, err := proc.current(uint32(cmd.Process.Pid), &place)
	require.NoError(t, err)
	require.Equal(t, block, again)
	t.Log("an environment that is as it was takes", time.Since(began))
}

// A file of another had that inode before: what it says of its environment is not believed of the next.
func TestAFileWithTheInodeOfAnotherIsReadItself(t *testing.T) {
	r := newReader(t.TempDir())
	r.WithPatience(hosttest.Patience)
	program := filepath.Join(t.TempDir(), "python3")
	at := func(place int) environSymbol {
		content := standin.Library([]standin.Function{{Name: "environ", Place: place, Code: []byte{0}}})
		require.NoError(t, os.WriteFile(program, content, 0o700))
		var info syscall.Stat_t
		require.NoError(t, syscall.Stat(program, &info))
		s, err := r.environSymbol(7, procfs.Mapping{Start: 1, End: 2, Offset: standin.CodeAt, Inode: info.Ino, Path: program})
		require.NoError(t, err)
		return s
	}
	require.NoError(t, os.MkdirAll(filepath.Join(r.Root(), "7"), 0o755))
	require.NoError(t, os.Symlink("/", filepath.Join(r.Root(), "7/root")))
	before := at(1)
	time.Sleep(20 * time.Millisecond) // a tick of the kernel's clock for files
	require.Equal(t, before.value+standin.Stride, at(2).value, "the file is as large, and nothing else is known of it")
}

const python = "/usr/bin/python3"

func needsPython(t *testing.T) {
	t.Helper()
	privtest.Require(t)
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs ", python)
	}
}

// starts starts Python without a rank in its environment, and returns its standard input and what it says first.
func starts(t *testing.T, args ...string) (cmd *exec.Cmd, end io.WriteCloser, first string) {
	t.Helper()
	cmd = exec.Command(python, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	end, err := cmd.StdinPipe()
	require.NoError(t, err)
	said, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(said)
	require.True(t, lines.Scan())
	return cmd, end, lines.Text()
}

// TestARankThatPythonStartsIsKnown is torch.multiprocessing.spawn without PyTorch: a process
// starts Python, which then sets its own variables and starts another program.
func TestARankThatPythonStartsIsKnown(t *testing.T) {
	needsPython(t)
	tracker := openTracker(t, Options{})
	exits := watch(t, tracker)
	script := filepath.Join(t.TempDir(), "train.py")
	require.NoError(t, os.WriteFile(script, []byte(`import multiprocessing, os, sys
def rank():
    os.environ.update(RANK="3", WORLD_SIZE="8", MASTER_ADDR="10.0.0.1", MASTER_PORT="29500")
    print(os.getpid(), flush=True)
    open("/proc/%d/fd/0" % os.getppid()).read()
    os._exit(7)
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=rank)
    child.start()
    child.join()
`), 0o600))
	cmd, end, first := starts(t, script)
	pid, err := strconv.ParseUint(first, 10, 32)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p, known := tracker.Lookup(uint32(pid), 0, time.Now())
		return known && p.IsRank()
	}, hosttest.Patience, 10*time.Millisecond)
	rank, _ := tracker.Lookup(uint32(pid), 0, time.Now())
	launcher, _ := tracker.Lookup(rank.ParentPID, 0, time.Now())
	require.Equal(t, []any{uint32(cmd.Process.Pid), rank.Domain, false}, []any{launcher.PID, launcher.Domain, launcher.Ended})
	require.Less(t, launcher.StartNS, rank.StartNS)
	require.NoError(t, end.Close())
	require.NoError(t, cmd.Wait())
	e := exitOf(t, exits, uint32(pid))
	require.Equal(t, []any{3, 8, "10.0.0.1:29500/8", false, uint32(pid), 7}, []any{e.Rank, e.WorldSize, e.Rendezvous, e.Inherited, e.RankPID, e.Code})
	p, known := tracker.Lookup(uint32(cmd.Process.Pid), 0, time.Now())
	require.True(t, known)
	require.False(t, p.IsRank(), "who started it is no rank")
}

// TestCallsShowWhichRankAProcessIs: where its environment says another one by then, that counts.
func TestCallsShowWhichRankAProcessIs(t *testing.T) {
	needsPython(t)
	tracker := openTracker(t, Options{})
	is := Place{Rank: 5, WorldSize: 8, Rendezvous: "communicator 0x7/8"}
	for environ, want := range map[string]Place{
		"{}":                               is,
		"{'RANK': '3', 'WORLD_SIZE': '4'}": {Rank: 3, WorldSize: 4},
	} {
		cmd, end, _ := starts(t, "-c", "import os, sys\nos.environ.update("+environ+")\nprint('said', flush=True)\nsys.stdin.read()")
		var known Process
		require.Eventually(t, func() bool {
			known, _ = tracker.Lookup(uint32(cmd.Process.Pid), 0, time.Now())
			if known.PID == 0 || known.IsRank() {
				return known.IsRank()
			}
			another := known
			another.StartNS++
			tracker.Ranked(another, Place{Rank: 0, WorldSize: 2}) // that has its number by now
			tracker.Ranked(known, Place{Rank: 8, WorldSize: 8})   // which cannot be
			tracker.Ranked(known, is)
			return false
		}, hosttest.Patience, 10*time.Millisecond, environ)
		require.Equal(t, want, Place{known.Rank, known.WorldSize, known.Rendezvous}, environ)
		require.False(t, known.Inherited)
		tracker.Ranked(known, Place{Rank: 1, WorldSize: 2})
		known, _ = tracker.Lookup(uint32(cmd.Process.Pid), 0, time.Now())
		require.Equal(t, want.Rank, known.Rank, "a rank stays the one it is")
		require.NoError(t, end.Close())
		require.NoError(t, cmd.Wait())
	}
}

// TestProcessesAreLookedAtInTurn: some are due again at the next round, and a round has an end.
func TestProcessesAreLookedAtInTurn(t *testing.T) {
	c := currents{of: map[uint32]*fairlru.Element[*current]{}}
	for pid := range uint32(3) {
		r := &record{startNS: 1}
		r.PID, r.Comm, r.Rank = pid, "python3", Unknown
		c.note(r, 0)
	}
	looked := map[uint32]bool{}
	now := uint64(firstAgain)
	for range 3 {
		one := c.next(now)[0] // there is time for one
		looked[one.pid] = true
		now += uint64(firstAgain)
		one.due = now
	}
	require.Len(t, looked, 3)
}
