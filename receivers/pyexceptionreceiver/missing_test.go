package pyexceptionreceiver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
)

// Rank 0 says who did not come to a monitored barrier. What another rank says, or who is no rank of the job, is not read.
func TestRanksThatDidNotComeToABarrier(t *testing.T) {
	for said, want := range map[string][]int{
		"[Rank 0]: Rank 1 failed to pass monitoredBarrier in 10000 ms":                                                         {1},
		"[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 10000 ms":                                                     {1, 2},
		"[Rank 0]: Ranks 3,1 failed to pass monitoredBarrier in 10000 ms":                                                      {3, 1},
		"[Rank 0]: Rank 3 failed to pass monitoredBarrier in 10000 ms\n Original exception: \n":                                {3},
		"[Rank 0]: Rank 4 failed to pass monitoredBarrier in 10000 ms":                                                         nil, // no rank of the job
		"[Rank 0]: Ranks 1, 4 failed to pass monitoredBarrier in 10000 ms":                                                     nil,
		"[Rank 0]: Rank 0 failed to pass monitoredBarrier in 10000 ms":                                                         nil,
		"[Rank 0]: Ranks 1, 1 failed to pass monitoredBarrier in 10000 ms":                                                     nil,
		"[Rank 0]: Rank 99999999999999999999 failed to pass monitoredBarrier in 10000 ms":                                      nil,
		"[Rank 0]: Rank -1 failed to pass monitoredBarrier in 10000 ms":                                                        nil,
		"[Rank 0]: Ranks 1, 2; rm failed to pass monitoredBarrier in 10000 ms":                                                 nil,
		"no, [Rank 0]: Rank 1 failed to pass monitoredBarrier in 10000 ms":                                                     nil,
		"[Rank 0]: Ranks " + strings.Repeat("1, ", 1000) + "2 failed to pass monitoredBarrier in 10000 ms":                     nil,
		"[Rank 2]: Successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please": nil,
		"bad batch 3": nil,
	} {
		chain := []pyexception.Exception{{Type: "RuntimeError", Message: said}}
		require.Equal(t, want, missing(chain, &identity.Process{Rank: 0, WorldSize: 4}), said)
		require.Nil(t, missing(chain, &identity.Process{Rank: 2, WorldSize: 4}), "of rank 0 of a smaller group")
		require.Nil(t, missing(chain, &identity.Process{Rank: 0}), "the size of the job is not known")
	}
	one := pyexception.Exception{Type: "RuntimeError", Message: "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 10000 ms"}
	who := &identity.Process{Rank: 0, WorldSize: 4}
	require.Equal(t, []int{1}, missing([]pyexception.Exception{{Type: "RuntimeError", Message: "step 7 failed"}, one}, who), "its cause")
	one.Relation = pyexception.Context
	require.Nil(t, missing([]pyexception.Exception{one, {Relation: pyexception.Context, Type: "ValueError", Message: "bad batch 3"}}, who), "something failed before")
}
