package silence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhoIsSilent(t *testing.T) {
	t.Cleanup(func() { Tell(Sockets, nil); Tell(Calls, nil) })
	require.False(t, Any())
	at := time.Unix(100, 0)
	Tell(Sockets, map[uint32]time.Time{7: at.Add(time.Second), 8: at})
	Tell(Calls, map[uint32]time.Time{7: at})
	require.True(t, Any())
	for pid, silent := range map[uint32]bool{7: true, 8: true, 9: false} {
		since, is := Since(pid)
		require.Equal(t, silent, is)
		if is {
			require.Equal(t, at, since, "the longest")
		}
	}
	Tell(Sockets, nil) // data moves
	_, is := Since(8)
	require.False(t, is)
	_, is = Since(7)
	require.True(t, is)
	Tell(Calls, map[uint32]time.Time{})
	require.False(t, Any())
}
