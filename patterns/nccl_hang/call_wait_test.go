package ncclhang

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// stacks says what the stacks of ranks show, a second from now.
func (c *calls) stacks(class string, ranks ...int) *calls {
	at := c.at
	c.at = at.Add(time.Second)
	for _, rank := range ranks {
		c.record(rule.EventStack, comm{}, rank, func(a pcommon.Map) { a.PutStr("process.stack.wait_class", class) })
	}
	c.at = at
	return c
}

// afterAMinute is the standstill that the join tells of eight ranks when a minute has passed since
// their last call, and not before; none where it is no standstill.
func afterAMinute(t *testing.T, records func(*calls), waits bool) []Finding {
	t.Helper()
	c := newCalls(8)
	records(c)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	soon := append(findings(j.Advance(c.at.Add(settled))), findings(j.Advance(c.at.Add(DefaultOptions.UnknownWait+settled)))...)
	require.Empty(t, soon, "a long wait is not told before a minute")
	later := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
	if !waits {
		require.Empty(t, later)
		return nil
	}
	require.Len(t, later, 1)
	require.Equal(t, "node-0", later[0].Host.Host, "all on one host: its links are between them")
	return later
}

// TestAllHaveCalledAndAllWait: a job that stands below its program, and those that only look
// like it.
func TestAllHaveCalledAndAllWait(t *testing.T) {
	for name, tc := range map[string]struct {
		calls  func(*calls)
		waits  bool
		doubts []string
	}{
		"all wait for their GPUs": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", 0, 1, 2).stacks("collective", 3, 4, 5, 6, 7)
		}, waits: true, doubts: []string{doubtBelow}},
		"some wait for their threads of backward": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", 0, 1, 2).stacks("backward", 3, 4, 5, 6, 7)
		}, waits: true, doubts: []string{doubtBelow, "ranks 3-7 stand in backward, whose threads do not show what they wait for: their GPU, or other ranks"}},
		"threads of backward that go on": {calls: func(c *calls) {
			c.stands(c.all(), 10, "long", but(8)...).stacks("backward", but(8)...)
		}},
		"all wait, and poll for it": {calls: func(c *calls) {
			c.stands(c.all(), 10, "long", but(8)...).stacks("gpu", but(8)...)
		}, waits: true, doubts: []string{doubtBelow}},
		"stacks came first": {calls: func(c *calls) {
			c.stacks("collective", but(8)...).stands(c.all(), 10, "overdue", but(8)...)
		}, waits: true, doubts: []string{doubtBelow}},
		"a launcher of the rank waits for its child": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", but(8)...)
			c.record(rule.EventStack, comm{}, 3, func(a pcommon.Map) {
				a.PutInt("process.pid", 77)
				a.PutStr("process.stack.wait_class", "own_code")
			})
		}, waits: true, doubts: []string{doubtBelow}},
		"a job that has nothing to do": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8)...).stacks("network", but(8)...)
		}},
		"one rank loads data": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", but(8, 3)...).stacks("data_loading", 3)
		}},
		"of one rank no stack came": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", but(8, 3)...)
		}},
		"one rank computes": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8, 3)...).stands(c.all(), 10, "usual", 3).stacks("gpu", but(8)...)
		}},
		"of one rank no record came": {calls: func(c *calls) {
			c.stands(sub("0x1", 0, 1, 2, 3), 10, "overdue", 0, 1, 2, 3).stacks("gpu", 0, 1, 2, 3)
		}},
		"a stack of before its last call": {calls: func(c *calls) {
			c.at = c.at.Add(-20 * time.Second)
			c.stacks("gpu", but(8)...)
			c.at = c.at.Add(20 * time.Second)
			c.stands(c.all(), 10, "overdue", but(8)...)
		}},
		"one rank stands elsewhere since": {calls: func(c *calls) {
			c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", but(8)...)
			c.at = c.at.Add(2 * time.Second)
			c.record(rule.EventStackMoving, comm{}, 3, nil)
			c.at = c.at.Add(-2 * time.Second)
		}},
		"CUDA graphs are replayed": {calls: func(c *calls) {
			c.stacks("gpu", but(8)...)
			for rank := range 8 {
				c.record(eventCallStopped, c.all(), rank, func(a pcommon.Map) {
					stoodAt(10, c.at.Add(-3*time.Second), "overdue")(a)
					a.PutInt("nccl.call.graph_launches", 7)
				})
			}
		}, waits: true, doubts: []string{doubtBelow, doubtGraphs}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range afterAMinute(t, tc.calls, tc.waits) {
				require.Equal(t, AllCalled, f.Kind)
				require.Equal(t, "all 8 ranks called AllReduce #10 (4,096 x bf16), and all wait: the fault is below the program", f.String())
				require.Equal(t, tc.doubts, f.Because)
				require.Equal(t, but(8), f.Affected)
				require.Zero(t, f.Host.PID)
			}
		})
	}
}

// TestARankThatLacksACallAndWaitsItself: nobody is to blame, and whether the fault is below the program is not known.
func TestARankThatLacksACallAndWaitsItself(t *testing.T) {
	for name, ranks := range map[string]func(*calls){
		"rank 0 reads the loss": func(c *calls) {
			c.stands(c.all(), 13, "overdue", but(8, 0)...).stands(c.all(), 9, "overdue", 0).stacks("gpu", but(8)...)
		},
		"rank 0 reads the loss, and other threads of it poll": func(c *calls) {
			c.stands(c.all(), 13, "overdue", but(8, 0)...).stands(c.all(), 9, "long", 0).stacks("gpu", but(8, 0)...).stacks("collective", 0)
		},
		"rank 0 is in another collective than the others, by its stack": func(c *calls) {
			c.stands(c.all(), 13, "overdue", but(8, 0)...).stands(c.all(), 9, "overdue", 0)
			c.stand(waitsIn("all_reduce", "train.py:50 in step"), but(8, 0)...).stand(waitsIn("all_gather", "train.py:40 in sync"), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range afterAMinute(t, ranks, true) {
				require.Equal(t, Apart, f.Kind)
				require.Equal(t, Likely, f.Sure)
				require.Equal(t, "all 8 ranks wait in a collective or for their GPUs; rank 0 has not called AllReduce #10 (4,096 x bf16), which 7 ranks have called", f.String())
				require.Equal(t, []string{doubtBelow, "rank 0 lacks the call, too, and waits in a collective or for the GPU, by the stack"}, f.Because)
				require.Equal(t, but(8), f.Affected)
				require.Empty(t, f.Culprits)
			}
		})
	}
}

// TestAPipelineWaits: the last call of each stage is to another or from it.
func TestAPipelineWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		all, computes bool
	}{"after collectives of all": {all: true}, "without a collective": {}, "a stage computes": {all: true, computes: true}} {
		t.Run(name, func(t *testing.T) {
			pipeline := func(c *calls) {
				if tc.all {
					c.stands(c.all(), 10, "overdue", but(8)...)
				}
				for stage := range 7 {
					pair := sub(fmt.Sprint("0xf", stage), stage, stage+1)
					send := point(c, "Send", 1, time.Second)
					if stage == 3 && tc.computes {
						send = func(a pcommon.Map) { point(c, "Send", 1, time.Second)(a); a.PutStr("nccl.rank.silence", "usual") }
					}
					c.record(eventCallStopped, pair, stage, send)
					c.record(eventCallStopped, pair, stage+1, point(c, "Recv", 0, time.Second))
				}
				if tc.computes {
					c.record(eventCallDoing, comm{}, 3, func(a pcommon.Map) { a.PutStr("nccl.rank.silence", "usual") })
				}
				c.stacks("gpu", but(8)...)
			}
			for _, f := range afterAMinute(t, pipeline, !tc.computes) {
				require.Equal(t, AllWait, f.Kind)
				require.Equal(t, "all 8 ranks wait in a collective or for their GPUs: the fault is below the program", f.String())
				require.Equal(t, []string{doubtBelow, doubtPairs}, f.Because)
				require.Equal(t, but(8), f.Affected)
			}
		})
	}
}

// TestAllWaitIsTakenBackAndIsOneStopWithItsDumps: what a watchdog writes ten minutes later is
// of the same stop; when a rank goes on, it is over.
func TestAllWaitIsTakenBackAndIsOneStopWithItsDumps(t *testing.T) {
	c := newCalls(4)
	c.stands(c.all(), 2, "overdue", but(4)...).stacks("gpu", but(4)...)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	require.Empty(t, j.Advance(c.at.Add(settled)))
	j = requireSameState(t, j)
	require.Equal(t, c.at.Add(DefaultOptions.StuckWait-3*time.Second).UnixNano(), j.Due())
	f := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
	require.Len(t, f, 1)
	j = requireSameState(t, j)

	later := j.dumped(t, newJob(4).does(1, steps(reduce, reduce), but(4)...))
	require.Equal(t, Stuck, later.Kind)
	require.Equal(t, f[0].Stop, later.Stop)

	c.list, c.at = plog.NewLogs(), c.at.Add(11*time.Minute)
	c.record(eventCallMoving, c.all(), 2, stoodAt(3, c.at, "usual"))
	j.Add(c.list, c.at)
	rounds := j.Advance(c.at.Add(settled))
	require.Len(t, rounds, 1)
	require.Len(t, rounds[0].Cleared, 1)
	require.Equal(t, f[0].Stop, rounds[0].Cleared[0].Stop)
}

// TestStacksAloneAreForgotten: jobs that never call NCCL have stacks, too.
func TestStacksAloneAreForgotten(t *testing.T) {
	c := newCalls(64)
	c.stacks("collective", but(64)...)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	require.EqualValues(t, 64, j.Stats().HeldCalls)
	require.Empty(t, j.Advance(c.at.Add(settled)))
	require.Empty(t, j.Advance(c.at.Add(3*keepMoving)))
	require.EqualValues(t, 64, j.Stats().HeldCalls, "they stand, and others may come")
	c.list, c.at = plog.NewLogs(), c.at.Add(3*keepMoving)
	for rank := range 63 {
		c.record(rule.EventStackMoving, comm{}, rank, nil)
	}
	j.Add(c.list, c.at)
	require.Empty(t, j.Advance(c.at.Add(3*keepMoving)))
	require.EqualValues(t, 1, j.Stats().HeldCalls)
	require.Empty(t, j.Advance(c.at.Add(2*keepCalls)), "it has gone with its host")
	require.Zero(t, j.Stats().HeldCalls)
	require.Empty(t, j.calls.runs)
}

// TestAHangThatLastsIsToldAgain: its verdict stands for as long as the agents of its ranks say that they stand, and
// is over an hour after the last of them has said so.
func TestAHangThatLastsIsToldAgain(t *testing.T) {
	for name, stand := range map[string]func(*calls){
		"by calls":  func(c *calls) { c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5) },
		"by stacks": func(c *calls) { c.stand(inCollective, but(8, 5)...).stand(inLock, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			c, j := newCalls(8), newJoin(DefaultOptions)
			stand(c)
			j.Add(c.list, c.at)
			first := findings(j.Advance(c.at.Add(settled)))
			require.Len(t, first, 1)
			for range 10 { // longer than calls are kept
				for range 3 {
					c.at = c.at.Add(10 * time.Minute)
					require.Empty(t, j.Advance(c.at))
				}
				c.list = plog.NewLogs()
				for rank := range 8 {
					if name == "by stacks" {
						c.record(eventDoes, comm{}, rank, stoodAt(0, c.at, "overdue"))
					} else {
						c.record(eventCallDoing, comm{}, rank, stoodAt(0, c.at, "overdue"))
					}
				}
				j.Add(c.list, c.at)
				saved, err := j.Snapshot()
				require.NoError(t, err)
				j = newJoin(DefaultOptions)
				require.NoError(t, j.Restore(saved))
				again := findings(j.Advance(c.at.Add(settled)))
				require.Len(t, again, 1)
				require.Equal(t, first[0].Stop, again[0].Stop)
				require.Equal(t, first[0].Culprits, again[0].Culprits)
				c.at = c.at.Add(settled)
			}
			require.Empty(t, findings(j.Advance(c.at.Add(40*time.Minute))), "nobody has said so again")
		})
	}
}

// TestOneRankStandsInAJobOfManyGroups: TP × PP × DP of 2 × 4 × 2. One rank stops; its tensor
// group waits for it, the stages wait for theirs by receives, and the data-parallel groups
// for the ranks of that replica. It alone is named.
func TestOneRankStandsInAJobOfManyGroups(t *testing.T) {
	const tensor, stages, replicas = 2, 4, 2
	for culprit := range tensor * stages * replicas {
		t.Run(fmt.Sprint("rank ", culprit), func(t *testing.T) {
			f := manyGroups(tensor, stages, replicas, culprit).found(t)
			require.Len(t, f, 1)
			require.Equal(t, NotCalled, f[0].Kind)
			require.Equal(t, []int{culprit}, f[0].Culprits, f[0].String())
			require.Equal(t, culprit, f[0].Rank())
		})
	}
}

// manyGroups is a job in one forward and one backward pass after another (1F1B). Rank r is
// (replica, stage, tensor) with tensor innermost. The culprit has not called the
// tensor-parallel all-reduce of its stage, in which its peer waits. Stages after it wait in a
// receive for what the stage before them computes, stages before it in one for gradients of
// the stage after them. The other replica has gone on to the data-parallel all-reduces.
func manyGroups(tensor, stages, replicas, culprit int) *calls {
	c := newCalls(tensor * stages * replicas)
	rankOf := func(replica, stage, t int) int { return (replica*stages+stage)*tensor + t }
	stage, mine := culprit/tensor%stages, culprit/tensor/stages
	for s := range stages {
		for t := range tensor {
			data := sub(fmt.Sprintf("0xd%d%d", s, t))
			for replica := range replicas {
				data.ranks = append(data.ranks, rankOf(replica, s, t))
			}
			for replica, rank := range data.ranks {
				number := 10
				if replica == mine {
					number = 9
				}
				c.record(eventCallStopped, data, rank, stoodAt(number, c.at.Add(-30*time.Second), "overdue"))
			}
		}
	}
	for replica := range replicas {
		for s := range stages {
			group := sub(fmt.Sprintf("0x7%d%d", replica, s))
			for t := range tensor {
				group.ranks = append(group.ranks, rankOf(replica, s, t))
			}
			for _, rank := range group.ranks {
				number, ago := 50, 40*time.Second
				if replica == mine && s == stage && rank != culprit {
					number, ago = 51, 5*time.Second
				}
				c.record(eventCallStopped, group, rank, stoodAt(number, c.at.Add(-ago), "overdue"))
			}
		}
		for s := range stages - 1 {
			for t := range tensor {
				pair := sub(fmt.Sprintf("0xf%d%d%d", replica, s, t), rankOf(replica, s, t), rankOf(replica, s+1, t))
				before, after := point(c, "Send", 1, 50*time.Second), point(c, "Send", 0, 50*time.Second)
				if replica == mine && s < stage {
					before = point(c, "Recv", 1, 4*time.Second)
				}
				if replica == mine && s+1 > stage {
					after = point(c, "Recv", 0, 4*time.Second)
				}
				c.record(eventCallStopped, pair, pair.ranks[0], before)
				c.record(eventCallStopped, pair, pair.ranks[1], after)
			}
		}
	}
	return c
}

// point is a send or receive, so long ago.
func point(c *calls, operation string, peer int, ago time.Duration) func(pcommon.Map) {
	return func(a pcommon.Map) {
		stoodAt(0, c.at.Add(-ago), "overdue")(a)
		a.PutStr("nccl.call.last_operation", operation)
		a.PutInt("nccl.call.last_root", int64(peer))
	}
}

// TestADebuggerIsNotTheCause: what operators do to a job of which it is told that all wait names nobody.
func TestADebuggerIsNotTheCause(t *testing.T) {
	c := newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", but(8)...)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	told := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
	require.Len(t, told, 1)
	require.True(t, told[0].below())

	called := c.at.Add(-3 * time.Second)
	c.list, c.at = plog.NewLogs(), c.at.Add(2*time.Minute)
	c.record(eventCallStopped, c.all(), 3, func(a pcommon.Map) {
		stoodAt(10, called, "overdue")(a)
		a.PutStr("nccl.rank.state", "stopped")
	})
	j.Add(c.list, c.at)
	for _, round := range j.Advance(c.at.Add(settled)) {
		require.Empty(t, round.Cleared)
		for _, f := range round.Findings {
			require.NotEqual(t, Halted, f.Kind)
		}
	}
}

// TestAClockThatIsAheadHidesNoHang: an end is dated by its node.
func TestAClockThatIsAheadHidesNoHang(t *testing.T) {
	c := newCalls(8)
	at := c.at
	c.at = at.Add(time.Hour)
	c.exits(askedToEnd, 5)
	c.at = at
	c.stands(c.all(), 10, "overdue", but(8, 5)...).left(c.all(), 9, "exited", 5)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	require.Empty(t, findings(j.Advance(c.at.Add(settled))))
	require.Len(t, findings(j.Advance(c.at.Add(DefaultOptions.Stopped+time.Second))), 1)
}

// TestARankInBackward: its threads of backward wait for the GPU, in a collective, or stand in code of
// its own, and which of these is not seen. What others say of it decides.
func TestARankInBackward(t *testing.T) {
	lacks := func(c *calls) *calls {
		return c.stands(c.all(), 13, "overdue", but(8, 5)...).stands(c.all(), 12, "overdue", 5)
	}
	for name, tc := range map[string]struct {
		records  func(*calls)
		culprits []int // nil for no finding
		sure     Sureness
	}{
		"by its calls it is likely":          {func(c *calls) { lacks(c).stacks("gpu", but(8, 5)...).stacks("backward", 5) }, []int{5}, Likely},
		"a stack from before its last call":  {func(c *calls) { at := c.at; c.at = at.Add(-time.Minute); c.stacks("backward", 5); c.at = at; lacks(c) }, []int{5}, Certain},
		"no call is seen":                    {func(c *calls) { c.stacks("collective", but(8, 5)...).stacks("backward", 5) }, nil, ""},
		"no call is seen, and all are there": {func(c *calls) { c.stand(inBackward, but(8)...) }, nil, ""},
		"another one stands elsewhere":       {func(c *calls) { c.stand(inCollective, but(8, 3, 5)...).stand(inBackward, 5).stand(inLock, 3) }, []int{3}, Likely},
		"it is stopped there": {func(c *calls) {
			c.stand(inCollective, but(8, 5)...).stand(stack{class: "backward", state: "stopped"}, 5)
		}, []int{5}, Likely},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			tc.records(c)
			f := c.found(t)
			if tc.culprits == nil {
				require.Empty(t, f)
				return
			}
			require.Len(t, f, 1)
			require.Equal(t, tc.culprits, f[0].Culprits)
			require.Equal(t, tc.sure, f[0].Sure, "%q", f[0].Because)
		})
	}
}

// TestARankInDInItsDriver: it launches nothing, whatever its stack says that it waits for.
func TestARankInDInItsDriver(t *testing.T) {
	inDriver := stack{class: "gpu", function: "rwsem_down_read_slowpath", owner: "nvidia", silence: "overdue", activity: "idle", state: "disk_sleep"}
	inFence, launches := inDriver, inDriver
	inFence.function, launches.class = "dma_fence_default_wait", "collective"
	lacks := func(c *calls) *calls {
		return c.stands(c.all(), 10, "overdue", but(8, 3)...).stands(c.all(), 9, "overdue", 3)
	}
	called := func(c *calls) *calls { return c.stands(c.all(), 10, "overdue", but(8)...) }
	for name, tc := range map[string]struct {
		records  func(*calls)
		kind     Kind // "" for no finding within the first seconds
		sure     Sureness
		later    Kind // after a minute
		culprits []int
	}{
		"it lacks a call":                       {records: func(c *calls) { lacks(c).stand(inCollective, but(8, 3)...).stand(inDriver, 3) }, kind: NotCalled, sure: Certain, culprits: []int{3}},
		"it lacks a call, and waits in a fence": {records: func(c *calls) { lacks(c).stand(inCollective, but(8, 3)...).stand(inFence, 3) }, later: Apart},
		"no call is seen":                       {records: func(c *calls) { c.stand(inCollective, but(8, 3)...).stand(inDriver, 3) }, kind: Outside, sure: Likely, culprits: []int{3}},
		"all have called, and it launches":      {records: func(c *calls) { called(c).stand(gpuAsleep, but(8, 3)...).stand(launches, 3) }, kind: Outside, sure: Likely, culprits: []int{3}},
		"all have called, and all are there":    {records: func(c *calls) { called(c).stand(inDriver, but(8)...) }, later: AllCalled},
		"no call is seen, and all launch":       {records: func(c *calls) { c.stand(launches, but(8)...) }, later: AllWait},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			tc.records(c)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at.Add(time.Second))
			soon := append(findings(j.Advance(c.at.Add(settled))), findings(j.Advance(c.at.Add(settled+time.Duration(mountSpeaks))))...)
			j = requireSameState(t, j)
			late := findings(j.Advance(c.at.Add(2 * DefaultOptions.StuckWait)))
			kind := tc.later
			found := late
			if tc.kind != "" {
				kind, found = tc.kind, soon
				require.Empty(t, late)
			} else {
				require.Empty(t, soon)
			}
			require.Len(t, found, 1)
			require.Equal(t, kind, found[0].Kind)
			require.Equal(t, tc.culprits, found[0].Culprits)
			if tc.culprits != nil {
				require.Equal(t, "its main thread is blocked in the kernel, in rwsem_down_read_slowpath of nvidia", found[0].Does)
			}
			if tc.sure != "" {
				require.Equal(t, tc.sure, found[0].Sure, "%q", found[0].Because)
			}
		})
	}
}
