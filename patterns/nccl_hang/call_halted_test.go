package ncclhang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

func (c *calls) doing(rank int, edit func(pcommon.Map)) *calls {
	c.record(eventCallDoing, comm{}, rank, edit)
	return c
}

func computes(a pcommon.Map) {
	a.PutStr("nccl.rank.silence", "long")
	a.PutStr("nccl.rank.activity", "computing")
}

func isStopped(a pcommon.Map) {
	a.PutStr("nccl.rank.state", "stopped")
	a.PutStr("nccl.rank.silence", "overdue")
}

// A rank that computes may come. One that is stopped does not, whatever it has called.
func TestAStragglerHidesNoStoppedRank(t *testing.T) {
	in := newCalls(8)
	in.stands(in.all(), 10, "overdue", but(8, 2, 5)...).stands(in.all(), 8, "long", 5).stopped(in.all(), 9, 2)
	for name, tc := range map[string]struct {
		calls    *calls
		kind     Kind
		culprits []int
		because  string
	}{
		"in one communicator":         {in, Halted, []int{2}, "rank 5 lacks a call, and may make it"},
		"in another one":              {manyGroups(2, 4, 2, 5).doing(5, computes).doing(12, isStopped), Halted, []int{12}, "rank 5 lacks a call, and may make it"},
		"a straggler alone":           {manyGroups(2, 4, 2, 5).doing(5, computes), Works, []int{5}, doubtPhase},
		"the straggler itself stands": {manyGroups(2, 4, 2, 5).doing(12, isStopped), NotCalled, []int{5}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := tc.calls.found(t)
			require.Len(t, found, 1)
			f := found[0]
			require.Equal(t, tc.culprits, f.Culprits, f.String())
			require.Equal(t, tc.kind, f.Kind)
			if tc.because != "" {
				require.Contains(t, f.Because, tc.because)
			}
			if f.Kind == Halted {
				require.Contains(t, f.Does, "its process is stopped")
			}
		})
	}
}

func TestTheStoppedOneOfTwoIsSaid(t *testing.T) {
	found := manyGroups(2, 4, 2, 5).doing(4, isStopped).found(t)
	require.Len(t, found, 1)
	require.Equal(t, []int{4, 5}, found[0].Culprits)
	require.Equal(t, "of rank 4, its process is stopped (SIGSTOP or a debugger)", found[0].Does)
}

// What stacks told stands while calls cannot say yet whether the rank goes on, and is one stop with
// what they say then.
func TestWhatStacksToldStandsUntilCallsSayMore(t *testing.T) {
	for name, tc := range map[string]struct {
		stack  stack             // of rank 5
		called func(pcommon.Map) // what its calls say of it beside their number
		then   []func(c *calls)  // what is told a second later, each
		says   string            // of the rank, at last
	}{
		"stopped, and nobody has looked yet": {
			stack{class: "collective", state: "stopped", silence: "overdue"}, func(a pcommon.Map) { a.Remove("nccl.rank.state"); a.Remove("nccl.rank.activity") }, nil,
			"its process is stopped (SIGSTOP or a debugger)",
		},
		"stopped since the look": {
			stack{class: "collective", state: "stopped", silence: "overdue"}, func(a pcommon.Map) { a.PutStr("nccl.rank.silence", "usual") },
			[]func(*calls){func(c *calls) { c.doing(5, isStopped) }}, "its process is stopped (SIGSTOP or a debugger)",
		},
		"asleep, and its calls had longer pauses": {
			inLock, func(a pcommon.Map) { a.PutStr("nccl.rank.silence", "usual") },
			[]func(*calls){func(*calls) {}, func(c *calls) { c.doing(5, func(a pcommon.Map) { inLock.does(a) }) }}, "its main thread is asleep, at 0 % CPU",
		},
		"asleep, and nobody has looked yet": {inLock, func(a pcommon.Map) { a.Remove("nccl.rank.state"); a.Remove("nccl.rank.activity") }, nil, "its main thread is asleep, at 0 % CPU"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(8)
			c.stand(inCollective, but(8, 5)...).stand(tc.stack, 5)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			told := findings(j.Advance(c.at.Add(settled)))
			require.Len(t, told, 1)
			require.Equal(t, Outside, told[0].Kind)

			last := told[0]
			called := func(c *calls) {
				c.stands(c.all(), 10, "overdue", but(8, 5)...)
				c.record(eventCallStopped, c.all(), 5, func(a pcommon.Map) {
					stoodAt(9, c.at.Add(-3*time.Second), "")(a)
					tc.called(a)
				})
			}
			for _, more := range append([]func(*calls){called}, tc.then...) {
				c.list, c.at = plog.NewLogs(), c.at.Add(time.Second)
				more(c)
				j.Add(c.list, c.at)
				for _, round := range j.Advance(c.at.Add(settled)) {
					require.Empty(t, round.Cleared)
					for _, f := range round.Findings {
						last = f
					}
				}
				j = requireSameState(t, j)
			}
			require.Equal(t, []any{NotCalled, Certain, told[0].Stop, tc.says}, []any{last.Kind, last.Sure, last.Stop, last.Does})
		})
	}
}
