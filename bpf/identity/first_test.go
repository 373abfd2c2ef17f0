//go:build linux && (amd64 || arm64)

package identity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// zapped is the end of a process by that of the first process of its pid namespace.
func (s *scripted) zapped(pid, first uint32, start, now, firstStart float64) {
	kill := sent{
		signal: sigKILL, flags: sentByKernel | sentByInit | sentInExit, timeNS: s.ns(now), startNS: s.ns(firstStart), pid: first,
	}
	s.script.events <- event{
		kind: kindExit, pid: pid, parentPID: first, startNS: s.ns(start), timeNS: s.ns(now), comm: "python", status: sigKILL,
		signals: &signals{asked: asked{sent: kill, first: kill}},
	}
}

// nextExit is the next end that is told.
func (s *scripted) nextExit() Exit {
	s.Helper()
	select {
	case e := <-s.exits:
		return e
	case <-time.After(hosttest.Patience):
		require.FailNow(s, "no end is told")
		return Exit{}
	}
}

// The thread of a first process that kills its container may be ahead of the last, with whose end
// the kernel tells how that process has ended.
func TestWhatTheFirstProcessKillsIsToldWithItsEnd(t *testing.T) {
	begin := func(t *testing.T, ending time.Duration) *scripted {
		t.Helper()
		s := newScripted(t, Options{}, func(tr *Tracker, _ fakeProc, _ uint64) { tr.firstEnding = ending })
		s.exec(10, 1, 1, 1)
		s.exec(20, 10, 2, 2, "RANK=0", "WORLD_SIZE=2", "JOB_ID=j")
		s.exec(21, 10, 2, 2, "RANK=1", "WORLD_SIZE=2", "JOB_ID=j")
		return s
	}
	start := func(t *testing.T) *scripted { t.Helper(); return begin(t, time.Hour) } // however busy the machine is
	for name, tc := range map[string]struct {
		status uint32
		want   Relation
	}{"it fails": {3 << 8, RelationFirst}, "it crashes": {11, RelationFirst}, "it returns": {0, RelationContainer}} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.zapped(20, 10, 2, 5, 1)
			s.zapped(21, 10, 2, 7, 1)
			s.exit(10, 1, 1, 9, tc.status)
			for rank := range 2 {
				e := s.nextExit()
				require.Equal(t, rank, e.Rank, "in their order")
				require.Equal(t, tc.want, e.Signalled.Sender.Relation)
				require.WithinDuration(t, s.at(5+2*float64(rank)), e.Time, time.Second, "when it ended itself")
			}
		})
	}
	t.Run("another process fails meanwhile", func(t *testing.T) {
		s := start(t)
		s.exec(30, 1, 3, 3)
		s.zapped(20, 10, 2, 5, 1)
		s.exit(30, 1, 3, 5.001, 3<<8)
		s.exit(10, 1, 1, 5.002, 0)
		require.Equal(t, RelationContainer, s.nextExit().Signalled.Sender.Relation)
	})
	t.Run("its end was told before", func(t *testing.T) {
		s := start(t)
		s.exit(10, 1, 1, 4.999, 3<<8)
		s.zapped(20, 10, 2, 5, 1)
		require.Equal(t, RelationFirst, s.nextExit().Signalled.Sender.Relation)
	})
	t.Run("its end is lost", func(t *testing.T) {
		s := begin(t, firstEnding)
		s.zapped(20, 10, 2, 5, 1)
		require.Equal(t, RelationContainer, s.nextExit().Signalled.Sender.Relation, "after a second")
	})
	t.Run("nobody watches any more", func(t *testing.T) {
		s := start(t)
		s.zapped(20, 10, 2, 5, 1)
		s.settle()
		require.NoError(t, s.Close())
		require.Equal(t, 0, s.nextExit().Rank)
	})
	t.Run("more than can wait", func(t *testing.T) {
		s := start(t)
		const more = 100
		for i := range uint32(maxBehind + more) {
			s.exec(1000+i, 10, 3, 3, "RANK=5", "WORLD_SIZE=9000", "JOB_ID=j")
			s.zapped(1000+i, 10, 3, 5, 1)
		}
		s.exit(10, 1, 1, 5.002, 3<<8)
		relations := map[Relation]int{}
		for range maxBehind + more {
			relations[s.nextExit().Signalled.Sender.Relation]++
		}
		require.Equal(t, map[Relation]int{RelationContainer: more, RelationFirst: maxBehind}, relations)
	})
}
