package gpuask

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllWhoHearAreTold(t *testing.T) {
	Refused() // nobody hears
	first, stopFirst := Refusals()
	second, stopSecond := Refusals()
	defer stopSecond()
	require.Empty(t, first, "what was before")
	Refused()
	Refused() // waits for nobody
	require.Len(t, first, 1)
	require.Len(t, second, 1)
	<-first
	<-second
	stopFirst()
	Refused()
	require.Empty(t, first)
	require.Len(t, second, 1)
	stopSecond()
	stopSecond()
	require.Empty(t, refusals.listeners)
}

func TestRanksAreToldInOrderAndNobodyWaits(t *testing.T) {
	told, stop := Ranks()
	defer stop()
	Stands(7, true)
	Stands(7, false)
	require.Equal(t, Rank{7, true}, <-told)
	require.Equal(t, Rank{7, false}, <-told)
	for range maxRanks + 1 {
		Stands(8, true)
	}
	require.Len(t, told, maxRanks)
}
