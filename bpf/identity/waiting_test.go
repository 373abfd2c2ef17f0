//go:build linux && (amd64 || arm64)

package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFloodOfEndsTakesNoRoomFromOthers(t *testing.T) {
	w := waiting[int]{most: 10}
	require.Empty(t, w.add(1, 5, "tenant", "job"))
	require.Empty(t, w.add(2, 6, "tenant", "job"))
	var early []int
	for i := range 1000 {
		early = append(early, w.add(100+i, 7, "flood", "job")...)
	}
	require.Len(t, early, 992)
	require.IsIncreasing(t, early, "the oldest of the flood")
	require.Equal(t, 100, early[0])
	require.Equal(t, []int{1}, w.due(5))
	require.Equal(t, []int{2, 1092}, append(w.due(6), w.due(7)...)[:2])
}

// Many names of one owner are one owner.
func TestNamesThatAnOwnerMakesUpTakeNoRoom(t *testing.T) {
	w := waiting[int]{most: 10}
	require.Empty(t, w.add(1, 1, "tenant", "job"))
	for i := range 1000 {
		require.NotContains(t, w.add(100+i, 1, "flood", string(rune('a'+i))), 1)
	}
	require.Contains(t, w.all(), 1)
}

func TestEndsThatWaitKeepTheirOrder(t *testing.T) {
	w := waiting[int]{most: 10}
	for i, due := range []uint64{3, 0, 2, 9} { // 0 waits for what is before it
		require.Empty(t, w.add(i, due, string(rune('a'+i))))
	}
	require.Empty(t, w.due(2))
	require.Equal(t, []int{2}, w.those(func(i int) bool { return i == 2 }))
	require.Equal(t, []int{0, 1}, w.due(3))
	require.Equal(t, []int{3}, w.all())
	require.Empty(t, w.all())
}
