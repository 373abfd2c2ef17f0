//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// roomFor is how many processes have signals in the tests of a full map.
const roomFor = 512

// crowdedBench is a tracker whose map of signals a test can fill.
func crowdedBench(t *testing.T) (*senderBench, *ring) {
	t.Helper()
	proc := newReader("/proc")
	proc.WithPatience(hosttest.Patience)
	source, fired, err := openRing(proc, sizes{signals: roomFor}, bpfProgExecEnviron, bpfProgExitStatus, bpfProgSignalSent)
	require.NoError(t, err)
	require.True(t, fired)
	opts, err := Options{}.withDefaults()
	require.NoError(t, err)
	tracker := newTracker(opts, source, proc, probe.Report{})
	tracker.start()
	t.Cleanup(func() { require.NoError(t, tracker.Close()) })
	return &senderBench{Tracker: tracker, TB: t, exits: watch(t, tracker)}, source.(*ring)
}

// crowd stops so many processes, each under a user, in a memory cgroup of its own if it is
// confined.
func (b *senderBench) crowd(as *syscall.SysProcAttr, confined bool, processes int) *child {
	b.Helper()
	c := startChildAs(b, as, "stopsOwn")
	remove := func() error { return nil }
	if confined {
		var err error
		remove, err = oomkill.Confine(int(c.pid()), 1<<30)
		require.NoError(b, err)
	}
	b.Cleanup(func() {
		c.finish() // it ends what it has stopped: one that was stopped at its start outlives it
		require.NoError(b, remove())
	})
	_, err := fmt.Fprintln(c.stdin, processes)
	require.NoError(b, err)
	require.EqualValues(b, processes, c.printed(b))
	return c
}

// requireShared: what is counted as held is what the map holds.
func (r *ring) requireShared(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { // others on this machine may have signals at any time
		var owners []room.Owner
		var pid uint32
		var s bpfSignals
		for all := r.maps.Signals.Iterate(); all.Next(&pid, &s); {
			owners = append(owners, room.Owner{Tenant: s.Owner.TenantSlot, User: s.Owner.UserSlot})
		}
		held, err := room.Held(r.maps.Held)
		require.NoError(t, err)
		return fmt.Sprint(room.Counts(owners)) == fmt.Sprint(held)
	}, hosttest.Patience, 10*time.Millisecond)
}

// Where a user stops or signals thousands of his own processes, the senders of their signals are
// forgotten, and those of no other user.
func TestSignalsToProcessesOfOneUserHideNoSenderOfAnother(t *testing.T) {
	privtest.Require(t)
	for name, tc := range map[string]struct {
		as       *syscall.SysProcAttr
		confined bool
	}{"another user": {as: asUser(64000)}, "another tenant": {confined: true}} {
		t.Run(name, func(t *testing.T) {
			b, r := crowdedBench(t)
			before := b.start(nil, "wait")
			stopper := b.kill(nil, "stopper", before.pid(), unix.SIGSTOP)
			rank, known := b.Lookup(before.pid(), 0, time.Now())
			require.True(t, known)
			const processes = 2 * roomFor
			b.crowd(tc.as, tc.confined, processes)
			stopped, known := b.Stopped(rank)
			require.True(t, known, "it was stopped before the others")
			require.Equal(t, stopper, stopped.Sender.PID)
			require.GreaterOrEqual(t, b.Counters().SendersUnnoted, uint64(processes-roomFor))
			c := b.start(nil, "wait")
			by := b.kill(nil, "x", c.pid(), unix.SIGKILL)
			require.Equal(t, by, b.ended(c).Signalled.Sender.PID)
			r.requireShared(t)
		})
	}
}

// What explains no end any more gives its room back once half of the map is in use: signals
// long ago to processes that handled them, and to those that ended unseen.
func TestOldSignalsGiveTheirRoomBack(t *testing.T) {
	privtest.Require(t)
	b, r := crowdedBench(t)
	c := b.crowd(nil, true, 300)
	held := func() int32 {
		n, err := room.InAll(r.maps.Held, 0)
		require.NoError(t, err)
		return n
	}
	require.GreaterOrEqual(t, held(), int32(300))
	lives := func(uint32, uint64) bool { return false }
	later := bootNow() + uint64(stopping) + tidying
	r.tidy(later, lives)
	require.GreaterOrEqual(t, held(), int32(300), "they are stopped still")
	r.tidy(later+tidying, func(_ uint32, _ uint64) bool { return true })
	require.Less(t, held(), int32(300))
	r.requireShared(t)
	c.finish()
}

func TestSignalThatExplainsNothingAnyMore(t *testing.T) {
	old := sent{signal: uint32(unix.SIGTERM), timeNS: 1}
	require.True(t, (&signals{asked: asked{sent: old}, own: old}).explainNothing())
	require.False(t, (&signals{asked: asked{sent: sent{signal: sigKILL}}}).explainNothing(), "its process may be stuck")
	require.False(t, (&signals{own: sent{signal: sigKILL}}).explainNothing())
	require.False(t, (&signals{stopped: sent{signal: uint32(unix.SIGSTOP)}}).explainNothing())
}

// Who asked long ago has not sent what the process sends itself now.
func TestALaterSignalOfItsOwnExplainsTheEnd(t *testing.T) {
	s := signals{asked: asked{sent: sent{signal: uint32(unix.SIGABRT), timeNS: 1}}, own: sent{signal: uint32(unix.SIGABRT), timeNS: 2}}
	which, itself := s.ending(int(unix.SIGABRT), 3)
	require.True(t, itself)
	require.Same(t, &s.own, which)
	s.asked.timeNS = 3
	which, itself = s.ending(int(unix.SIGABRT), 4)
	require.False(t, itself)
	require.Same(t, &s.asked.sent, which)
}
