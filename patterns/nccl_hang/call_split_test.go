package ncclhang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// splits says that ranks have waited in a function that makes a communicator of another since ten
// seconds, or that they wait no more.
func (c *calls) splits(event, function string, in comm, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(event, in, rank, func(a pcommon.Map) {
			a.PutStr("nccl.call.function", function)
			a.PutInt("nccl.call.waited_ns", int64(10*time.Second))
		})
	}
	return c
}

// stood says that ranks made their last call on a communicator so long ago.
func (c *calls) stood(in comm, silence string, ago time.Duration, ranks ...int) *calls {
	for _, rank := range ranks {
		c.record(eventCallStopped, in, rank, stoodAt(10, c.at.Add(-ago), silence))
	}
	return c
}

// TestWhoHasNotSplit: all ranks of a communicator must call the function that makes another of it.
func TestWhoHasNotSplit(t *testing.T) {
	const ago = 15 * time.Second
	split := func(c *calls, ranks ...int) { c.splits(eventCallInit, "ncclCommSplit", c.all(), ranks...) }
	for name, tc := range map[string]struct {
		calls func(*calls)
		soon  string // what is told at once, "" for nothing
		late  string // after a minute
		kind  Kind
		sure  Sureness
	}{
		"a rank sleeps": {
			calls: func(c *calls) { c.stood(c.all(), "overdue", ago, but(8)...); split(c, but(8, 5)...) },
			soon:  "rank 5 has not called ncclCommSplit for a split of communicator 0xa11, which 7 ranks have called: its main thread is asleep, at 0 % CPU", kind: NotInitialized, sure: Likely,
		},
		"of groups of the job, one rank sleeps": {
			calls: func(c *calls) {
				half := sub("0x4", 4, 5, 6, 7)
				c.stood(half, "overdue", ago, 4, 5, 6, 7).splits(eventCallInit, "ncclCommSplit", half, 4, 6, 7)
			},
			soon: "rank 5 has not called ncclCommSplit for a split of communicator 0x4, which 3 ranks have called: its main thread is asleep, at 0 % CPU", kind: NotInitialized, sure: Likely,
		},
		"a rank computes": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", ago, but(8, 5)...).stood(c.all(), "usual", ago, 5)
				split(c, but(8, 5)...)
			},
		},
		"a rank is stopped, and another computes": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", ago, but(8, 3)...).stood(c.all(), "usual", ago, 3)
				c.record(eventCallDoing, comm{}, 5, func(a pcommon.Map) { a.PutStr("nccl.rank.state", "stopped") })
				split(c, but(8, 3, 5)...)
			},
			soon: "rank 5 has not called ncclCommSplit for a split of communicator 0xa11, which 6 ranks have called: its process is stopped (SIGSTOP or a debugger)", kind: NotInitialized, sure: Likely,
		},
		"a rank computes for long": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", ago, but(8, 5)...).stood(c.all(), "long", ago, 5)
				split(c, but(8, 5)...)
			},
			soon: "rank 5 has not yet called ncclCommSplit, which 7 ranks have called: its main thread computes", kind: Works, sure: Likely,
		},
		"all call a collective first, and the clock of its host is ahead": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", 10*time.Second+time.Millisecond, but(8, 5)...).stood(c.all(), "overdue", 10*time.Second-2*time.Second, 5)
				split(c, but(8, 5)...)
			},
			soon: "rank 5 has not called ncclCommSplit for a split of communicator 0xa11, which 7 ranks have called: its main thread is asleep, at 0 % CPU", kind: NotInitialized, sure: Likely,
		},
		"the collective before it is one of a group of the job": {
			calls: func(c *calls) {
				pair := sub("0x2", 4, 5)
				c.stood(c.all(), "overdue", ago, but(8)...).stood(pair, "overdue", 10*time.Second+time.Millisecond, 4).stood(pair, "overdue", 9*time.Second, 5)
				split(c, but(8, 5)...)
			},
			soon: "rank 5 has not called ncclCommSplit for a split of communicator 0xa11, which 7 ranks have called: its main thread is asleep, at 0 % CPU", kind: NotInitialized, sure: Likely,
		},
		"its last call is to one rank": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", ago, but(8, 5)...)
				c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
					stoodAt(10, c.at.Add(-9*time.Second), "overdue")(a)
					a.PutStr("nccl.call.last_operation", "Send")
					a.PutInt("nccl.call.last_root", 3)
				})
				split(c, but(8, 5)...)
			},
		},
		"a rank has called on another communicator since": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", ago, but(8)...).stood(sub("0x2", 5, 6), "overdue", time.Second, 5, 6)
				split(c, but(8, 5)...)
			},
		},
		"its agent came late": {
			calls: func(c *calls) { c.stoodLike("nccl.call.exact", false); split(c, but(8, 5)...) },
		},
		"of one rank no record came": {
			calls: func(c *calls) { c.stood(c.all(), "overdue", ago, but(8, 5)...); split(c, but(8, 5)...) },
			late:  "rank 5 has not called ncclCommSplit for a split of communicator 0xa11, which 7 ranks have called", kind: NotInitialized, sure: Likely,
		},
		"one waits no more": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", ago, but(8)...)
				split(c, but(8, 5)...)
				c.splits(eventCallReady, "ncclCommSplit", c.all(), 3)
			},
		},
		"it has made another one of it before": {
			calls: func(c *calls) {
				c.at = c.at.Add(-time.Minute)
				split(c, but(8)...)
				c.splits(eventCallReady, "ncclCommSplit", c.all(), but(8)...)
				c.at = c.at.Add(time.Minute)
				c.stood(c.all(), "overdue", ago, but(8)...)
				split(c, but(8, 5)...)
			},
			soon: "rank 5 has not called ncclCommSplit for a split of communicator 0xa11, which 7 ranks have called: its main thread is asleep, at 0 % CPU", kind: NotInitialized, sure: Likely,
		},
		"which ranks are left out is not known": {
			calls: func(c *calls) {
				c.stood(c.all(), "overdue", ago, but(8)...).splits(eventCallInit, "ncclCommShrink", c.all(), but(8, 5)...)
			},
			soon: "rank 5 has not called ncclCommShrink for a shrink of communicator 0xa11, which 7 ranks have called: its main thread is asleep, at 0 % CPU", kind: NotInitialized, sure: Unsure,
		},
		"all have called it, and do not use the new one": {
			calls: func(c *calls) { c.stood(c.all(), "overdue", ago, but(8)...); split(c, but(8)...) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			tc.calls(c)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			soon := findings(j.Advance(c.at.Add(settled)))
			j = requireSameState(t, j)
			late := findings(j.Advance(c.at.Add(DefaultOptions.InitWait)))
			for i, want := range []string{tc.soon, tc.late} {
				found := [][]Finding{soon, late}[i]
				if want == "" {
					require.Empty(t, found)
					continue
				}
				require.Len(t, found, 1)
				require.Equal(t, want, found[0].String())
				require.Equal(t, []any{tc.kind, tc.sure, []int{5}}, []any{found[0].Kind, found[0].Sure, found[0].Culprits}, found[0].Because)
				require.Contains(t, found[0].Because, doubtInit)
			}
		})
	}
}
