//go:build linux && (amd64 || arm64)

package identity

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// ofLightning is what PyTorch Lightning gives to the ranks that it starts, and sets for its own.
func ofLightning(node, local, world string) []string {
	return []string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "NODE_RANK=" + node, "LOCAL_RANK=" + local, "WORLD_SIZE=" + world}
}

// The first process of Lightning on a node is a rank, and starts the others.
func TestFirstProcessOfLightningIsARankToo(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(99, 1, 0, 0, "PATH=/bin") // the user's shell
	s.exec(100, 99, 1, 1, "PATH=/bin")
	s.exec(101, 100, 2, 2, "PATH=/bin") // a program that the first one runs
	s.exec(102, 100, 3, 3, ofLightning("0", "1", "3")...)
	s.exec(103, 100, 3, 3, ofLightning("0", "2", "3")...)
	s.exec(104, 103, 4, 4, ofLightning("0", "2", "3")...) // a worker of that
	s.settle()
	s.says(100, 1, ofLightning("0", "0", "3")...)
	s.exec(105, 100, 5, 5, ofLightning("0", "0", "3")...) // a program of the first one
	s.settle()

	for pid, want := range map[uint32][]any{
		99: {Unknown, Unknown, false, uint32(0)}, 100: {0, 3, false, uint32(100)}, 101: {0, 3, true, uint32(100)}, 102: {1, 3, false, uint32(102)},
		103: {2, 3, false, uint32(103)}, 104: {2, 3, true, uint32(103)}, 105: {0, 3, true, uint32(100)},
	} {
		p := s.lookup(pid, 0, 6)
		require.Equal(t, want, []any{p.Rank, p.WorldSize, p.Inherited, p.RankPID}, "process %d", pid)
	}
	require.Equal(t, s.lookup(100, 0, 6).Rendezvous, s.lookup(103, 0, 6).Rendezvous)

	s.exit(103, 100, 3, 8, 1<<8)
	s.exit(102, 100, 3, 9, 9)
	s.exit(100, 99, 1, 9, 9)
	for i, pid := range []uint32{103, 102, 100} {
		e := exitOf(t, s.exits, pid)
		require.Equal(t, []any{[]int{2, 1, 0}[i], false, false}, []any{e.Rank, e.Inherited, e.Helper}, "process %d", pid)
	}
}

// Its ranks begin one after another, and the first may be known before the others.
func TestRanksOfLightningThatBeginLateAreNotOfTheFirst(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, "PATH=/bin")
	s.settle()
	s.says(100, 0, ofLightning("0", "0", "2")...)
	s.exec(101, 100, 6, 6, ofLightning("0", "1", "2")...)
	s.settle()
	require.Equal(t, []any{0, false}, []any{s.lookup(100, 0, 7).Rank, s.lookup(100, 0, 7).Inherited})
	require.Equal(t, []any{1, false, uint32(101)}, []any{s.lookup(101, 0, 7).Rank, s.lookup(101, 0, 7).Inherited, s.lookup(101, 0, 7).RankPID})
}

// One of another world below it is not of Lightning's.
func TestALauncherOfAnotherWorldIsNoRankOfLightning(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, "PATH=/bin")
	s.exec(101, 100, 1, 1, "RANK=1", "WORLD_SIZE=8")
	s.settle()
	s.says(100, 0, ofLightning("0", "0", "2")...)
	require.Equal(t, Unknown, s.lookup(100, 0, 2).Rank)
}

// Its environment does not tell the rank on a second node. The calls do, and the job is that of the store.
func TestRanksOfLightningOnOtherNodesAreKnownByTheirCalls(t *testing.T) {
	for name, c := range map[string]struct {
		world int
		want  string
	}{
		"the same world": {4, "10.0.0.1:29500/4"},
		"another one":    {2, "communicator"},
	} {
		s := newScripted(t, Options{}, nil)
		environ := []string{"MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "NODE_RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=4"}
		s.exec(100, 1, 0, 0, environ...)
		s.settle()
		require.Equal(t, Unknown, s.lookup(100, 0, 1).Rank)
		calls := noLaunch()
		calls.rank, calls.worldSize, calls.rendezvous, calls.byCalls = 1, c.world, "communicator", true
		s.becomes(&current{pid: 100}, calls.meets(parseEnviron(block(environ...))))
		require.Equal(t, Unknown, s.lookup(100, 0, 1).Rank, "of another start")
		s.becomes(&current{pid: 100, startNS: s.ns(0)}, calls.meets(parseEnviron(block(environ...))))
		p := s.lookup(100, 0, 1)
		require.Equal(t, []any{1, c.world, c.want}, []any{p.Rank, p.WorldSize, p.Rendezvous}, name)
	}
}

// The first one is looked at as soon as it starts another rank, and needs no second look then.
func TestTheFirstOfLightningIsARankOnceItStartsAnother(t *testing.T) {
	s := newScripted(t, Options{}, nil)
	s.exec(100, 1, 0, 0, "PATH=/bin")
	s.settle()
	s.mu.Lock()
	first := s.currents.of[100].Value
	first.due, first.pause = bootNow()+uint64(longestAgain), longestAgain
	s.mu.Unlock()
	s.exec(101, 100, 1, 1, ofLightning("0", "1", "2")...)
	s.settle()
	s.mu.Lock()
	due := first.due
	s.mu.Unlock()
	require.Less(t, due, bootNow()+uint64(longestAgain), "it was looked at")

	said := parseEnviron(block(ofLightning("0", "0", "2")...))
	one := &current{pid: 100, startNS: s.ns(0)}
	require.True(t, s.started(one, said))
	require.False(t, s.started(one, parseEnviron(block("RANK=0", "WORLD_SIZE=2"))), "it may go on to say other ranks")
	require.False(t, s.started(&current{pid: 101, startNS: s.ns(1)}, said), "it has started nobody")
}

// TestTheFirstOfLightningIsKnown: the first process sets its variables, starts the others, and dies.
func TestTheFirstOfLightningIsKnown(t *testing.T) {
	needsPython(t)
	tracker := openTracker(t, Options{})
	exits := watch(t, tracker)
	cmd, end, first := starts(t, "-c", `import os, subprocess, sys
os.environ.update(MASTER_ADDR="10.0.0.1", MASTER_PORT="29500", NODE_RANK="0", LOCAL_RANK="0", WORLD_SIZE="3")
others = [subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], env=os.environ | {"LOCAL_RANK": str(n)}) for n in (1, 2)]
print(*(o.pid for o in others), flush=True)
sys.stdin.readline()
os._exit(7)
`)
	require.Eventually(t, func() bool {
		p, known := tracker.Lookup(uint32(cmd.Process.Pid), 0, time.Now())
		return known && p.IsRank()
	}, hosttest.Patience, 10*time.Millisecond)
	_, err := end.Write([]byte("end\n"))
	require.NoError(t, err)
	e := exitOf(t, exits, uint32(cmd.Process.Pid))
	require.Equal(t, []any{0, 3, "10.0.0.1:29500/3", false, 7}, []any{e.Rank, e.WorldSize, e.Rendezvous, e.Inherited, e.Code})
	for n, word := range strings.Fields(first) {
		pid, err := strconv.ParseUint(word, 10, 32)
		require.NoError(t, err)
		p, known := tracker.Lookup(uint32(pid), 0, time.Now())
		require.True(t, known)
		require.Equal(t, []any{n + 1, "10.0.0.1:29500/3", false}, []any{p.Rank, p.Rendezvous, p.Inherited})
	}
	require.NoError(t, end.Close())
	require.Error(t, cmd.Wait())
}
