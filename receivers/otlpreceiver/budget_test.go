package otlpreceiver

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/peer"
)

func TestASenderLeavesRoomToOthers(t *testing.T) {
	s := &shares{size: 100}
	one, two := origin{user: 1, local: true}, origin{user: 2, local: true}
	for s.take(one, 1) {
	}
	require.EqualValues(t, 80, s.all())
	for s.take(two, 1) {
	}
	require.EqualValues(t, 96, s.all())
	s.giveBack(one, 80)
	s.giveBack(two, 16)
	require.Zero(t, s.all())
	require.Empty(t, s.of)
	require.True(t, s.take(one, 100), "who holds nothing takes what fits")
	require.False(t, s.take(two, 1))
	require.False(t, s.room(two, 1))
}

func TestUsersOfAMachineAreSenders(t *testing.T) {
	at := func(s string) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(s), Port: 1} }
	require.NotEqual(t, originOf(peer.Addr{TCPAddr: at("127.0.0.1"), User: 1}), originOf(peer.Addr{TCPAddr: at("127.0.0.1"), User: 2}))
	require.Equal(t, originOf(peer.Addr{TCPAddr: at("127.0.0.1"), User: 1}), originOf(peer.Addr{TCPAddr: at("::1"), User: 1}))
	require.Equal(t, originOf(at("127.0.0.1")), originOf(at("127.0.0.2")), "whose it is the kernel does not tell")
	require.Equal(t, originOf(at("127.0.0.1")), originOf(at("::1")))
	const pod, other = "/kubepods/pod11111111-7a3e-4c55-9f10-8e6a2b4c7d01/app", "/kubepods/pod22222222-7a3e-4c55-9f10-8e6a2b4c7d01/app"
	in := func(cgroup string) origin { return originOf(peer.Addr{TCPAddr: at("127.0.0.1"), Cgroup: cgroup}) }
	require.NotEqual(t, in(pod), in(other), "pods with the network of the host and the same user")
	require.Equal(t, in(pod), in(pod+"/pod33333333-7a3e-4c55-9f10-8e6a2b4c7d01"), "a pod makes no others")
	require.Equal(t, in("/user.slice/user-1.slice/one"), in("/user.slice/user-1.slice/two"))
	require.NotEqual(t, originOf(peer.Addr{TCPAddr: at("127.0.0.1")}), originOf(at("127.0.0.1")), "root is a user")
}
