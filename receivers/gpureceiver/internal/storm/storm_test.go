package storm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Unix(1_700_000_000, 0)

func TestAStormIsToldOnceThenWithItsCount(t *testing.T) {
	s := New("gpu", 10*time.Second)
	one := Fault{PCI: "a", Event: Xid, XID: 94}
	first, now := s.Add(one, start)
	require.True(t, now)
	first.Told = first.Count
	for i := range 1000 {
		_, now = s.Add(one, start.Add(time.Duration(i)*time.Millisecond))
		require.False(t, now)
	}
	_, now = s.Add(Fault{PCI: "a", Event: Xid, XID: 95}, start)
	require.True(t, now, "another Xid is another fault")
	tell := s.Expire(start.Add(5 * time.Second))
	require.Equal(t, 1001, tell[0].Count)
	require.Equal(t, first.ID, tell[0].ID)
	for _, told := range tell {
		told.Told = told.Count
	}
	require.Empty(t, s.Expire(start.Add(20*time.Second)))
	_, now = s.Add(one, start.Add(21*time.Second))
	require.True(t, now, "quiet for an interval, the next is a new storm")
}

func TestWhatTheLibrarySaysMakesNoOtherStorm(t *testing.T) {
	s := New("gpu", time.Second)
	s.Add(Fault{PCI: "a", Event: Policy, Kind: "power", Text: "701 W"}, start)
	storm, now := s.Add(Fault{PCI: "a", Event: Policy, Kind: "power", Text: "702 W"}, start)
	require.False(t, now)
	require.Equal(t, "701 W", storm.Text)
}

func TestStormsAreBounded(t *testing.T) {
	s := New("gpu", time.Second)
	for i := range uint64(maxOpen + 100) {
		_, now := s.Add(Fault{XID: i}, start)
		require.True(t, now)
	}
	require.Len(t, s.open, maxOpen)
	s.Add(Fault{XID: 0}, start)
	require.Len(t, s.Flush(), maxOpen)
	require.Empty(t, s.open)
}
