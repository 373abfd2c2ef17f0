package ncclhang

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoWaitsForWhom(t *testing.T) {
	others := func(size int, but ...int) (ranks []int) {
		for rank := range size {
			if !has(but, rank) {
				ranks = append(ranks, rank)
			}
		}
		return ranks
	}
	for name, c := range map[string]struct {
		finding Finding
		want    string
	}{
		"not called":         {Finding{Kind: NotCalled, Operation: "AllReduce", Seq: 10432, Culprits: []int{517}, Waiting: others(1024, 517)}, "0-516,518-1023>rank 517|AllReduce #10432"},
		"through others":     {Finding{Kind: NotEntered, Operation: "all_gather", Culprits: []int{1}, Waiting: []int{0, 2}, Affected: []int{0, 1, 2, 3, 4}}, "0,2-4/0,2>rank 1|all_gather"},
		"no dump":            {Finding{Kind: NoDump, NoDump: []int{2, 3}, Waiting: []int{0, 1}}, "0-1>ranks 2-3|a collective"},
		"nobody is named":    {Finding{Kind: Stuck, Operation: "all_reduce", Waiting: []int{0, 1}}, ""},
		"a mismatch":         {Finding{Kind: Mismatch, Culprits: []int{0}, Waiting: []int{1}}, ""},
		"ranks of no job":    {Finding{Kind: NotCalled, Culprits: []int{0}, Waiting: []int{1}, Local: true}, ""},
		"who waits is many":  {Finding{Kind: NotCalled, Operation: "AllReduce", Culprits: []int{0}}, ""},
		"its own are no one": {Finding{Kind: NotCalled, Culprits: []int{0}, Waiting: []int{0}}, ""},
	} {
		a := attributes{}
		c.finding.putEdges(a)
		got, _ := a["nccl.collective.edges"].(string)
		require.Equal(t, c.want, got, name)
	}
}
