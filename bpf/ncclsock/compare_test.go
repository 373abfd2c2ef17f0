//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// pagesHere is learned once for all tests: the symbol table is long.
var pagesHere = sync.OnceValue(learnPageVariables)

// openAll opens the probe on every rung of this kernel.
func openAll(t testing.TB, opts Options) []*Probe {
	t.Helper()
	privtest.Require(t)
	opts.pages = pagesHere()
	var all []*Probe
	for _, opts.Rung = range rungsHere(t) {
		p, err := Open(opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		all = append(all, p)
	}
	return all
}

func snapshot(t testing.TB, p *Probe, owners ...uint32) *Snapshot {
	t.Helper()
	s := &Snapshot{}
	require.NoError(t, p.Snapshot(owners, s))
	return s
}

// find returns the one socket with an inode.
func find(t testing.TB, s *Snapshot, inode uint64) (found Socket, ok bool) {
	t.Helper()
	for _, socket := range s.Sockets {
		if socket.Inode == inode {
			require.False(t, ok, "socket %d is there twice", inode)
			found, ok = socket, true
		}
	}
	return found, ok
}

// until waits for a state of one socket, which its owner knows as fd.
func until(t testing.TB, p *Probe, owner *player, fd int, is func(Socket) bool) Socket {
	t.Helper()
	inode := owner.info(t, fd).Inode
	var s Socket
	require.Eventually(t, func() bool {
		var ok bool
		s, ok = find(t, snapshot(t, p, owner.pid), inode)
		return ok && is(s)
	}, hosttest.Patience, 2*time.Millisecond, "%s: last seen %+v", p.Report().Rung, &s)
	return s
}

// matches compares a socket with what the kernel tells its owner before and after
// the snapshot.
func matches(t testing.TB, p *Probe, owner *player, fd int) Socket {
	t.Helper()
	before := owner.info(t, fd)
	s, ok := find(t, snapshot(t, p, owner.pid), before.Inode)
	after := owner.info(t, fd)
	for end := time.Now().Add(hosttest.Patience); moved(before, after) && time.Now().Before(end); {
		before = after
		s, ok = find(t, snapshot(t, p, owner.pid), before.Inode)
		after = owner.info(t, fd)
	}
	require.True(t, ok, "%s: no socket with inode %d", p.Report().Rung, before.Inode)
	within := func(what string, low, got, high uint64) {
		require.GreaterOrEqual(t, got, low, "%s: %s", p.Report().Rung, what)
		require.LessOrEqual(t, got, high, "%s: %s", p.Report().Rung, what)
	}
	if hasCookies(t, p) {
		require.Equal(t, before.Cookie, s.Cookie)
	}
	require.Equal(t, owner.pid, s.PID)
	require.Equal(t, before.Local, s.Local)
	require.EqualValues(t, after.TCP.State, s.State)
	if before.Remote.IsValid() {
		require.Equal(t, before.Remote, s.Remote)
	}
	require.EqualValues(t, after.Unread, s.ReceiveQueueBytes)
	require.EqualValues(t, after.Unsent, s.UnsentBytes)
	require.EqualValues(t, after.Unacked, s.UnackedBytes)
	require.Equal(t, after.TCP.Snd_wnd, s.SendWindowBytes)
	require.Equal(t, after.TCP.Bytes_received, s.BytesReceived)
	require.Equal(t, after.TCP.Bytes_received-uint64(after.Unread), s.BytesRead)
	require.Equal(t, after.TCP.Bytes_sent-after.TCP.Bytes_retrans, s.BytesSent)
	require.Equal(t, s.BytesSent-uint64(s.UnackedBytes), s.BytesAcked)
	within("retransmits", uint64(before.TCP.Total_retrans), uint64(s.Retransmits), uint64(after.TCP.Total_retrans))
	within("backoff", uint64(max(before.TCP.Retransmits, before.TCP.Probes)), uint64(s.Backoff), uint64(max(after.TCP.Retransmits, after.TCP.Probes)))
	within("round trip", uint64(min(before.TCP.Rtt, after.TCP.Rtt)), uint64(s.RTT.Microseconds()), uint64(max(before.TCP.Rtt, after.TCP.Rtt)))
	ages(t, p, s, before, after)
	return s
}

// moved says whether the kernel went on with a socket between two looks, as it may a moment
// after its owners did.
func moved(before, after info) bool {
	still := func(i info) [8]uint64 {
		return [8]uint64{
			uint64(i.TCP.State), uint64(i.Unread), uint64(i.Unsent), uint64(i.Unacked),
			uint64(i.TCP.Snd_wnd), i.TCP.Bytes_received, i.TCP.Bytes_sent, uint64(i.TCP.Total_retrans),
		}
	}
	return still(before) != still(after)
}

// ages are between those before and after, to a tick, unless data moved meanwhile.
func ages(t testing.TB, p *Probe, s Socket, before, after info) {
	t.Helper()
	const tick = 10 * time.Millisecond // the longest, at 100 Hz
	age := func(what string, moved uint64, before, after uint32, got time.Duration) {
		if moved == 0 {
			require.Negative(t, got, "%s: %s of a socket that never did", p.Report().Rung, what)
			return
		}
		require.GreaterOrEqual(t, got, time.Duration(min(before, after))*time.Millisecond-tick, "%s: %s", p.Report().Rung, what)
		require.LessOrEqual(t, got, time.Duration(max(before, after))*time.Millisecond+tick, "%s: %s", p.Report().Rung, what)
	}
	age("last sent", after.TCP.Bytes_sent, before.TCP.Last_data_sent, after.TCP.Last_data_sent, s.LastSentAge)
	age("last received", after.TCP.Bytes_received, before.TCP.Last_data_recv, after.TCP.Last_data_recv, s.LastReceivedAge)
}

// hasCookies says whether the rung shows SO_COOKIE itself.
func hasCookies(t testing.TB, p *Probe) bool {
	return p.Report().Rung == RungDiag || kernelAtLeast(t, 5, 12)
}
