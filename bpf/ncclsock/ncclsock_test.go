//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

func TestUnreadBytes(t *testing.T) {
	probes := openAll(t, Options{})
	rank := newPlayer(t)
	c := connected(t, rank, rank, loopback4)
	rank.must(t, order{Do: "write", FD: c.connected, N: 1000})
	for _, p := range probes {
		s := until(t, p, rank, c.accepted, func(s Socket) bool { return s.ReceiveQueueBytes == 1000 })
		require.EqualValues(t, 0, s.BytesRead)
		require.Equal(t, Established, s.State)
		s = until(t, p, rank, c.connected, func(s Socket) bool { return s.BytesAcked == 1000 })
		require.EqualValues(t, 1000, s.BytesSent)
		require.Negative(t, s.LastReceivedAge)
		matches(t, p, rank, c.accepted)
		matches(t, p, rank, c.connected)
	}
	rank.must(t, order{Do: "read", FD: c.accepted, N: 300})
	for _, p := range probes {
		s := matches(t, p, rank, c.accepted)
		require.EqualValues(t, 700, s.ReceiveQueueBytes)
		require.EqualValues(t, 300, s.BytesRead)
	}
}

func TestPeerThatDoesNotReadClosesTheWindow(t *testing.T) {
	probes := openAll(t, Options{})
	rank := newPlayer(t)
	c := connected(t, rank, rank, loopback4)
	written := rank.must(t, order{Do: "fill", FD: c.connected}).N
	for _, p := range probes {
		s := until(t, p, rank, c.connected, func(s Socket) bool {
			return s.SendWindowBytes == 0 && s.Probing && s.UnackedBytes == 0
		})
		require.NotZero(t, s.UnsentBytes)
		require.EqualValues(t, written, s.BytesSent+uint64(s.UnsentBytes))
		s = until(t, p, rank, c.accepted, func(s Socket) bool { return s.ReceiveQueueBytes > 0 })
		require.EqualValues(t, written, uint64(s.ReceiveQueueBytes)+uint64(rank.info(t, c.connected).Unsent))
		matches(t, p, rank, c.accepted)
	}
}

func TestNetworkThatSwallowsSegments(t *testing.T) {
	probes := openAll(t, Options{})
	e := joined(t)
	c := connected(t, e.near, e.far, e.farAddr)
	for _, p := range probes {
		s := matches(t, p, e.near, c.connected)
		require.Equal(t, netip.AddrPortFrom(e.farAddr, 7001), s.Remote)
		require.NotEqual(t, s.NetNS, matches(t, p, e.far, c.accepted).NetNS)
		require.Len(t, snapshot(t, p, e.near.pid, e.far.pid).Sockets, 3)
	}
	e.far.must(t, order{Do: "forget", Link: "far", Prefix: e.farPrefix})
	e.near.must(t, order{Do: "write", FD: c.connected, N: 5000})
	for _, p := range probes {
		s := until(t, p, e.near, c.connected, func(s Socket) bool { return s.Retransmits > 0 && s.Backoff > 0 })
		require.EqualValues(t, 5000, s.UnackedBytes+s.UnsentBytes)
		require.EqualValues(t, 0, s.BytesAcked)
		require.False(t, s.Probing)
	}
	if changesOf(probes[0]) != "" {
		change := nextChange(t, probes[0], func(c Change) bool { return c.Kind == Retransmitted })
		require.Equal(t, netip.AddrPortFrom(e.farAddr, 7001), change.Remote)
		require.Equal(t, Established, change.New)
	}
	e.far.must(t, order{Do: "link", Link: "far", Prefix: e.farPrefix})
	for _, p := range probes {
		until(t, p, e.near, c.connected, func(s Socket) bool { return s.BytesAcked == 5000 && s.Backoff == 0 })
	}
}

func TestConnectionThatNobodyAnswers(t *testing.T) {
	probes := openAll(t, Options{})
	e := joined(t)
	for _, p := range probes {
		snapshot(t, p, e.near.pid) // from now on its connections are of interest
	}
	e.far.must(t, order{Do: "forget", Link: "far", Prefix: e.farPrefix})
	fd := e.near.must(t, order{Do: "connect", Address: netip.AddrPortFrom(e.farAddr, 7002)}).FD
	for _, p := range probes {
		s := until(t, p, e.near, fd, func(s Socket) bool { return s.State == SynSent && s.Retransmits > 0 })
		require.Zero(t, s.UnackedBytes+s.UnsentBytes, "a SYN is no byte")
		require.Equal(t, netip.AddrPortFrom(e.farAddr, 7002), s.Remote)
		require.Negative(t, s.LastSentAge)
		if changesOf(p) != "" {
			require.Positive(t, s.Age, "its beginning was seen")
		}
	}
}

func TestRefusedConnection(t *testing.T) {
	probes := openAll(t, Options{})
	rank := newPlayer(t)
	for _, p := range probes {
		if changesOf(p) == "" {
			continue
		}
		snapshot(t, p, rank.pid)
		target := netip.AddrPortFrom(loopback4, 7003)
		a := rank.do(t, order{Do: "connect", Address: target})
		begun := nextChange(t, p, func(c Change) bool { return c.New == SynSent })
		require.Equal(t, target, begun.Remote)
		ended := nextChange(t, p, func(c Change) bool { return c.New == Close })
		require.Equal(t, begun.Cookie, ended.Cookie)
		require.Equal(t, SynSent, ended.Old)
		require.EqualValues(t, unix.ECONNREFUSED, ended.Error)
		require.Equal(t, target, ended.Remote)
		require.NotZero(t, ended.Local.Port())
		s, ok := find(t, snapshot(t, p, rank.pid), rank.info(t, a.FD).Inode)
		require.True(t, ok)
		require.Equal(t, Close, s.State)
		require.Equal(t, begun.Cookie, s.Cookie)
	}
}

func TestPeerThatCloses(t *testing.T) {
	probes := openAll(t, Options{})
	rank := newPlayer(t)
	c := connected(t, rank, rank, loopback4)
	for _, p := range probes {
		snapshot(t, p, rank.pid)
	}
	rank.must(t, order{Do: "write", FD: c.connected, N: 10})
	rank.must(t, order{Do: "shutdown", FD: c.connected})
	for _, p := range probes {
		s := until(t, p, rank, c.accepted, func(s Socket) bool { return s.State == CloseWait })
		require.EqualValues(t, 10, s.ReceiveQueueBytes, "a FIN is no byte")
		until(t, p, rank, c.connected, func(s Socket) bool { return s.State == FinWait2 })
		matches(t, p, rank, c.accepted)
		matches(t, p, rank, c.connected)
		if changesOf(p) != "" {
			change := nextChange(t, p, func(c Change) bool { return c.New == CloseWait })
			require.Equal(t, s.Cookie, change.Cookie)
			require.Equal(t, c.address, change.Local)
			require.Zero(t, change.Error)
		}
	}
}

func TestListener(t *testing.T) {
	for _, p := range openAll(t, Options{}) {
		rank := newPlayer(t)
		fd := rank.must(t, order{Do: "listen", Address: netip.AddrPortFrom(loopback4, 28028)}).FD
		rank.must(t, order{Do: "connect", Address: netip.AddrPortFrom(loopback4, 28028)})
		s := until(t, p, rank, fd, func(s Socket) bool { return s.State == Listen })
		require.EqualValues(t, 28028, s.Local.Port())
		require.Zero(t, s.ReceiveQueueBytes+s.UnsentBytes, "a listener's queues hold connections")
	}
}

func TestIPv6AndMappedIPv4(t *testing.T) {
	for _, p := range openAll(t, Options{}) {
		rank := newPlayer(t)
		c := connected(t, rank, rank, loopback6)
		s := matches(t, p, rank, c.accepted)
		require.Equal(t, loopback6, s.Remote.Addr())
		rank.must(t, order{Do: "close", FD: c.listener})
		any6 := rank.must(t, order{Do: "listen", Address: netip.AddrPortFrom(netip.IPv6Unspecified(), 7004)}).FD
		rank.must(t, order{Do: "connect", Address: netip.AddrPortFrom(loopback4, 7004)})
		s = matches(t, p, rank, rank.must(t, order{Do: "accept", FD: any6}).FD)
		require.Equal(t, loopback4, s.Local.Addr())
		require.Equal(t, loopback4, s.Remote.Addr())
	}
}

func TestIdleSocketAges(t *testing.T) {
	probes := openAll(t, Options{})
	rank := newPlayer(t)
	c := connected(t, rank, rank, loopback4)
	rank.must(t, order{Do: "write", FD: c.connected, N: 1})
	for _, p := range probes {
		until(t, p, rank, c.connected, func(s Socket) bool { return s.LastSentAge >= 200*time.Millisecond })
		until(t, p, rank, c.accepted, func(s Socket) bool { return s.LastReceivedAge >= 200*time.Millisecond })
	}
	rank.must(t, order{Do: "write", FD: c.connected, N: 1})
	for _, p := range probes {
		matches(t, p, rank, c.connected)
		matches(t, p, rank, c.accepted)
	}
}

func TestOneSocketOfTwoProcessesIsOneSocket(t *testing.T) {
	for _, p := range openAll(t, Options{}) {
		rank := newPlayer(t)
		c := connected(t, rank, rank, loopback4)
		child := uint32(rank.must(t, order{Do: "share", FD: c.connected}).PID)
		inode := rank.info(t, c.connected).Inode
		s, ok := find(t, snapshot(t, p, child, rank.pid, child), inode)
		require.True(t, ok)
		require.Equal(t, min(child, rank.pid), s.PID)
		s, ok = find(t, snapshot(t, p, child), inode)
		require.True(t, ok, "the owner that inherited it")
		require.Equal(t, child, s.PID)
	}
}

func TestEachSnapshotShowsTheOwnersOfItsTime(t *testing.T) {
	for _, p := range openAll(t, Options{}) {
		one, other := newPlayer(t), newPlayer(t)
		connected(t, one, one, loopback4)
		connected(t, other, other, loopback4)
		first := snapshot(t, p, one.pid)
		require.Len(t, first.Sockets, 3)
		require.Len(t, snapshot(t, p, other.pid).Sockets, 3)
		require.Len(t, snapshot(t, p, other.pid, one.pid).Sockets, 6)
		require.Empty(t, snapshot(t, p).Sockets)
		again := snapshot(t, p, one.pid)
		for _, s := range first.Sockets {
			same, ok := find(t, again, s.Inode)
			require.True(t, ok)
			require.Equal(t, s.Cookie, same.Cookie)
			require.NotZero(t, s.Cookie)
		}
		one.end()
		gone := snapshot(t, p, one.pid, other.pid)
		require.Len(t, gone.Sockets, 3)
		require.Zero(t, gone.Unreadable, "a process that is gone is no failure")
	}
}

func TestOtherSocketsArePassedOver(t *testing.T) {
	for _, p := range openAll(t, Options{}) {
		rank := newPlayer(t)
		for _, kind := range []order{
			{FD: unix.AF_INET, N: unix.SOCK_DGRAM}, {FD: unix.AF_INET6, N: unix.SOCK_DGRAM}, {FD: unix.AF_UNIX, N: unix.SOCK_STREAM},
			{FD: unix.AF_NETLINK, N: unix.SOCK_RAW}, {FD: unix.AF_INET, N: unix.SOCK_RAW, Proto: unix.IPPROTO_TCP},
		} {
			kind.Do = "socket"
			rank.must(t, kind)
		}
		require.Empty(t, snapshot(t, p, rank.pid).Sockets)
	}
}
