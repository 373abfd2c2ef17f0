//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// rungs are those that this kernel has: the second works wherever the first does.
func rungs(t *testing.T) []string {
	t.Helper()
	if open(t, Options{}).Report().Rung == RungCookie {
		return []string{RungCookie, RungOneLayout}
	}
	return []string{RungOneLayout}
}

func TestOpenFiresEachRung(t *testing.T) {
	for _, rung := range rungs(t) {
		p := open(t, Options{Rung: rung})
		require.Equal(t, probe.Report{
			Probe: Name, Rung: rung, Attempts: []probe.Attempt{{Rung: rung, Outcome: probe.OK, Fired: true}},
		}, p.Report())
		require.Equal(t, probe.Stats{}, p.Stats())
		require.Empty(t, scan(t, p).Communicators, "the self-test leaves nothing")
		nothing(t, p)
	}
}

func TestUnknownRungIsAnError(t *testing.T) {
	_, err := Open(Options{Rung: "uretprobe/libnccl"})
	require.ErrorContains(t, err, RungCookie)
}

// Each collective, as a cause and what it must count.
func TestEachOperationIsCountedWithItsArguments(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297})
	w := watch(t, p, j)
	require.Equal(t, 1, w.NCCL)
	require.Zero(t, w.Unknown)
	require.NoError(t, j.Do(plant(1, 0x1122334455667788, 5, 8)))
	var calls [Operations]uint64
	collectives := uint64(0)
	for number, tc := range []struct {
		function  string
		operation Operation
		rooted    bool
	}{
		{"ncclAllReduce", AllReduce, false},
		{"ncclBroadcast", Broadcast, true},
		{"ncclReduce", Reduce, true},
		{"ncclAllGather", AllGather, false},
		{"ncclReduceScatter", ReduceScatter, false},
		{"ncclAlltoAll", AllToAll, false},
		{"ncclGather", Gather, true},
		{"ncclScatter", Scatter, true},
		{"ncclSend", Send, true},
		{"ncclRecv", Recv, true},
	} {
		before := time.Now()
		require.NoError(t, j.Do(fakejob.Call{Function: tc.function, Comm: 1, Count: uint64(number) + 4096, Type: 9, Root: int32(number)}))
		c := only(t, p)
		require.WithinRange(t, c.Last.Time, before.Add(-time.Second), time.Now().Add(time.Second))
		want := Call{Time: c.Last.Time, Operation: tc.operation, Type: 9, Count: uint64(number) + 4096, Root: -1}
		if tc.rooted {
			want.Root = int32(number)
		}
		require.Equal(t, want, c.Last, tc.function)
		require.Equal(t, tc.function, "nccl"+tc.operation.String())
		calls[tc.operation]++
		require.Equal(t, calls, c.Calls)
		if !tc.operation.PointToPoint() {
			collectives++
			require.Equal(t, Numbered{Number: collectives - 1, Call: want}, c.Recent[len(c.Recent)-1])
		}
		require.Equal(t, collectives, c.Collectives)
	}
	c := only(t, p)
	require.Equal(t, Known, c.Identity)
	require.Equal(t, uint64(0x1122334455667788), c.Hash)
	require.Equal(t, []int32{5, 8, 3}, []int32{c.Rank, c.Size, c.Device})
	require.Equal(t, "0000:1b:00.0", c.GPU)
	require.Equal(t, "bf16", c.Last.Type.String())
	require.EqualValues(t, 2, c.PointToPoint())
	require.NoError(t, j.Do(fakejob.Call{Function: "ncclBcast", Comm: 1}))
	require.Equal(t, c.Calls, only(t, p).Calls, "it calls ncclBroadcast, which counts")
}

// The library says where it keeps the rank, whatever release it is.
func TestLayoutIsThatOfTheLibrary(t *testing.T) {
	for _, rung := range rungs(t) {
		for _, offset := range []uint64{0x80, 0x17b0, 0xfff8, 0x1206d8} {
			p := open(t, Options{Rung: rung})
			j := start(t, fakejob.Library{RankOffset: offset, Functions: some()})
			watch(t, p, j)
			require.NoError(t, j.Do(plant(1, 7, 1, 4), fakejob.AllReduce(1, 1)))
			for function, want := range map[string]int32{"ncclCommUserRank": 1, "ncclCommCount": 4, "ncclCommCuDevice": 3} {
				answer, err := j.Ask(fakejob.Call{Function: function, Comm: 1})
				require.NoError(t, err)
				require.Equal(t, want, answer.Value, "the stand-in is one")
			}
			c := only(t, p)
			require.Equal(t, Known, c.Identity)
			require.Equal(t, []int32{1, 4}, []int32{c.Rank, c.Size})
		}
	}
}

func TestLayoutThatIsNotClearIsSaidAndCallsCountAllTheSame(t *testing.T) {
	for want, l := range map[error]fakejob.Library{
		errNoLayout:    {Functions: some()},
		errAmbiguous:   {RankOffset: 0x2000, Second: 0x3000, Functions: some()},
		errNoFunctions: {RankOffset: 0x2000, Functions: []string{"ncclAllReduce", "ncclCommUserRank", "ncclCommCount"}},
	} {
		p := open(t, Options{})
		j := start(t, l)
		w := watch(t, p, j)
		require.Equal(t, 1, w.Unknown)
		require.ErrorIs(t, w.Layout, want)
		require.NoError(t, j.Do(plant(1, 7, 1, 4), fakejob.AllReduce(1, 1)))
		c := only(t, p)
		require.Equal(t, NoLayout, c.Identity)
		require.EqualValues(t, 1, c.Collectives)
		require.Equal(t, []int32{-1, 0}, []int32{c.Rank, c.Size})
		require.Zero(t, c.Hash)
	}
}

// NCCL before 2.18 has no commHash in front of the rank.
func TestLibraryWithoutSplitHasNoHash(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: 0x17b0, Functions: []string{"ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice", "ncclAllReduce"}})
	watch(t, p, j)
	require.NoError(t, j.Do(plant(1, 7, 1, 4), fakejob.AllReduce(1, 1)))
	c := only(t, p)
	require.Equal(t, Known, c.Identity)
	require.Equal(t, []int32{1, 4}, []int32{c.Rank, c.Size})
	require.Zero(t, c.Hash)
	require.Empty(t, c.GPU)
}

// Two libraries with two layouts: cookies tell them apart, and without them nothing is
// taken for known.
func TestTwoLayoutsAreToldApartOrUnknown(t *testing.T) {
	for _, rung := range rungs(t) {
		p := open(t, Options{Rung: rung})
		one, other := start(t, fakejob.Library{RankOffset: 0x17b0, Functions: some()}), start(t, fakejob.Library{RankOffset: 0x2000, Functions: some()})
		require.Equal(t, 2, watch(t, p, one, other).NCCL)
		require.NoError(t, one.Do(plant(1, 7, 1, 4), fakejob.AllReduce(1, 1)))
		require.NoError(t, other.Do(plant(1, 8, 2, 4), fakejob.AllReduce(1, 1)))
		s := scan(t, p)
		require.Len(t, s.Communicators, 2)
		for _, c := range s.Communicators {
			if rung == RungOneLayout {
				require.Equal(t, NoLayout, c.Identity)
				continue
			}
			require.Equal(t, Known, c.Identity)
			require.Equal(t, map[uint64]int32{7: 1, 8: 2}[c.Hash], c.Rank)
		}
	}
}

// Memory that was never touched is not faulted in; once it is there, it is read.
func TestMemoryThatIsNotResidentIsReadLater(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some()})
	watch(t, p, j)
	require.NoError(t, j.Do(fakejob.AllReduce(1, 1)))
	require.Equal(t, Unread, only(t, p).Identity)
	require.NoError(t, j.Do(plant(1, 7, 9, 4), fakejob.AllReduce(1, 1)))
	require.Equal(t, Unread, only(t, p).Identity, "rank 9 of 4 cannot be")
	require.NoError(t, j.Do(plant(1, 7, 3, 4), fakejob.AllReduce(1, 1)))
	c := only(t, p)
	require.Equal(t, Known, c.Identity)
	require.EqualValues(t, 3, c.Rank)
	require.EqualValues(t, 3, c.Collectives)
}

// uniqueID is what ncclGetUniqueId returns: a magic and where rank 0 listens.
func uniqueID(magic byte) []byte {
	id := make([]byte, fakejob.IDBytes)
	copy(id, []byte{magic, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0xbd, 0xc3, 10, 0, 0, 1})
	return id
}

func TestInitsAreToldWithRankSizeAndRoot(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297})
	watch(t, p, j)
	id := uniqueID(1)
	for _, function := range []string{"ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable"} {
		require.NoError(t, j.Do(fakejob.Call{Function: function, Size: 8, Rank: 5, ID: id}))
		e := next(t, p)
		require.Equal(t, function, e.Kind.String())
		require.True(t, e.Kind.Init())
		require.Equal(t, []int32{5, 8}, []int32{e.Rank, e.Size})
		require.Equal(t, netip.MustParseAddrPort("10.0.0.1:48579"), e.Root)
		require.Equal(t, idHashes(id)[0], e.Hash)
		require.Equal(t, j.PID(), e.PID)
	}
	require.NoError(t, j.Do(
		fakejob.Call{Function: "ncclCommInitAll", Size: 4}, plant(1, 77, 1, 4), fakejob.AllReduce(1, 1),
		fakejob.Call{Function: "ncclCommSplit", Comm: 1, Color: 2, Key: 3}, fakejob.Call{Function: "ncclCommShrink", Comm: 1, Size: 1},
		fakejob.Call{Function: "ncclCommGrow", Comm: 1, Size: 9, Rank: 8}, fakejob.Call{Function: "ncclCommFinalize", Comm: 1},
		fakejob.Call{Function: "ncclCommRevoke", Comm: 1}, fakejob.Call{Function: "ncclCommAbort", Comm: 1},
	))
	e := next(t, p)
	require.Equal(t, InitAll, e.Kind)
	require.EqualValues(t, 4, e.Size)
	require.False(t, e.Root.IsValid())
	e = next(t, p)
	require.Equal(t, Split, e.Kind)
	require.Equal(t, []int32{2, 3}, []int32{e.Color, e.Key})
	require.EqualValues(t, 77, e.Hash)
	require.EqualValues(t, 1, next(t, p).Size)
	e = next(t, p)
	require.Equal(t, []int32{9, 8}, []int32{e.Size, e.Rank})
	for _, kind := range []Kind{Finalize, Revoke, Abort} {
		e = next(t, p)
		require.Equal(t, kind, e.Kind)
		require.EqualValues(t, 77, e.Hash)
		require.EqualValues(t, 1, e.Collectives)
	}
	require.Empty(t, scan(t, p).Communicators)
	nothing(t, p)
}

// What was destroyed is forgotten, and its address may be another communicator's at once.
func TestAddressThatIsUsedAgainIsAnotherCommunicator(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommDestroy")})
	watch(t, p, j)
	require.NoError(t, j.Do(plant(1, 7, 1, 4), fakejob.AllReduce(1, 1), fakejob.AllReduce(1, 1), fakejob.Call{Function: "ncclCommDestroy", Comm: 1}))
	require.EqualValues(t, 2, next(t, p).Collectives)
	require.NoError(t, j.Do(plant(1, 8, 0, 2), fakejob.AllReduce(1, 1)))
	c := only(t, p)
	require.EqualValues(t, 8, c.Hash)
	require.EqualValues(t, 1, c.Collectives)
}

// A communicator is exact only when it was seen being made: by an init, or by the split
// of one that was.
func TestExactIsWhatWasSeenBeingMade(t *testing.T) {
	p := open(t, Options{})
	l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRankConfig")}
	j := start(t, l)
	watch(t, p, j)
	id := uniqueID(2)
	parent := idHashes(id)[0]
	child, old := splitHash(parent, 1, 3), uint64(99)
	require.NoError(t, j.Do(
		plant(4, old, 0, 2), fakejob.AllReduce(4, 1),
		fakejob.Call{Function: "ncclCommInitRankConfig", Size: 4, Rank: 1, ID: id}, plant(1, parent, 1, 4), fakejob.AllReduce(1, 1),
		fakejob.Call{Function: "ncclCommSplit", Comm: 1, Color: 3}, plant(2, child, 0, 2), fakejob.AllReduce(2, 1),
		fakejob.Call{Function: "ncclCommSplit", Comm: 4, Color: 3}, plant(3, splitHash(old, 1, 3), 0, 2), fakejob.AllReduce(3, 1),
	))
	for range 3 {
		next(t, p)
	}
	s := scan(t, p)
	for hash, exact := range map[uint64]bool{parent: true, child: true, old: false, splitHash(old, 1, 3): false} {
		require.Equal(t, exact, of(t, s, j, hash).Exact, "%#x", hash)
	}
	require.NoError(t, j.Close())
	require.Empty(t, scan(t, p).Communicators, "its process has ended")
	require.Empty(t, p.births.processes)
}

// Calls that were not counted make a count worthless, also where all else was seen.
func TestNothingIsExactAfterCallsWentUncounted(t *testing.T) {
	l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRank")}
	made := func(j *fakejob.Job, p *Probe, magic byte, comm int) uint64 {
		id := uniqueID(magic)
		hash := idHashes(id)[0]
		require.NoError(t, j.Do(fakejob.Call{Function: "ncclCommInitRank", Size: 2, ID: id}, plant(comm, hash, 0, 2), fakejob.AllReduce(comm, 1)))
		next(t, p)
		return hash
	}
	for name, lose := range map[string]func(*Probe, *fakejob.Job){
		"the library was detached for a while": func(p *Probe, j *fakejob.Job) {
			watch(t, p)
			require.NoError(t, j.Do(fakejob.AllReduce(1, 1)))
			watch(t, p, j)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, Options{})
			j := start(t, l)
			watch(t, p, j)
			before := made(j, p, 1, 1)
			require.True(t, of(t, scan(t, p), j, before).Exact)
			lose(p, j)
			require.False(t, of(t, scan(t, p), j, before).Exact)
			after := made(j, p, 2, 2)
			s := scan(t, p)
			require.True(t, of(t, s, j, after).Exact, "what is made from then on is")
			require.False(t, of(t, s, j, before).Exact)
		})
	}
}

// Nor is a communicator exact whose first calls found no room; those that were there before
// are, and those that are made later.
func TestNothingIsExactWhoseCallsFoundNoRoom(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRank", "ncclCommDestroy")})
	watch(t, p, j)
	made := func(magic byte, comm int) uint64 {
		id := uniqueID(magic)
		hash := idHashes(id)[0]
		require.NoError(t, j.Do(fakejob.Call{Function: "ncclCommInitRank", Size: 2, ID: id}, plant(comm, hash, 0, 2), fakejob.AllReduce(comm, 1)))
		next(t, p)
		return hash
	}
	const crowd = 50
	before := made(1, 1)
	require.NoError(t, j.Do(many(crowd, 3000)))
	refused := made(2, 2)
	destroyed := func(comm int) Event {
		require.NoError(t, j.Do(fakejob.Call{Function: "ncclCommDestroy", Comm: comm}))
		return next(t, p)
	}
	destroyed(crowd)
	require.NoError(t, j.Do(fakejob.AllReduce(2, 1), fakejob.AllReduce(2, 1)))
	s := scan(t, p)
	c := of(t, s, j, refused)
	require.False(t, c.Exact)
	require.EqualValues(t, 2, c.Collectives, "of three")
	require.True(t, of(t, s, j, before).Exact)

	require.EqualValues(t, 2, destroyed(2).Collectives)
	later := made(3, 3)
	require.True(t, of(t, scan(t, p), j, later).Exact)
	requireShared(t, p)
}

// The rank that did not call is the one with the smaller count: with communicators that
// are older than the probe as with new ones.
func TestRankThatDidNotCallIsSeen(t *testing.T) {
	p := open(t, Options{})
	l := fakejob.Library{RankOffset: offset2297, Functions: some()}
	file, err := l.Install(t.TempDir())
	require.NoError(t, err)
	jobs := make([]*fakejob.Job, 4)
	for rank := range jobs {
		jobs[rank] = join(t, l, file)
		require.NoError(t, jobs[rank].Do(plant(1, 7, int32(rank), 4), fakejob.AllReduce(1, 1))) // before the probe
	}
	require.Equal(t, 1, watch(t, p, jobs...).Libraries)
	for step := range 40 {
		for rank, j := range jobs {
			if rank == 2 && step == 39 {
				continue
			}
			require.NoError(t, j.Do(fakejob.AllReduce(1, uint64(step))))
		}
	}
	s := scan(t, p)
	for rank, j := range jobs {
		c := of(t, s, j, 7)
		want := uint64(40)
		if rank == 2 {
			want = 39
		}
		require.EqualValues(t, rank, c.Rank)
		require.Equal(t, want, c.Collectives)
		require.False(t, c.Exact)
		require.Len(t, c.Recent, 32)
		require.Equal(t, want-32, c.Recent[0].Number)
		require.Equal(t, want-1, c.Recent[31].Count)
		require.False(t, c.Recent[31].Time.Before(c.Recent[0].Time))
	}
}

// One process with two GPUs (JAX): one hash, two ranks.
// Ranks sample the same calls, however fast and from when on each of them calls, and never
// more than so many a second.
func TestRanksSampleTheSameCalls(t *testing.T) {
	p := open(t, Options{})
	l := fakejob.Library{RankOffset: offset2297, Functions: some()}
	jobs := []*fakejob.Job{start(t, l)}
	watch(t, p, jobs...)
	require.NoError(t, jobs[0].Do(plant(1, 0xabc, 0, 2), plant(2, 0xdef, 1, 2)))
	step := func(comm, times int) {
		call := fakejob.AllReduce(comm, 1)
		call.Times = times
		require.NoError(t, jobs[0].Do(call))
	}
	step(1, 12)
	c := of(t, scan(t, p), jobs[0], 0xabc)
	require.Len(t, c.Samples, 12, "each call, while they are few")
	for n, s := range c.Samples {
		require.EqualValues(t, n, s.Number)
	}
	began := time.Now()
	step(1, 20_000)
	step(2, 20_012)
	one, other := of(t, scan(t, p), jobs[0], 0xabc), of(t, scan(t, p), jobs[0], 0xdef)
	for _, c := range []Communicator{one, other} {
		require.Len(t, c.Samples, 16)
		rare := 0
		for i, s := range c.Samples {
			require.Less(t, s.Number, c.Collectives)
			rare = max(rare, s.Level())
			if i > 0 {
				require.Less(t, c.Samples[i-1].Number, s.Number)
				require.False(t, s.Time.Before(c.Samples[i-1].Time))
			}
		}
		require.Greater(t, rare, 4, "it is rarer by now")
	}
	if time.Since(began) > 3*time.Second {
		return // so slow that the two are sampled at different rates
	}
	for i := range one.Samples {
		require.Equal(t, one.Samples[i].Number, other.Samples[i].Number)
	}
}

// A communicator that is older than the probe says itself how many launches it has had.
func TestCommunicatorsThatAreOlderSayHowOftenTheyWereCalled(t *testing.T) {
	p := open(t, Options{})
	l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclSend")}
	job := start(t, l)
	watch(t, p, job)
	planted := plant(1, 0xabc, 1, 4)
	planted.Planted.Launches = 10_400
	require.NoError(t, job.Do(planted))
	for range agreements {
		require.NoError(t, job.Do(fakejob.AllReduce(1, 1)))
		require.False(t, only(t, p).Aligned)
	}
	require.NoError(t, job.Do(fakejob.AllReduce(1, 1)))
	c := only(t, p)
	require.False(t, c.Exact)
	require.True(t, c.Aligned)
	require.EqualValues(t, 10_400, c.Before)
	require.EqualValues(t, agreements+1, c.Collectives)
	require.NoError(t, job.Do(fakejob.Call{Function: "ncclSend", Comm: 1, Count: 1}))
	require.False(t, only(t, p).Aligned, "what goes to single ranks is counted as well")
}

func TestTwoRanksOfOneProcessAreTwo(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some("ncclGroupStart", "ncclGroupEnd")})
	watch(t, p, j)
	group := fakejob.Call{Function: "ncclGroupStart"}
	require.NoError(t, j.Do(plant(1, 7, 0, 2), plant(2, 7, 1, 2), group, group, fakejob.AllReduce(1, 1), fakejob.Call{Function: "ncclGroupEnd"},
		fakejob.AllReduce(2, 1), fakejob.Call{Function: "ncclGroupEnd"}, fakejob.AllReduce(2, 1)))
	s := scan(t, p)
	require.Len(t, s.Communicators, 2)
	for _, c := range s.Communicators {
		require.EqualValues(t, 7, c.Hash)
		require.EqualValues(t, c.Rank+1, c.Collectives)
		require.Zero(t, c.GroupDepth, "its groups have ended")
	}
}

// A call in a group is launched when the outermost group ends.
func TestAGroupThatIsOpenYet(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some("ncclGroupStart", "ncclGroupEnd")})
	begin, end := fakejob.Call{Function: "ncclGroupStart"}, fakejob.Call{Function: "ncclGroupEnd"}
	require.NoError(t, j.Do(plant(1, 7, 0, 2), begin)) // unseen: so may its end have been
	watch(t, p, j)
	depth := func(calls ...fakejob.Call) uint32 {
		require.NoError(t, j.Do(calls...))
		return only(t, p).GroupDepth
	}
	require.Zero(t, depth(fakejob.AllReduce(1, 1)))
	require.EqualValues(t, 1, depth(begin, fakejob.AllReduce(1, 1)))
	require.EqualValues(t, 2, depth(begin))
	require.EqualValues(t, 2, depth(fakejob.AllReduce(1, 1)))
	require.EqualValues(t, 1, depth(end))
	require.Zero(t, depth(end), "it has ended, without another call")
	require.Zero(t, depth(fakejob.AllReduce(1, 1)))
	require.Zero(t, depth(begin), "the last call came before it")
	require.Zero(t, depth(end))

	require.EqualValues(t, 1, depth(begin, fakejob.AllReduce(1, 1)))
	slot := only(t, p).slot
	require.NoError(t, p.hooks.restrict(slot, NoCalls))
	require.NoError(t, p.hooks.restrict(slot, Unlimited))
	require.Zero(t, depth(), "its end may have gone unseen")
	require.Zero(t, depth(fakejob.AllReduce(1, 1)))
	require.EqualValues(t, 1, depth(begin, fakejob.AllReduce(1, 1)))
}

func TestLaunchesOfCUDAGraphsAreCounted(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{Name: "libcuda.so.550.54.14", Functions: []string{"cuGraphLaunch", "cuGraphLaunch_ptsz"}})
	w := watch(t, p, j)
	require.Equal(t, 1, w.Libraries)
	require.Zero(t, w.NCCL)
	require.NoError(t, j.Do(fakejob.Call{Function: "cuGraphLaunch", Times: 3}))
	before := time.Now()
	require.NoError(t, j.Do(fakejob.Call{Function: "cuGraphLaunch_ptsz"}))
	graphs := scan(t, p).Graphs
	require.Len(t, graphs, 1)
	launches := graphs[j.PID()]
	require.EqualValues(t, 4, launches.Count)
	require.WithinRange(t, launches.Last, before.Add(-time.Millisecond), time.Now().Add(time.Millisecond))
}

// PyTorch may have NCCL inside, whatever the file is called; other libraries with NCCL in
// their name have none of it.
func TestLibraryIsFoundByContent(t *testing.T) {
	for name, found := range map[string]int{"libtorch_cuda.so": 1, "libnccl-pr2127.so.2.30.3": 1, "librccl.so.1": 1, "libnccl-net.so": 0, "libtorch_python.so": 0} {
		p := open(t, Options{})
		l := fakejob.Library{Name: name, RankOffset: 0x17b0, Functions: some()}
		if found == 0 {
			l.Functions = []string{"ncclCommUserRank"}
		}
		j := start(t, l)
		w := watch(t, p, j)
		require.Equal(t, []int{found, 0, 0}, []int{w.Libraries, w.Failed, w.Over}, name)
		require.Equal(t, w, watch(t, p, j))
	}
}

// A library that is linked against NCCL has none inside, and its symbols are not read: they
// may be more than can be.
func TestLibraryThatIsLinkedAgainstNCCLIsNotRead(t *testing.T) {
	p := open(t, Options{})
	for _, needed := range []string{"libnccl.so.2", "librccl.so.1"} {
		j := start(t, fakejob.Library{Name: "libtorch_cuda.so", RankOffset: 0x17b0, Functions: some(), Needs: []string{"libc10.so", needed}})
		w := watch(t, p, j)
		require.Equal(t, []int{0, 0, 0}, []int{w.Libraries, w.Failed, w.Over}, needed)
		require.NoError(t, w.Err)
	}
}

// RCCL makes its gather, scatter and all-to-all of sends and receives.
func TestCallsThatRCCLMakesItselfAreNotCountedTwice(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{Name: "librccl.so.1", RankOffset: 0x17b0, Functions: some("ncclAllToAll", "ncclGather", "ncclScatter", "ncclSend")})
	watch(t, p, j)
	require.NoError(t, j.Do(plant(1, 7, 1, 4),
		fakejob.Call{Function: "ncclAllToAll", Comm: 1}, fakejob.Call{Function: "ncclGather", Comm: 1}, fakejob.Call{Function: "ncclScatter", Comm: 1},
		fakejob.Call{Function: "ncclSend", Comm: 1}))
	c := only(t, p)
	require.EqualValues(t, 1, c.PointToPoint())
	require.Zero(t, c.Collectives)
}

// A process that calls too often on a file of its own: the probe leaves that file, and no other.
func TestProcessThatCallsTooOftenIsTracedNoMore(t *testing.T) {
	p := open(t, Options{MaxPointToPoint: 1, MaxCalls: 1e12})
	if p.Report().Rung != RungCookie {
		t.Log("this kernel does not tell files apart: they are left together, or not at all")
		return
	}
	l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclSend", "ncclRecv")}
	j, other := start(t, l), start(t, l)
	watch(t, p, j, other)
	send := fakejob.Call{Function: "ncclSend", Comm: 1, Times: 10_000}
	require.NoError(t, j.Do(plant(1, 7, 1, 4), send))
	require.Empty(t, scan(t, p).Limited, "one look is no rate")
	require.NoError(t, j.Do(send))
	require.Equal(t, map[uint32]Limit{j.PID(): NoPointToPoint}, scan(t, p).Limited)
	before := only(t, p)
	require.NoError(t, j.Do(send, fakejob.AllReduce(1, 1)))
	after := only(t, p)
	require.Equal(t, before.Calls[Send], after.Calls[Send])
	require.Equal(t, before.Collectives+1, after.Collectives)
	require.Equal(t, []int{0, 2}, sending(p), "the other file is traced")

	send.Times = 1
	require.NoError(t, other.Do(plant(1, 8, 1, 4), send, fakejob.AllReduce(1, 1)))
	require.EqualValues(t, 1, of(t, scan(t, p), other, 8).Calls[Send])

	overAt(p, time.Now())
	require.Empty(t, scan(t, p).Limited)
	require.Equal(t, []int{2, 2}, sending(p), "its time is over")
	before = of(t, scan(t, p), j, 7)
	require.NoError(t, j.Do(send))
	require.Equal(t, before.Calls[Send]+1, of(t, scan(t, p), j, 7).Calls[Send])
}

// A process that calls too often on a file that others use: it alone is counted no more.
func TestProcessThatCallsTooOftenHidesNobodyElse(t *testing.T) {
	p := open(t, Options{MaxCalls: 1})
	l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRank")}
	file, err := l.Install(t.TempDir())
	require.NoError(t, err)
	flooder, victim := join(t, l, file), join(t, l, file)
	watched, err := p.Watch([]Process{{PID: flooder.PID(), Owner: "user 1"}, {PID: victim.PID(), Owner: "user 2"}})
	require.NoError(t, err)
	require.NoError(t, watched.Err)
	flood, once := fakejob.AllReduce(1, 1), fakejob.AllReduce(1, 1)
	flood.Times = 10_000
	made := func(j *fakejob.Job, magic byte) uint64 {
		id := uniqueID(magic)
		hash := idHashes(id)[0]
		require.NoError(t, j.Do(fakejob.Call{Function: "ncclCommInitRank", Size: 2, ID: id}, plant(1, hash, 0, 2)))
		next(t, p)
		return hash
	}
	his, its := made(flooder, 1), made(victim, 2)
	require.NoError(t, flooder.Do(flood))
	scan(t, p)
	require.NoError(t, flooder.Do(flood))
	require.Equal(t, map[uint32]Limit{flooder.PID(): NoCalls}, scan(t, p).Limited)
	require.NoError(t, flooder.Do(flood))
	require.NoError(t, victim.Do(once))
	s := scan(t, p)
	require.EqualValues(t, 20_000, of(t, s, flooder, his).Collectives)
	require.False(t, of(t, s, flooder, his).Exact)
	require.EqualValues(t, 1, of(t, s, victim, its).Collectives)
	require.True(t, of(t, s, victim, its).Exact)

	overAt(p, time.Now())
	require.Empty(t, scan(t, p).Limited)
	require.NoError(t, flooder.Do(once))
	s = scan(t, p)
	require.EqualValues(t, 20_001, of(t, s, flooder, his).Collectives)
	require.False(t, of(t, s, flooder, his).Exact, "calls of it went uncounted")
	require.True(t, of(t, s, victim, its).Exact)
}

// overAt ends what is limited.
func overAt(p *Probe, at time.Time) {
	for _, all := range []map[uint32]*pause{p.limits.processes, p.limits.libraries} {
		for _, one := range all {
			one.until = at
		}
	}
}

// sending are how many hooks of sends and receives each file has, fewest first.
func sending(p *Probe) (hooks []int) {
	p.hooks.mu.Lock()
	defer p.hooks.mu.Unlock()
	for a := range p.hooks.libraries {
		hooks = append(hooks, len(a.links[pointToPoint]))
	}
	slices.Sort(hooks)
	return hooks
}

// A file that somebody else used, and that nobody uses any more, makes nobody's count inexact.
func TestFilesThatComeAndGoMakeNobodyInexact(t *testing.T) {
	for _, rung := range rungs(t) {
		p := open(t, Options{Rung: rung})
		l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRank")}
		j := start(t, l)
		watch(t, p, j, start(t, l))
		id := uniqueID(1)
		hash := idHashes(id)[0]
		require.NoError(t, j.Do(fakejob.Call{Function: "ncclCommInitRank", Size: 2, ID: id}, plant(1, hash, 0, 2), fakejob.AllReduce(1, 1)))
		next(t, p)
		require.True(t, of(t, scan(t, p), j, hash).Exact)
		watch(t, p, j)
		require.Equal(t, rung == RungCookie, of(t, scan(t, p), j, hash).Exact, "without cookies files are not told apart")
	}
}

// Inits without end fill the ring for their owner alone.
func TestAFloodOfInitsLosesItsOwn(t *testing.T) {
	p := open(t, Options{RingBytes: 16 * uint32(os.Getpagesize())})
	l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRank")}
	file, err := l.Install(t.TempDir())
	require.NoError(t, err)
	flooder, victim := join(t, l, file), join(t, l, file)
	watch(t, p, flooder, victim)
	require.NoError(t, flooder.Do(fakejob.Call{Function: "become", Root: 12345}))
	flood := fakejob.Call{Function: "ncclCommInitRank", Size: 8, ID: uniqueID(1), Times: 10_000}
	require.NoError(t, flooder.Do(flood))
	require.NoError(t, victim.Do(fakejob.Call{Function: "ncclCommInitRank", Size: 8, ID: uniqueID(2)}))
	told := 0
	for e := next(t, p); e.PID != victim.PID(); e = next(t, p) {
		require.Equal(t, flooder.PID(), e.PID)
		told++
	}
	stats := p.Stats()
	require.EqualValues(t, 10_000, uint64(told)+stats.Dropped)
	require.Equal(t, stats.Dropped, stats.Crowded)
	require.EqualValues(t, 12345, stats.Crowder)
	flood.Times = 1
	require.NoError(t, flooder.Do(flood))
	require.Equal(t, flooder.PID(), next(t, p).PID, "what was read gives its room back")
}

// More communicators than there is room for: those beyond are counted.
func TestCommunicatorsBeyondTheLimitAreCounted(t *testing.T) {
	p := open(t, Options{})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some()})
	watch(t, p, j)
	const made = 3000
	require.NoError(t, j.Do(many(1, made)))
	s := scan(t, p)
	require.LessOrEqual(t, len(s.Communicators), 1366, "two thirds of 2,048: room is left for others")
	require.EqualValues(t, made-len(s.Communicators), s.Refused)
	require.Equal(t, s.Refused, p.Stats().Dropped)
	requireShared(t, p)
}

// many are calls, each on a communicator of its own.
func many(comm, n int) fakejob.Call {
	call := fakejob.AllReduce(comm, 1)
	call.Times, call.Step = n, 64
	return call
}

// requireShared: what is counted as held is what the maps hold.
func requireShared(t *testing.T, p *Probe) {
	t.Helper()
	var tables [2][]room.Owner
	var key bpfCommunicatorKey
	var value bpfCommunicator
	for all := p.hooks.collection.Maps[bpfMapCommunicators].Iterate(); all.Next(&key, &value); {
		tables[0] = append(tables[0], room.Owner{Tenant: value.Owner.TenantSlot, User: value.Owner.UserSlot})
	}
	var pid uint32
	var launches bpfLaunches
	for all := p.hooks.collection.Maps[bpfMapGraphs].Iterate(); all.Next(&pid, &launches); {
		tables[1] = append(tables[1], room.Owner{Tenant: launches.Owner.TenantSlot, User: launches.Owner.UserSlot})
	}
	held, err := room.Held(p.hooks.collection.Maps[bpfMapHeld])
	require.NoError(t, err)
	require.Equal(t, room.Counts(tables[:]...), held)
}

// A tenant, or a user, makes as many communicators as he likes: what others call is counted
// all the same, and known from its beginning.
func TestCommunicatorsOfOneUserHideNoneOfAnother(t *testing.T) {
	for name, move := range map[string]func(t *testing.T, flooder *fakejob.Job){
		"another user": func(t *testing.T, flooder *fakejob.Job) {
			require.NoError(t, flooder.Do(fakejob.Call{Function: "become", Root: 64000}))
		},
		"another tenant": func(t *testing.T, flooder *fakejob.Job) {
			remove, err := oomkill.Confine(int(flooder.PID()), 1<<30)
			require.NoError(t, err)
			t.Cleanup(func() {
				require.NoError(t, flooder.Close())
				require.NoError(t, remove())
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, Options{})
			l := fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRank")}
			file, err := l.Install(t.TempDir())
			require.NoError(t, err)
			quiet, flooder := join(t, l, file), join(t, l, file)
			watch(t, p, quiet, flooder)
			made := func(magic byte, comm int) uint64 {
				id := uniqueID(magic)
				hash := idHashes(id)[0]
				require.NoError(t, quiet.Do(
					fakejob.Call{Function: "ncclCommInitRank", Size: 2, ID: id}, plant(comm, hash, 0, 2), fakejob.AllReduce(comm, 1)))
				next(t, p)
				return hash
			}
			before := made(1, 1)
			move(t, flooder)
			flood := hosttest.Size(100_000, 10_000)
			require.NoError(t, flooder.Do(many(1, flood)))
			after := made(2, 2)
			require.NoError(t, quiet.Do(fakejob.AllReduce(1, 1)))
			s := scan(t, p)
			require.GreaterOrEqual(t, s.Refused, uint64(flood-2048))
			for hash, calls := range map[uint64]uint64{before: 2, after: 1} {
				c := of(t, s, quiet, hash)
				require.True(t, c.Exact)
				require.Equal(t, calls, c.Collectives)
			}
			requireShared(t, p)
		})
	}
}

// Processes that make communicators and end without a word, one after the other, use up no
// room.
func TestCommunicatorsOfProcessesThatEndGiveTheirRoomBack(t *testing.T) {
	p := open(t, Options{})
	l := fakejob.Library{RankOffset: offset2297, Functions: some()}
	file, err := l.Install(t.TempDir())
	require.NoError(t, err)
	watch(t, p, join(t, l, file)) // the library stays attached
	for range 8 {
		j := join(t, l, file)
		require.NoError(t, j.Do(many(1, 500)))
		require.Len(t, scan(t, p).Communicators, 500)
		require.NoError(t, j.Close())
		require.Empty(t, scan(t, p).Communicators)
	}
	require.Zero(t, p.Stats().Dropped)
	requireShared(t, p)
}

func TestFullRingCountsWhatItDrops(t *testing.T) {
	p := open(t, Options{RingBytes: uint32(os.Getpagesize())})
	j := start(t, fakejob.Library{RankOffset: offset2297, Functions: some("ncclCommInitRank")})
	watch(t, p, j)
	require.NoError(t, j.Do(fakejob.Call{Function: "ncclCommInitRank", Size: 8, ID: uniqueID(1), Times: os.Getpagesize() / 128}))
	require.Positive(t, p.Stats().Dropped)
	require.NoError(t, p.Close())
	require.Positive(t, p.Stats().Dropped, "the counters stay readable")
}

func TestCloseUnblocksReadAndMayComeTwice(t *testing.T) {
	p := open(t, Options{})
	done := make(chan error)
	go func() { done <- p.Read(new(Event)) }()
	require.NoError(t, p.Close())
	require.ErrorIs(t, <-done, probe.ErrClosed)
	require.NoError(t, p.Close())
	_, err := p.Watch(nil)
	require.ErrorIs(t, err, probe.ErrClosed)
	_, err = p.Scan()
	require.ErrorIs(t, err, probe.ErrClosed)
}

// A process under a seccomp filter that allows nothing lives on: an entry probe makes no
// system call in it.
func TestConfinedProcessLivesWithTheProbe(t *testing.T) {
	privtest.Require(t)
	p := open(t, Options{})
	attachToSelf(t, p, true)
	survived, err := standin.Confined(1)
	if errors.Is(err, standin.ErrNoFilters) {
		t.Log("this kernel has no seccomp filters: no process is under one")
		return
	}
	require.NoError(t, err)
	require.True(t, survived)
}

// attachToSelf puts the probe of ncclAllReduce on the self-test's function, behind its
// endbr64 or on it.
func attachToSelf(t testing.TB, p *Probe, behind bool) {
	t.Helper()
	function, err := uprobe.OwnFunction(standin.Entry())
	require.NoError(t, err)
	slot := uint32(0)
	if p.hooks.cookies {
		slot = ownSlot
	}
	require.NoError(t, p.hooks.collection.Maps[bpfMapLibraries].Put(slot, bpfLibrary{RankOffset: 8, Enabled: 1, HasHash: 1}))
	at := function.Entry
	if behind {
		at = function.Offset
	}
	links, err := uprobe.Attach(uprobe.Own, []uprobe.Hook{{Name: "it", Offset: at, Program: p.hooks.collection.Programs[bpfProgAllReduce], Cookie: uint64(slot)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, links.Close()) })
}

// BenchmarkCall is a call of a collective, with and without the probe.
func BenchmarkCall(b *testing.B) {
	privtest.Require(b)
	memory := make([]uint64, 512)
	binary.LittleEndian.PutUint32(standinBytes(memory)[12:], 8)
	var arguments standin.Arguments
	arguments.Registers[5] = addressOf(memory)
	for _, bench := range []struct {
		name           string
		attach, behind bool
	}{{"without_probe", false, false}, {"behind_endbr64", true, true}, {"on_endbr64", true, false}} {
		b.Run(bench.name, func(b *testing.B) {
			if bench.attach {
				attachToSelf(b, open(b, Options{}), bench.behind)
			}
			for b.Loop() {
				standin.Call(standin.Entry(), &arguments)
			}
		})
	}
}

// BenchmarkScan reads the communicators of a node: 8 ranks with 20 each.
func BenchmarkScan(b *testing.B) {
	p := open(b, Options{})
	key, value := bpfCommunicatorKey{Pid: uint32(os.Getpid())}, bpfCommunicator{Collectives: 1000}
	for key.Address = range uint64(160) {
		require.NoError(b, p.hooks.collection.Maps[bpfMapCommunicators].Put(key, value))
	}
	for b.Loop() {
		require.Len(b, scan(b, p).Communicators, 160)
	}
}
