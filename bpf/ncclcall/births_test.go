package ncclcall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBirthsAreBoundedAndForgotten(t *testing.T) {
	at := time.Unix(100, 0)
	b := newBirths()
	for pid := range uint32(maxBirthProcesses + 5) {
		b.add(&Event{Time: at, Kind: InitRank, PID: pid, born: []uint64{7}, bootNS: 50})
	}
	require.LessOrEqual(t, len(b.pids()), maxBirthProcesses)
	require.True(t, b.seen(maxBirthProcesses, 7, 0))
	require.True(t, b.seen(maxBirthProcesses, 7, 49))
	require.False(t, b.seen(maxBirthProcesses, 7, 50), "calls of it may have found no room")
	require.False(t, b.seen(0, 7, 0), "it gave way")
	require.False(t, b.seen(maxBirthProcesses, 0, 0), "no hash is known")
	for hash := range uint64(2 * maxBirths) {
		b.add(&Event{Time: at, Kind: Split, PID: maxBirthProcesses, Hash: hash, Color: 1})
	}
	require.LessOrEqual(t, len(b.processes[maxBirthProcesses].splits), maxBirths)
	b.forget(maxBirthProcesses)
	require.False(t, b.seen(maxBirthProcesses, 7, 0))

	b.add(&Event{Time: at, Kind: InitRank, PID: 3, born: []uint64{7}, bootNS: 50, slot: 2})
	b.clear(0, at.Add(time.Second))
	require.Equal(t, []uint32{3}, b.pids(), "it is of another library")
	b.add(&Event{Time: at, Kind: InitRank, PID: 1, born: []uint64{7}, bootNS: 50})
	require.Equal(t, []uint32{3}, b.pids(), "it was made before, and read late")
	b.clearProcess(3, at.Add(time.Second))
	require.False(t, b.seen(3, 7, 0))
	b.add(&Event{Time: at, Kind: InitRank, PID: 3, born: []uint64{7}, bootNS: 50, slot: 2})
	require.False(t, b.seen(3, 7, 0), "it was made before, and read late")
	b.forget(3)
	b.add(&Event{Time: at.Add(time.Second), Kind: InitRank, PID: 1, born: []uint64{7}, bootNS: 51})
	require.True(t, b.seen(1, 7, 0))
	b.add(&Event{Time: at.Add(time.Second), Kind: Destroy, PID: 2})
	require.Len(t, b.pids(), 1)
}

// Processes without end, each with a communicator, make nobody else's communicators inexact.
func TestAFloodOfProcessesForgetsItsOwnBirths(t *testing.T) {
	b := newBirths()
	made := func(pid uint32, tenant, user uint16) {
		b.add(&Event{Kind: InitRank, PID: pid, born: []uint64{7}, bootNS: 1, tenant: tenant, user: user})
	}
	made(1, 1, 1) // another tenant
	made(2, 2, 2) // another user of the same
	for pid := range uint32(3 * maxBirthProcesses) {
		made(10+pid, 2, 3)
	}
	require.LessOrEqual(t, len(b.pids()), maxBirthProcesses)
	require.True(t, b.seen(1, 7, 0))
	require.True(t, b.seen(2, 7, 0))
}
