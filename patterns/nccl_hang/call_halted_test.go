package ncclhang

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
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
