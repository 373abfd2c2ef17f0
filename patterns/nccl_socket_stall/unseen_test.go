package ncclsocketstall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// A job says its own size: two processes that claim a million ranks get no list of the others.
func TestRanksThatAreMissingAreListedUpToABound(t *testing.T) {
	two := map[int]bool{0: true, 3: true}
	require.Equal(t, []int{1, 2, 4}, without(5, two))
	require.Len(t, without(verdict.MaxRanks+2, two), verdict.MaxRanks)
	require.Nil(t, without(verdict.MaxRanks+3, two))
	require.Nil(t, without(socketstall.MaxRank+1, two))
	require.Nil(t, without(3, two), "a rank lies beyond")
	require.Nil(t, without(5, map[int]bool{socketstall.Unknown: true}))

	all := map[int]bool{}
	for rank := range socketstall.MaxRank {
		all[rank] = true
	}
	require.Equal(t, []int{socketstall.MaxRank}, without(socketstall.MaxRank+1, all), "the one that is missing of a large job")
}
