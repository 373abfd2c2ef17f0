package storm

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Unix(1_700_000_000, 0)

func TestAStormIsToldOnceThenWithItsCount(t *testing.T) {
	s := New("gpu", 10*time.Second)
	one := Fault{PCI: "a", Event: Xid, XID: 94}
	first := s.Add(one, start)
	require.Len(t, first, 1)
	first[0].Told = first[0].Count
	for i := range 1000 {
		require.Empty(t, s.Add(one, start.Add(time.Duration(i)*time.Millisecond)))
	}
	require.Len(t, s.Add(Fault{PCI: "a", Event: Xid, XID: 95}, start), 1, "another Xid is another fault")
	tell := s.Expire(start.Add(5 * time.Second))
	require.Equal(t, 1001, tell[0].Count)
	require.Equal(t, first[0].ID, tell[0].ID)
	for _, told := range tell {
		told.Told = told.Count
	}
	require.Empty(t, s.Expire(start.Add(20*time.Second)))
	require.Len(t, s.Add(one, start.Add(21*time.Second)), 1, "quiet for an interval, the next is a new storm")
}

func TestWhatTheLibrarySaysMakesNoOtherStorm(t *testing.T) {
	s := New("gpu", time.Second)
	first := s.Add(Fault{PCI: "a", Event: Policy, Kind: "power", Text: "701 W"}, start)
	require.Empty(t, s.Add(Fault{PCI: "a", Event: Policy, Kind: "power", Text: "702 W"}, start))
	require.Equal(t, "701 W", first[0].Text)
}

// TestAFloodTakesRoomFromItself: a process that makes faults without end, under as many
// numbers and processes as it likes, ends no storm of another GPU; and no repetition is
// lost of those that give way.
func TestAFloodTakesRoomFromItself(t *testing.T) {
	for name, flood := range map[string]func(i int) Fault{
		"Xids of one process":   func(i int) Fault { return Fault{PCI: "loud", Event: Xid, XID: uint64(i), PID: 7} },
		"one Xid of many":       func(i int) Fault { return Fault{PCI: "loud", Event: Xid, XID: 13, PID: uint32(i)} },
		"instances of its MIG":  func(i int) Fault { return Fault{PCI: "loud", Event: Xid, XID: 13, GPUInstance: i} },
		"warnings of all kinds": func(i int) Fault { return Fault{PCI: "loud", Event: Health, Kind: fmt.Sprint(i)} },
	} {
		t.Run(name, func(t *testing.T) {
			s := New("gpu", time.Minute)
			told := map[string]int{}
			tell := func(storms []*Storm) {
				for _, o := range storms {
					told[o.PCI] += o.Count - o.Told
					o.Told = o.Count
				}
			}
			quiet := Fault{PCI: "quiet", Event: Xid, XID: 94, PID: 1}
			tell(s.Add(quiet, start))
			const rounds = 4 * maxOpen
			for i := range rounds {
				at := start.Add(time.Duration(i) * time.Millisecond)
				for range 2 {
					tell(s.Add(flood(i), at))
				}
				if i%1000 == 0 {
					require.Empty(t, s.Add(quiet, at), "its storm goes on")
				}
				require.LessOrEqual(t, s.order.Len(), maxOpen)
			}
			require.EqualValues(t, rounds+1-maxOpen, s.ClosedEarly())
			tell(s.Flush())
			require.Equal(t, map[string]int{"quiet": 1 + (rounds+999)/1000, "loud": 2 * rounds}, told)
			require.Empty(t, s.open)
			require.Zero(t, s.order.Len())
		})
	}
}
