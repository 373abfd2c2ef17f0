package gpurefusal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllWhoHearAreTold(t *testing.T) {
	Tell() // nobody hears
	first, stopFirst := Hear()
	second, stopSecond := Hear()
	defer stopSecond()
	require.Empty(t, first, "what was before")
	Tell()
	Tell() // waits for nobody
	require.Len(t, first, 1)
	require.Len(t, second, 1)
	<-first
	<-second
	stopFirst()
	Tell()
	require.Empty(t, first)
	require.Len(t, second, 1)
	stopSecond()
	stopSecond()
	require.Empty(t, listeners.all)
}
