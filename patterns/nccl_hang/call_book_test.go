package ncclhang

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

func TestCallsGoOnFromTheirSnapshot(t *testing.T) {
	c := newCalls(16)
	c.stands(c.all(), 10, "overdue", but(16, 5, 6)...).stands(c.all(), 9, "overdue", 5).stands(sub("0x7", 5, 6, 7), 3, "usual", 5, 6)
	c.record(eventCallLimited, comm{}, 12, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "calls") })
	c.record(eventCallLimited, comm{}, 3, func(a pcommon.Map) { a.PutStr("nccl.call.limit", "gpu_initiated") })
	c.record(eventCallInit, sub("0x9", 1, 2, 3), 1, func(a pcommon.Map) { a.PutInt("nccl.call.waited_ns", int64(10*time.Second)) })
	one, other := newJoin(DefaultOptions), newJoin(DefaultOptions)
	one.Add(c.list, c.at)
	other.Add(c.list, c.at)
	other = requireSameState(t, other)
	at := c.at.Add(settled)
	require.Equal(t, one.Advance(at), other.Advance(at))
	other = requireSameState(t, other)

	c.list, c.at = plog.NewLogs(), c.at.Add(10*time.Second)
	c.stands(c.all(), 10, "overdue", 6)
	c.record(eventCallMoving, c.all(), 5, stoodAt(10, c.at, "usual"))
	one.Add(c.list, c.at)
	other.Add(c.list, c.at)
	at = at.Add(2 * DefaultOptions.InitWait)
	found := one.Advance(at)
	require.NotEmpty(t, found)
	require.Equal(t, found, other.Advance(at))
}

// TestOrderOfRecordsChangesNothing: agents send when they can.
func TestOrderOfRecordsChangesNothing(t *testing.T) {
	c := newCalls(16)
	for second := range 3 {
		c.stands(c.all(), 7+second, "usual", but(16)...)
		c.at = c.at.Add(10 * time.Second)
		if second < 2 {
			for rank := range 16 {
				c.record(eventCallMoving, c.all(), rank, stoodAt(8+second, c.at, "usual"))
			}
			c.at = c.at.Add(10 * time.Second)
		}
	}
	c.record(eventCallMoving, c.all(), 3, stoodAt(9, c.at, "usual"))
	c.at = c.at.Add(10 * time.Second)
	c.stands(c.all(), 11, "overdue", but(16, 3)...).stands(c.all(), 10, "overdue", 3)
	want := anonymous(c.found(t))
	require.Len(t, want, 1)
	require.Equal(t, []int{3}, want[0].Culprits)
	for seed := range uint64(20) {
		shuffled := plog.NewLogs()
		for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(c.list.ResourceLogs().Len()) {
			c.list.ResourceLogs().At(i).CopyTo(shuffled.ResourceLogs().AppendEmpty())
		}
		j := newJoin(DefaultOptions)
		j.Add(shuffled, c.at)
		require.Equal(t, want, anonymous(findings(j.Advance(c.at.Add(settled)))), seed)
	}
}

// anonymous leaves out the id of the start, which is that of the process seen first.
func anonymous(all []Finding) []Finding {
	for i := range all {
		all[i].Run, all[i].ID, all[i].Stop = "", "", ""
	}
	return all
}

// TestStopIsToldOnceAndTakenBack: once, again when it changes, and taken back when the rank
// calls; that its processes have ended takes nothing back.
func TestStopIsToldOnceAndTakenBack(t *testing.T) {
	for name, goesOn := range map[string]bool{"the rank calls": true, "the job dies": false} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "long", 5)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			f := findings(j.Advance(c.at.Add(settled)))
			require.Len(t, f, 1)
			require.Equal(t, Works, f[0].Kind)
			require.Zero(t, j.Due())

			next := func(edit func()) []Round {
				c.list, c.at = plog.NewLogs(), c.at.Add(10*time.Second)
				edit()
				j.Add(c.list, c.at)
				return j.Advance(c.at.Add(settled))
			}
			require.Empty(t, next(func() { c.record(eventCallDoing, comm{}, 3, stoodAt(0, c.at, "overdue")) }), "nothing new of it")
			f = findings(next(func() { c.record(eventCallDoing, comm{}, 5, stoodAt(0, c.at, "overdue")) }))
			require.Len(t, f, 1)
			require.Equal(t, NotCalled, f[0].Kind)
			stop := f[0].Stop

			rounds := next(func() {
				for rank := range 8 {
					if goesOn {
						c.record(eventCallMoving, c.all(), rank, stoodAt(11, c.at, "usual"))
					} else {
						c.record(eventCallEnd, c.all(), rank, func(a pcommon.Map) {
							stoodAt(9, c.at, "overdue")(a)
							a.PutStr("nccl.call.end_reason", "exited")
						})
					}
				}
			})
			if !goesOn {
				require.Empty(t, rounds)
				return
			}
			require.Len(t, rounds, 1)
			require.Equal(t, []Cleared{{Run: f[0].Run, Job: "llm", Domain: "slurm 7", Group: "0xa11", Desc: "communicator 0xa11", Stop: stop}}, rounds[0].Cleared)
			j.Advance(c.at.Add(3 * keepMoving))
			require.Zero(t, j.Stats().HeldCalls)
		})
	}
}

func TestRanksThatNeverInitialize(t *testing.T) {
	c := newCalls(16)
	waits := func(rank int) {
		c.record(eventCallInit, c.all(), rank, func(a pcommon.Map) {
			a.PutInt("nccl.call.waited_ns", int64(10*time.Second))
			a.PutStr("nccl.call.function", "ncclCommInitRankConfig")
		})
	}
	for _, rank := range but(16, 7, 12) {
		waits(rank)
	}
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	require.Empty(t, j.Advance(c.at.Add(settled)))
	require.Equal(t, c.at.Add(DefaultOptions.InitWait-10*time.Second).UnixNano(), j.Due())
	f := findings(j.Advance(c.at.Add(DefaultOptions.InitWait)))
	require.Len(t, f, 1)
	require.Equal(t, "ranks 7, 12 have not called ncclCommInitRankConfig for communicator 0xa11, which 14 ranks have called", f[0].String())
	require.Equal(t, NotInitialized, f[0].Kind)
	require.Equal(t, Likely, f[0].Sure)
	require.Equal(t, []int{7, 12}, f[0].Culprits)

	c.list, c.at = plog.NewLogs(), c.at.Add(2*time.Minute)
	waits(7)
	waits(12)
	j.Add(c.list, c.at)
	rounds := j.Advance(c.at.Add(settled))
	require.Len(t, rounds, 1)
	require.Len(t, rounds[0].Cleared, 1, "all have called it: whatever keeps them now, it is not that")
}

// TestTheOperatorSaysHowLongOthersWait, also after a restart.
func TestTheOperatorSaysHowLongOthersWait(t *testing.T) {
	patient := DefaultOptions
	patient.InitWait, patient.UnknownWait, patient.Settle = 5*time.Minute, 2*time.Minute, 2*time.Second
	for name, tc := range map[string]struct {
		stand func(c *calls)
		wait  time.Duration // from when the others stand
	}{
		"for a rank that never came": {func(c *calls) {
			for _, rank := range but(16, 7) {
				c.record(eventCallInit, c.all(), rank, func(a pcommon.Map) { a.PutStr("nccl.call.function", "ncclCommInitRank") })
			}
		}, patient.InitWait},
		"for a rank that says nothing": {func(c *calls) {
			c.stands(c.all(), 11, "usual", but(16, 7)...).stands(c.all(), 10, "", 7)
		}, patient.UnknownWait},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(16)
			tc.stand(c)
			j := newJoin(patient)
			j.Add(c.list, c.at)
			require.Equal(t, c.at.Add(patient.Settle).UnixNano(), j.Due())
			require.Empty(t, findings(j.Advance(c.at.Add(patient.Settle))))
			state, err := j.Snapshot()
			require.NoError(t, err)
			j = newJoin(patient)
			require.NoError(t, j.Restore(state))
			began := time.Unix(0, j.Due()).Add(-tc.wait)
			require.WithinRange(t, began, c.at.Add(-time.Minute), c.at)
			require.Empty(t, findings(j.Advance(began.Add(tc.wait-1))))
			require.Len(t, findings(j.Advance(began.Add(tc.wait))), 1)
		})
	}
}

// TestStartsAndDomainsAreNotMixed: the last start of the job stood elsewhere, and another
// user's job claims its id and its communicator.
func TestStartsAndDomainsAreNotMixed(t *testing.T) {
	c := newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8)...)
	c.begun = c.begun.Add(30 * time.Minute)
	c.stands(c.all(), 9, "overdue", 5)
	require.Empty(t, c.found(t), "another start")

	c = newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8, 5)...)
	c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
		stoodAt(9, c.at, "overdue")(a)
		a.PutStr("gen_ai.training.job_domain", "user 1001")
	})
	require.Empty(t, c.found(t), "another domain")
}

func TestRanksOfACommunicatorThatNobodyKnowsInTheJob(t *testing.T) {
	c := newCalls(8)
	for _, rank := range but(8) {
		c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
			number := 10
			if rank == 5 {
				number = 9
			}
			stoodAt(number, c.at, "overdue")(a)
			a.Remove("gen_ai.training.rank")
		})
	}
	f := c.found(t)
	require.Len(t, f, 1)
	require.Equal(t, "rank 5 of communicator 0xa11 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called: its main thread is asleep, at 0 % CPU", f[0].String())
	require.Equal(t, -1, f[0].Rank())
	record := f[0].record(1)
	require.NotContains(t, record.Attributes, "nccl.collective.culprit_ranks")
	require.NotContains(t, record.Attributes, "gen_ai.training.rank")
	require.Equal(t, "rank 5 of communicator 0xa11", record.Attributes["nccl.collective.who"])
	require.Equal(t, "node-0", record.Resource["host.name"])
}

// TestDumpsThatSayTheSameAreOfTheSameStop: they come when the watchdog ends.
func TestDumpsThatSayTheSameAreOfTheSameStop(t *testing.T) {
	c := newCalls(4)
	c.stands(c.all(), 2, "overdue", 0, 1, 3).stands(c.all(), 1, "overdue", 2)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	f := findings(j.Advance(c.at.Add(settled)))
	require.Len(t, f, 1)
	for name, dumps := range map[string]*job{
		"not entered": newJob(4).does(1, steps(reduce, reduce), 0, 1, 3).does(1, steps(reduce), 2),
		"no dump":     newJob(4).does(1, steps(reduce, reduce), 0, 1, 3),
	} {
		later := j.dumped(t, dumps)
		require.Equal(t, f[0].Stop, later.Stop, name)
		require.Equal(t, 2, later.Rank(), name)
		j.forget(j.runs[slices.Sorted(keysOf(j.runs))[0]])
	}
}

// dumped is the one finding of the dumps that the watchdogs of a job write after ten minutes.
func (j joinUnderTest) dumped(t *testing.T, dumps *job) Finding {
	t.Helper()
	dumps.domain = "slurm 7"
	at := written.Add(10 * time.Minute)
	j.Add(dumps.logs(), at)
	found := findings(j.Advance(at.Add(DefaultOptions.Window)))
	require.Len(t, found, 1)
	return found[0]
}

func keysOf(runs map[string]*run) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range runs {
			if !yield(name) {
				return
			}
		}
	}
}

func TestHostileCalls(t *testing.T) {
	for name, edit := range map[string]func(pcommon.Map){
		"rank of 2^31":           func(a pcommon.Map) { a.PutInt("nccl.call.comm_rank", 1<<31) },
		"rank below 0":           func(a pcommon.Map) { a.PutInt("nccl.call.comm_rank", -1) },
		"rank beyond its size":   func(a pcommon.Map) { a.PutInt("nccl.call.comm_rank", 8) },
		"size of 2^62":           func(a pcommon.Map) { a.PutInt("nccl.call.comm_size", 1<<62) },
		"size of 0":              func(a pcommon.Map) { a.PutInt("nccl.call.comm_size", 0) },
		"number below 0":         func(a pcommon.Map) { a.PutInt("nccl.call.collectives", math.MinInt64) },
		"a call in the future":   func(a pcommon.Map) { a.PutInt("nccl.call.last_unix_nano", math.MaxInt64) },
		"a name without end":     func(a pcommon.Map) { a.PutStr("nccl.call.comm", "0x"+string(make([]byte, 1000))) },
		"no process":             func(a pcommon.Map) { a.Remove("process.pid") },
		"a rank that is no rank": func(a pcommon.Map) { a.PutStr("nccl.call.comm_rank", "5") },
	} {
		c := newCalls(8)
		c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
			stoodAt(9, c.at, "overdue")(a)
			edit(a)
		})
		j := newJoin(DefaultOptions)
		j.Add(c.list, c.at)
		require.EqualValues(t, 1, j.Stats().InvalidCalls, name)
		require.Zero(t, j.Due(), name)
	}
	// What is only odd is bounded, and the rest of the record counts.
	c := newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8, 5)...)
	c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
		stoodAt(9, c.at, "overdue")(a)
		list := a.PutEmptySlice("nccl.call.recent")
		for range 1000 {
			list.AppendEmpty().SetStr("99999999999999999999 X")
		}
		a.PutInt("nccl.call.last_root", math.MaxInt64)
	})
	f := c.found(t)
	require.Len(t, f, 1)
	require.Equal(t, []int{5}, f[0].Culprits)
}

// TestCommunicatorsOfUnknownLayoutAreCountedAndDoubted: nobody can compare them.
func TestCommunicatorsOfUnknownLayoutAreCountedAndDoubted(t *testing.T) {
	c := newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8, 5, 6)...).stands(c.all(), 9, "overdue", 5)
	c.record(eventCallStopped, comm{}, 6, func(a pcommon.Map) {
		stoodAt(9, c.at, "overdue")(a)
		a.PutStr("nccl.call.unidentified", "layout")
	})
	f := c.found(t)
	require.Len(t, f, 1)
	require.Equal(t, Likely, f[0].Sure)
	require.Contains(t, f[0].Because, doubtUnread)
}

// TestAFloodOfCallsTakesRoomFromItself: a host that invents processes loses its own.
func TestAFloodOfCallsTakesRoomFromItself(t *testing.T) {
	o := DefaultOptions
	o.Calls = 200
	c := newCalls(16)
	c.stands(c.all(), 10, "overdue", but(16, 5)...).stands(c.all(), 9, "overdue", 5)
	j := newJoin(o)
	j.Add(c.list, c.at)
	flood := newCalls(8)
	flood.job = "flood"
	for pid := range 5000 {
		flood.record(eventCallStopped, sub(fmt.Sprintf("0x%x", pid), 0, 1), 0, func(a pcommon.Map) {
			stoodAt(9, c.at, "overdue")(a)
			a.PutInt("process.pid", int64(10_000+pid))
			a.PutStr("gen_ai.training.job_domain", "user 1001")
		})
	}
	for i := range flood.list.ResourceLogs().Len() {
		flood.list.ResourceLogs().At(i).Resource().Attributes().PutStr("host.name", "evil")
	}
	j.Add(flood.list, c.at)
	require.LessOrEqual(t, j.Stats().HeldCalls, int64(o.Calls))
	require.Positive(t, j.Stats().EvictedCalls)
	f := findings(j.Advance(c.at.Add(settled)))
	require.Len(t, f, 1)
	require.Equal(t, []int{5}, f[0].Culprits)
	require.Equal(t, Certain, f[0].Sure)
}

// BenchmarkCalls joins 131,072 ranks in three communicators each: all, a tensor-parallel
// group of eight, and a data-parallel one. Rank 5 stopped before the last call of each.
func BenchmarkCalls(b *testing.B) {
	const world = 131_072
	for _, ranks := range []int{1024, world} {
		b.Run(fmt.Sprint("ranks=", ranks), func(b *testing.B) { benchCalls(b, ranks) })
	}
}

func benchCalls(b *testing.B, world int) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	j := newJoin(DefaultOptions)
	c := newCalls(world)
	all := c.all()
	stride := world / 8
	data := make([][]int, 8)
	for rank := range world {
		data[rank%8] = append(data[rank%8], rank)
	}
	spent := time.Duration(0)
	for rank := range world {
		c.list = plog.NewLogs()
		first := rank / 8 * 8
		for i, in := range []comm{{all.name, nil}, {fmt.Sprintf("0x7e%d", first), nil}, {fmt.Sprintf("0xd%d", rank%8), nil}} {
			number := 1000 * (i + 1)
			if rank == 5 {
				number--
			} else if i == 0 && rank < 8 || i == 2 && rank < 8 {
				number-- // they wait for it in the group of eight
			}
			place, size := []int{rank, rank % 8, rank / 8}[i], []int{world, 8, stride}[i]
			c.record(eventCallStopped, in, rank, func(a pcommon.Map) {
				stoodAt(number, c.at.Add(-3*time.Second+time.Duration(i)*time.Millisecond), "overdue")(a)
				a.PutInt("nccl.call.comm_rank", int64(place))
				a.PutInt("nccl.call.comm_size", int64(size))
			})
		}
		at := time.Now()
		j.Add(c.list, c.at)
		spent += time.Since(at)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	r := j.calls.runs[slices.Sorted(func(yield func(string) bool) {
		for name := range j.calls.runs {
			if !yield(name) {
				return
			}
		}
	})[0]]
	for b.Loop() {
		for _, comm := range r.comms {
			comm.dirty = true
		}
		f := r.analyse(nil, nil, c.at.UnixNano())
		if f == nil || !slices.Equal(f.Culprits, []int{5}) || f.Sure != Certain || len(f.Affected) != world {
			b.Fatalf("found %v", f)
		}
		if records := (&Round{Findings: []Finding{*f}}).records(1); len(records) != 1 {
			b.Fatal(len(records))
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-held")
	b.ReportMetric(float64(spent.Microseconds())/float64(world), "µs/rank-taken-in")
	runtime.KeepAlive(j)
}
