package identity

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const second = uint64(time.Second)

func entry(pid uint32, startNS uint64, rank int) *record {
	return &record{startNS: startNS, Process: Process{PID: pid, Rank: rank}}
}

func TestTableForgetsAfterTheRetention(t *testing.T) {
	table := newTable(10, time.Minute)
	r := entry(1, second, 3)
	table.put(r, second)
	table.expire(1000 * second)
	require.NotNil(t, table.at(1, 1000*second), "the living stay")
	table.end(r, 1000*second)
	table.expire(1059 * second)
	require.NotNil(t, table.at(1, 1059*second))
	table.expire(1060 * second)
	require.Nil(t, table.at(1, 1060*second))
	require.Zero(t, table.len())
	require.Empty(t, table.byPID)
}

func TestTableEvictsWhatIsMissedLeast(t *testing.T) {
	table := newTable(4, time.Minute)
	put := func(pid uint32, rank int, ended bool) {
		r := entry(pid, second, rank)
		table.put(r, second)
		if ended {
			table.end(r, 2*second)
		}
	}
	put(1, 3, false)       // living rank
	put(2, Unknown, false) // living other
	put(3, 4, true)        // exited rank
	put(4, Unknown, true)  // exited other
	for i, gone := range []uint32{4, 2, 3} {
		put(uint32(10+i), 5, false)
		require.Nil(t, table.at(gone, 3*second), "process %d goes", gone)
		require.Equal(t, 4, table.len())
	}
	put(20, Unknown, false)
	require.NotNil(t, table.at(20, 3*second), "the newest stays, whatever it is")
	require.Nil(t, table.at(1, 3*second), "the oldest rank went")
	require.EqualValues(t, 4, table.evicted)
}

// TestAFloodOfProcessesForgetsItsOwn: one user starts ranks without end, each dead at once
// or not, in as many containers as he likes. The dead and living ranks of others stay.
func TestAFloodOfProcessesForgetsItsOwn(t *testing.T) {
	const room, quiet = 100, 20
	for name, dead := range map[string]bool{"they end": true, "they live": false} {
		t.Run(name, func(t *testing.T) {
			table := newTable(room, time.Hour)
			put := func(pid uint32, domain, container string, ends bool) {
				r := entry(pid, second, 1)
				r.Domain, r.ContainerID = domain, container
				table.put(r, second)
				if ends {
					table.end(r, 2*second)
				}
			}
			for i := range uint32(quiet) {
				put(1+i, "pods of user 1", "a", dead)
			}
			for i := range uint32(10 * room) {
				put(1000+i, "pods of user 2", fmt.Sprint(i), dead)
			}
			require.Equal(t, room, table.len())
			for i := range uint32(quiet) {
				require.NotNil(t, table.at(1+i, 3*second), "process %d", 1+i)
			}
			require.EqualValues(t, quiet+10*room-room, table.evicted)
		})
	}
}

func TestTableKeepsTheFinerStartOfOneProcess(t *testing.T) {
	table := newTable(4, time.Minute)
	table.put(entry(1, 1_234_567_890, 3), second)
	table.put(entry(1, 1_230_000_000, 4), second) // the same, as /proc tells it
	require.Equal(t, 1, table.len())
	r := table.exact(1, 1_235_000_000)
	require.Equal(t, []any{4, uint64(1_234_567_890)}, []any{r.Rank, r.startNS})
	require.Nil(t, table.exact(1, 1_250_000_000))
}

func TestTableEndsTheProcessWhosePIDIsTakenOver(t *testing.T) {
	table := newTable(4, time.Minute)
	first := entry(1, second, 3)
	table.put(first, second)
	table.put(entry(1, 9*second, Unknown), 10*second)
	require.Equal(t, 9*second, first.endNS)
	require.Zero(t, table.ranks())
}

// Entries may come out of order, and go in any: the chain of one pid must hold.
func TestTableChainHoldsInAnyOrder(t *testing.T) {
	starts := []uint64{5, 1, 3, 2, 4}
	for gone := range starts {
		table := newTable(10, time.Minute)
		records := map[uint64]*record{}
		for _, s := range starts {
			records[s] = entry(1, s*second, int(s))
			table.put(records[s], 10*second)
		}
		table.remove(records[starts[gone]])
		var left []int
		for r := table.byPID[1]; r != nil; r = r.older {
			left = append(left, r.Rank)
		}
		require.Len(t, left, 4)
		require.IsDecreasing(t, left)
		require.Equal(t, 4, table.len())
	}
}

func BenchmarkTable(b *testing.B) {
	table := newTable(DefaultMaxProcesses, DefaultRetention)
	b.ReportAllocs()
	pid := uint32(0)
	for b.Loop() {
		pid++
		r := entry(pid, second, Unknown)
		table.put(r, second)
		table.end(r, second)
	}
}
