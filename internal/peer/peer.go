// Package peer tells whose the other end of a connection over loopback is: the kernel knows,
// whatever the sender says.
package peer

import (
	"net"
	"net/netip"
)

// Addr is the other end of a connection over loopback that a user of this machine made.
type Addr struct {
	*net.TCPAddr
	User uint32 // of the socket; in the initial user namespace
	// Cgroup is that of its process when it made the socket: a path in the unified hierarchy, as in
	// /proc/PID/cgroup. "" where the kernel or the mounts of tracecore do not tell.
	Cgroup string
	Gone   bool // its process had closed it before anybody could ask: it is nobody's
}

// Of is the address of the other end: an Addr over loopback, where the kernel tells the user.
// It waits for nobody.
func Of(c net.Conn) net.Addr {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, isTCP := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !isTCP || !remote.IP.IsLoopback() {
		return c.RemoteAddr()
	}
	if e, known := askFor(remote, local); known {
		return Addr{TCPAddr: remote, User: e.user, Cgroup: pathOf(e.cgroup)}
	}
	if _, answers := askFor(local, remote); answers { // it knows our own end
		return Addr{TCPAddr: remote, Gone: true}
	}
	return remote
}

// NetworkOf is what counts as one sender where no user is known: an IPv4 address, the network of
// an IPv6 host, for it has 2^64 addresses, and all of loopback, of which each user of this machine
// has each address.
func NetworkOf(a *net.TCPAddr) netip.Prefix {
	ip := a.AddrPort().Addr().Unmap()
	bits := 32
	switch {
	case ip.IsLoopback():
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	case ip.Is6():
		bits = 64
	}
	network, _ := ip.WithZone("").Prefix(bits)
	return network
}
