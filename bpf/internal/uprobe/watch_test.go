//go:build linux

package uprobe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

func TestProcessesWithoutALibraryAreLookedAtEverMoreRarely(t *testing.T) {
	w := NewWatcher(procfs.Open("").WithPatience(hosttest.Patience), Libraries{Names: []string{"libcuda.so"}, Max: 1})
	own := []Process{{PID: uint32(os.Getpid())}}
	rounds := 0
	for range 1000 {
		_, err := w.Watch(own)
		require.NoError(t, err)
		rounds++
	}
	looks := w.processes[own[0].PID].looks
	require.Greater(t, looks, rounds/MaxPause)
	require.Less(t, looks, rounds/4)

	own[0].Start = time.Now() // another process by that number
	_, err := w.Watch(own)
	require.NoError(t, err)
	require.Equal(t, 1, w.processes[own[0].PID].looks)
	_, err = w.Watch(nil)
	require.NoError(t, err)
	require.Empty(t, w.processes)
}

func TestProcessThatCannotBeReadIsCountedAndTriedAgain(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "7", "maps"), 0o755)) // a folder cannot be read
	w := NewWatcher(procfs.Open(root).WithPatience(hosttest.Patience), Libraries{Names: []string{"libcuda.so"}, Max: 1})
	for range 2 {
		watched, err := w.Watch([]Process{{PID: 7}, {PID: 8}}) // 8 is gone
		require.NoError(t, err)
		require.Equal(t, 1, watched.Unreadable)
		require.ErrorContains(t, watched.Err, "7/maps")
	}
}

// A process that holds the lock of its memory map, for as long as it is stuck.
func TestStuckProcessesDoNotHoldTheOthers(t *testing.T) {
	root := t.TempDir()
	for _, pid := range []string{"7", "8"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, pid), 0o755))
	}
	// A pipe without a writer holds its reader as a held lock does.
	pipe := filepath.Join(root, "7", "maps")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "8", "maps"), nil, 0o600))
	w := NewWatcher(procfs.Open(root), Libraries{Names: []string{"libcuda.so"}, Max: 1})
	for range 2 {
		watched, err := w.Watch([]Process{{PID: 7}, {PID: 8}})
		require.NoError(t, err)
		require.Equal(t, 1, watched.Unreadable)
		require.ErrorIs(t, watched.Err, procfs.ErrHung)
	}
	require.Equal(t, 1, w.proc.Left(), "it is not asked again meanwhile")
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Eventually(t, func() bool { return w.proc.Left() == 0 }, hosttest.Patience, time.Millisecond)
}

// A user maps as many libraries as there is room for: those of others are attached all the
// same.
func TestLibrariesOfOneOwnerLeaveRoomForOthers(t *testing.T) {
	w := NewWatcher(procfs.Open(t.TempDir()), Libraries{Max: 8})
	users := map[library][]Process{}
	closed := 0
	hold := func(inode uint64, owners ...string) library {
		l := library{"8:1", inode}
		for i, owner := range owners {
			users[l] = append(users[l], Process{PID: uint32(inode) + uint32(i), Owner: owner})
		}
		return l
	}
	attach := func(l library) { w.attached[l] = &attached{probes: closer(func() { closed++ })} }
	for inode := range uint64(6) {
		attach(hold(inode, "flooder"))
	}
	attach(hold(6, "flooder", "other"))
	attach(hold(7, "third"))
	for want, owner := range []string{"other", "other", "third", "flooder", "flooder"} {
		l := hold(10+uint64(want), owner)
		freed, err := w.makeRoom(l, users)
		require.NoError(t, err)
		require.Equal(t, want < 3, freed, "%d", want)
		if freed {
			require.Equal(t, want+1, closed)
			attach(l)
		}
	}
	require.Contains(t, w.attached, library{"8:1", 6}, "it is not the flooder's alone")
	require.Contains(t, w.attached, library{"8:1", 7})
	require.Len(t, w.attached, 8)
}

// A library that two owners map counts for both: two who map each other's take no more than
// one who maps his own.
func TestLibrariesOfTwoOwnersLeaveRoomForOthers(t *testing.T) {
	w := NewWatcher(procfs.Open(t.TempDir()), Libraries{Max: 8})
	users := map[library][]Process{}
	for inode := range uint64(8) {
		l := library{"8:1", inode}
		users[l] = []Process{{PID: 1, Owner: "flooder"}, {PID: 2, Owner: "friend"}}
		w.attached[l] = &attached{probes: closer(func() {})}
	}
	wanted := library{"8:1", 100}
	users[wanted] = []Process{{PID: 3, Owner: "other"}}
	freed, err := w.makeRoom(wanted, users)
	require.NoError(t, err)
	require.True(t, freed)
	require.Len(t, w.attached, 7)
}

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// What ends soon after its start may be started again: its file stays attached for a while, unless others want the room.
func TestALibraryThatNobodyMapsIsKeptForAWhile(t *testing.T) {
	closed := 0
	watcher := func(keep int) (*Watcher, library) {
		w, l := NewWatcher(procfs.Open(t.TempDir()), Libraries{Max: 1, Keep: keep}), library{"8:1", 1}
		w.attached[l], closed = &attached{probes: closer(func() { closed++ })}, 0
		return w, l
	}
	w, l := watcher(3)
	for round, users := range []map[library][]Process{{}, {}, {l: {{PID: 7}}}, {}, {}, {}} {
		w.round = round + 1
		var result Watched
		require.NoError(t, w.settle(users, &result))
		kept := round < 5
		require.Equal(t, !kept, closed == 1, "round %d", round)
		require.Equal(t, kept, result.Libraries == 1)
	}
	w, _ = watcher(0)
	require.NoError(t, w.settle(nil, &Watched{}))
	require.Equal(t, 1, closed)
	w, _ = watcher(3)
	freed, err := w.makeRoom(library{"8:1", 2}, map[library][]Process{{"8:1", 2}: {{PID: 8, Owner: "other"}}})
	require.NoError(t, err)
	require.True(t, freed)
	require.Equal(t, 1, closed)
}
