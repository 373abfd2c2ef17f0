//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

// bindMAC makes the peer's address answer no ARP: one that takes its address away
// then swallows what comes, without a word.
func bindMAC(link netlink.Link, o order) error {
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: o.Address.Addr().AsSlice(), HardwareAddr: mac,
	})
}

// ends are two players whose network namespaces a veth pair joins.
type ends struct {
	near, far             *player
	nearAddr, farAddr     netip.Addr
	nearPrefix, farPrefix string
}

func joined(t testing.TB) *ends {
	t.Helper()
	e := &ends{
		near: newPlayer(t), far: newPlayer(t),
		nearAddr: netip.MustParseAddr("10.99.0.1"), farAddr: netip.MustParseAddr("10.99.0.2"),
		nearPrefix: "10.99.0.1/24", farPrefix: "10.99.0.2/24",
	}
	const nearMAC, farMAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.Namespace = "near", mac(t, nearMAC), netlink.NsPid(int(e.near.pid))
	require.NoError(t, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: "far", PeerHardwareAddr: mac(t, farMAC), PeerNamespace: netlink.NsPid(int(e.far.pid)),
	}))
	e.near.must(t, order{Do: "link", Link: "near", Prefix: e.nearPrefix, Address: netip.AddrPortFrom(e.farAddr, 0), MAC: farMAC})
	e.far.must(t, order{Do: "link", Link: "far", Prefix: e.farPrefix, Address: netip.AddrPortFrom(e.nearAddr, 0), MAC: nearMAC})
	return e
}

func mac(t testing.TB, text string) net.HardwareAddr {
	t.Helper()
	m, err := net.ParseMAC(text)
	require.NoError(t, err)
	return m
}

// connection is one between two players, which may be the same.
type connection struct {
	from, to                      *player
	listener, connected, accepted int
	address                       netip.AddrPort
}

func connected(t testing.TB, from, to *player, at netip.Addr) *connection {
	t.Helper()
	c := &connection{from: from, to: to, address: netip.AddrPortFrom(at, 7001)}
	c.listener = to.must(t, order{Do: "listen", Address: c.address}).FD
	c.connected = from.must(t, order{Do: "connect", Address: c.address}).FD
	c.accepted = to.must(t, order{Do: "accept", FD: c.listener}).FD
	return c
}
