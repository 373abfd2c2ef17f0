//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/pin"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// childPin in the environment is where the child "agent" pins.
const childPin = "IDENTITY_TEST_PIN"

// watchPinned is an agent: it prints each rank of the job "away" that it knows, and never
// ends by itself.
func watchPinned(root string) int {
	tracker, err := Open(Options{Pin: root})
	if err == nil {
		err = tracker.Report().Away.Err
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(os.Getpid())
	for known := map[uint32]bool{}; ; time.Sleep(time.Millisecond) {
		for _, r := range tracker.Ranks() {
			if r.JobID == "away" && !r.Inherited && !known[r.PID] {
				known[r.PID] = true
				fmt.Println(r.PID)
			}
		}
	}
}

func startAgent(t *testing.T, root string) *child {
	t.Helper()
	agent := startChild(t, "agent", childPin+"="+root)
	require.Equal(t, agent.pid(), agent.printed(t))
	return agent
}

func (c *child) killHard(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
}

func rankOf(n int) []string {
	return []string{fmt.Sprintf("RANK=%d", n), "WORLD_SIZE=4", "JOB_ID=away"}
}

// lateExits opens a tracker and returns what it tells of the job "away", by rank.
func lateExits(t *testing.T, root string, want int) (*Tracker, map[int]Exit) {
	t.Helper()
	tracker, err := Open(Options{Pin: root})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tracker.Close()) })
	told := make(chan Exit, 100)
	tracker.Exits(func(e Exit) {
		if e.JobID == "away" {
			told <- e
		}
	})
	exits := map[int]Exit{}
	for len(exits) < want {
		select {
		case e := <-told:
			require.NotContains(t, exits, e.Rank, "told twice")
			exits[e.Rank] = e
		case <-time.After(hosttest.Patience):
			t.Fatalf("%d of %d exits: %v", len(exits), want, exits)
		}
	}
	return tracker, exits
}

// A rank that dies while no agent runs is told at the next start, with the time of its death;
// so is one that began in that time. An agent that is killed leaves both.
func TestDeathsWhileTheAgentIsAwayAreToldLate(t *testing.T) {
	privtest.Require(t)
	root := filepath.Join(privtest.BPFFS(t), "tracecore")
	agent := startAgent(t, root)
	old, lives := startChild(t, "exit7wait", rankOf(1)...), startChild(t, "wait", rankOf(2)...)
	require.ElementsMatch(t, []uint32{old.pid(), lives.pid()}, []uint32{agent.printed(t), agent.printed(t)})
	agent.killHard(t)

	before := time.Now()
	old.finish()
	fresh := startChild(t, "exit7", rankOf(3)...)
	fresh.finish()
	after := time.Now()

	tracker, exits := lateExits(t, root, 2)
	for rank, child := range map[int]*child{1: old, 3: fresh} {
		e := exits[rank]
		require.True(t, e.Late, e)
		require.Equal(t, child.pid(), e.PID)
		require.Equal(t, child.pid(), e.RankPID)
		require.Equal(t, 7, e.Code)
		require.Equal(t, 4, e.WorldSize)
		require.WithinRange(t, e.Time, before, after)
		require.NotZero(t, e.Domain)
	}
	away := tracker.Report().Away
	require.True(t, away.Pinned)
	require.NoError(t, away.Err)
	require.NotZero(t, away.Records)
	require.Zero(t, away.Lost)
	require.WithinRange(t, away.Since, before.Add(-hosttest.Patience), before)
	require.WithinRange(t, away.Until, after, time.Now())
	known, found := tracker.Lookup(lives.pid(), 0, time.Now())
	require.True(t, found && known.Rank == 2)

	// One that dies now is told as always.
	again := make(chan Exit, 100)
	tracker.Exits(func(e Exit) {
		if e.JobID == "away" {
			again <- e
		}
	})
	require.Len(t, again, 2, "who asks later hears it too")
	lives.finish()
	for e := range again {
		if e.Rank == 2 {
			require.False(t, e.Late)
			return
		}
	}
}

// An agent that ends well leaves its probe, too: an upgrade is such an end. The set that it
// took up itself is gone.
func TestARestartKeepsOneSet(t *testing.T) {
	privtest.Require(t)
	root := filepath.Join(privtest.BPFFS(t), "tracecore")
	for range 3 {
		tracker, err := Open(Options{Pin: root})
		require.NoError(t, err)
		require.NoError(t, tracker.Report().Away.Err)
		require.NoError(t, tracker.Close())
		sets, err := os.ReadDir(filepath.Join(root, Name))
		require.NoError(t, err)
		require.Len(t, sets, 1)
	}
	died := startChild(t, "exit7", rankOf(0)...)
	died.finish()
	_, exits := lateExits(t, root, 1)
	require.Equal(t, died.pid(), exits[0].PID)
}

// Two agents at once, as in a rolling update: the second takes nothing from the first.
func TestALivingAgentKeepsItsRing(t *testing.T) {
	privtest.Require(t)
	root := filepath.Join(privtest.BPFFS(t), "tracecore")
	agent := startAgent(t, root)
	second, err := Open(Options{Pin: root})
	require.NoError(t, err)
	require.Zero(t, second.Report().Away.Since)
	rank := startChild(t, "wait", rankOf(1)...)
	require.Equal(t, rank.pid(), agent.printed(t), "the first still sees")
	n, err := pin.Forget(root, "")
	require.NoError(t, err)
	require.Zero(t, n)

	require.NoError(t, second.Close())
	agent.killHard(t)
	rank.finish()
	_, exits := lateExits(t, root, 1) // once, though both had seen it
	require.Equal(t, rank.pid(), exits[1].PID)
}

func TestWhereNothingCanBePinnedItSaysWhatToDo(t *testing.T) {
	privtest.Require(t)
	tracker, err := Open(Options{Pin: filepath.Join(t.TempDir(), "tracecore")})
	require.NoError(t, err)
	defer func() { require.NoError(t, tracker.Close()) }()
	require.False(t, tracker.Report().Away.Pinned)
	require.ErrorContains(t, tracker.Report().Away.Err, "is no BPF file system: mount one there")
	rank := startChild(t, "wait", rankOf(1)...)
	// The environment of a process that has just begun its program is empty for a moment.
	require.Eventually(t, func() bool {
		p, known := tracker.Lookup(rank.pid(), 0, time.Now())
		return known && p.Rank == 1
	}, hosttest.Patience, time.Millisecond, "it works all the same")
}

// Ranks are remembered as they were known, whatever their launcher called them.
func TestRememberedRanksAreWhatTheyWere(t *testing.T) {
	f := facts{
		pid: 7, parentPID: 3, startNS: 123456789, comm: "python\x01", drill: true,
		launch: launch{rank: 3, localRank: 1, worldSize: 8, jobID: strings.Repeat("j", maxJobID), masterAddr: strings.Repeat("h", maxHostName), masterPort: 1, attempt: 2, launcher: "torchrun"},
		home:   home{membership{Path: "/a", ContainerID: "c", PodUID: "p"}, "pod:x", strings.Repeat("n", maxHostName)},
	}
	r, _ := derive(f, nil)
	value, err := r.remembered()
	require.NoError(t, err)
	require.Len(t, value, rememberedBytes)
	got, err := parseRemembered(value)
	require.NoError(t, err)
	f.led = &Born{f.pid, f.startNS}
	require.Equal(t, f, got)

	r.CgroupPath = strings.Repeat("d", rememberedBytes)
	value, err = r.remembered()
	require.NoError(t, err)
	f.membership.Path = ""
	got, err = parseRemembered(value)
	require.NoError(t, err)
	require.Equal(t, f, got)

	r.Comm = strings.Repeat("x", rememberedBytes)
	_, err = r.remembered()
	require.ErrorIs(t, err, errTooLong)
}

// No environment says the job of a rank that is known by its calls: nobody could find it again.
func TestARankThatIsKnownByItsCallsIsRemembered(t *testing.T) {
	f := facts{
		pid: 7, parentPID: 3, startNS: 5, comm: "python", home: home{domain: "user 1"},
		launch: launch{rank: 3, localRank: Unknown, worldSize: 8, attempt: Unknown, rendezvous: "nccl:0123456789abcdef/8", byCalls: true},
	}
	r, _ := derive(f, nil)
	require.Equal(t, f.launch.rendezvous, r.Rendezvous)
	value, err := r.remembered()
	require.NoError(t, err)
	got, err := parseRemembered(value)
	require.NoError(t, err)
	f.led = &Born{f.pid, f.startNS}
	require.Equal(t, f, got)
	again, _ := derive(got, nil)
	require.Equal(t, r.Process, again.Process)
}

func FuzzParseRemembered(f *testing.F) {
	r, _ := derive(facts{pid: 7, startNS: 1, launch: noLaunch()}, nil)
	value, err := r.remembered()
	require.NoError(f, err)
	f.Add(value)
	f.Fuzz(func(t *testing.T, value []byte) {
		if got, err := parseRemembered(value); err == nil {
			derive(got, nil)
		}
	})
}

func TestARememberedRankKeepsItsTrace(t *testing.T) {
	r := &record{startNS: 5, Process: Process{PID: 7, Rank: 1, LocalRank: Unknown, WorldSize: 2, Trace: sampleTrace()}}
	value, err := r.remembered()
	require.NoError(t, err)
	f, err := parseRemembered(value)
	require.NoError(t, err)
	require.Equal(t, sampleTrace(), f.launch.trace)
}
