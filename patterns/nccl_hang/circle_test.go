package ncclhang

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// stoodSince says that ranks made so many calls on a communicator, the last so long ago.
func (c *calls) stoodSince(in comm, number int, silence string, ago time.Duration, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(eventCallStopped, in, rank, stoodAt(number, c.at.Add(-ago), silence))
	}
	return c
}

// inverted is a job in which ranks 0-2 have called on X what rank 3 lacks, and ranks 3-7 on all
// what ranks 0-2 lack.
func inverted(c *calls) *calls {
	x := sub("0xaa", 0, 1, 2, 3)
	c.stoodSince(x, 10, "overdue", 4*time.Second, 0, 1, 2).stoodSince(x, 9, "overdue", 40*time.Second, 3)
	return c.stoodSince(c.all(), 20, "overdue", 5*time.Second, 3, 4, 5, 6, 7).stoodSince(c.all(), 19, "overdue", 40*time.Second, 0, 1, 2)
}

const invertedWords = "rank 3 waits in AllReduce #20 (4,096 x bf16) of communicator 0xa11 for ranks 0-2, " +
	"which wait in AllReduce #10 (4,096 x bf16) of communicator 0xaa for rank 3: the ranks do not call these in one order"

// TestRanksThatCallInAnotherOrder: none of those that wait for each other is to blame alone, nor what
// is below them. Who stands outside, is stopped or computes waits for nobody.
func TestRanksThatCallInAnotherOrder(t *testing.T) {
	stopped := func(c *calls) {
		c.record(eventCallDoing, comm{}, 3, func(a pcommon.Map) {
			a.PutStr("nccl.rank.state", "stopped")
			a.PutStr("nccl.rank.silence", "overdue")
		})
	}
	for name, tc := range map[string]struct {
		calls      func(*calls)
		soon, late string
		kind       Kind
		world      int
	}{
		"no stack is seen": {calls: func(c *calls) { inverted(c) }, late: invertedWords, kind: Circle},
		"all wait in a collective by their stacks": {
			calls: func(c *calls) { inverted(c).stand(inCollective, but(8)...) }, late: invertedWords, kind: Circle,
		},
		"all wait for their GPUs by their stacks": {
			calls: func(c *calls) { inverted(c).stand(gpuAsleep, but(8)...) }, late: invertedWords, kind: Circle,
		},
		"the stack of one rank is seen": {calls: func(c *calls) { inverted(c).stand(inCollective, 3) }, late: invertedWords, kind: Circle},
		"two ranks": {
			calls: func(c *calls) {
				x, y := sub("0xaa", 0, 1), sub("0xbb", 0, 1)
				c.stoodSince(x, 10, "overdue", 4*time.Second, 0).stoodSince(x, 9, "overdue", 40*time.Second, 1)
				c.stoodSince(y, 20, "overdue", 5*time.Second, 1).stoodSince(y, 19, "overdue", 40*time.Second, 0)
			},
			late: "rank 1 waits in AllReduce #20 (4,096 x bf16) of communicator 0xbb for rank 0, which waits in AllReduce #10 (4,096 x bf16) of communicator 0xaa for rank 1: the ranks do not call these in one order",
			kind: Circle, world: 2,
		},
		"others wait for one of them": {
			calls: func(c *calls) {
				inverted(c)
				c.stoodSince(sub("0xcc", 2, 6), 5, "overdue", 3*time.Second, 6).stoodSince(sub("0xcc", 2, 6), 4, "overdue", 30*time.Second, 2)
			},
			late: invertedWords, kind: Circle,
		},
		"one of them stands in a lock": {
			calls: func(c *calls) { inverted(c).stand(inLock, 3) },
			soon:  "rank 3 has not called AllReduce #10 (4,096 x bf16), which 3 ranks have called: its main thread is asleep, at 0 % CPU", kind: NotCalled,
		},
		"one of them is stopped": {
			calls: func(c *calls) { stopped(inverted(c)) },
			soon:  "rank 3 has not called AllReduce #10 (4,096 x bf16), which 3 ranks have called: its process is stopped (SIGSTOP or a debugger)", kind: NotCalled,
		},
		"one of them computes": {calls: func(c *calls) {
			inverted(c)
			c.record(eventCallDoing, comm{}, 3, func(a pcommon.Map) { a.PutStr("nccl.rank.silence", "usual") })
		}},
		"one of them computes for long": {
			calls: func(c *calls) {
				inverted(c)
				c.record(eventCallDoing, comm{}, 3, func(a pcommon.Map) {
					a.PutStr("nccl.rank.silence", "long")
					a.PutStr("nccl.rank.activity", "computing")
				})
			},
			soon: "rank 3 has not yet called AllReduce #10 (4,096 x bf16), which 3 ranks have called: its main thread computes", kind: Works,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(cmp.Or(tc.world, 8))
			tc.calls(c)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			j = requireSameState(t, j)
			soon := append(findings(j.Advance(c.at.Add(settled))), findings(j.Advance(c.at.Add(DefaultOptions.UnknownWait+settled)))...)
			late := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
			for i, want := range []string{tc.soon, tc.late} {
				f := [][]Finding{soon, late}[i]
				if want == "" {
					require.Empty(t, f)
					continue
				}
				require.Len(t, f, 1)
				require.Equal(t, want, f[0].String())
				require.Equal(t, tc.kind, f[0].Kind)
				require.Equal(t, but(c.world), f[0].Affected)
				if tc.kind == Circle {
					require.Equal(t, []any{Likely, []int(nil), -1, int64(0)}, []any{f[0].Sure, f[0].Culprits, f[0].Rank(), f[0].Host.PID})
					require.Contains(t, f[0].Because, doubtCircle)
				}
			}
		})
	}
}

// TestACircleIsOneStop: what was told of one of its ranks before is the same stop, and so are dumps.
func TestACircleIsOneStop(t *testing.T) {
	s := &standingJob{newCalls(8), newJoin(DefaultOptions)}
	x := sub("0xaa", 0, 1, 2, 3)
	first := findings(s.next(t, 0, func(c *calls) {
		c.stoodSince(x, 10, "overdue", 4*time.Second, 0, 1, 2).stoodSince(x, 9, "overdue", 40*time.Second, 3)
	}))
	require.Len(t, first, 1)
	require.Equal(t, []int{3}, first[0].Culprits)
	rounds := s.next(t, time.Second, func(c *calls) {
		c.stoodSince(c.all(), 20, "overdue", 5*time.Second, 3, 4, 5, 6, 7).stoodSince(c.all(), 19, "overdue", 40*time.Second, 0, 1, 2)
	})
	second := findings(rounds)
	require.Len(t, second, 1)
	require.Equal(t, Circle, second[0].Kind)
	require.Equal(t, first[0].Stop, second[0].Stop)
	require.Empty(t, rounds[0].Cleared)
	later := findings(s.next(t, time.Second, func(c *calls) { c.stand(inLock, 3) }))
	require.Len(t, later, 1)
	require.Equal(t, []any{NotCalled, []int{3}, first[0].Stop}, []any{later[0].Kind, later[0].Culprits, later[0].Stop})
}
