// Package peer tells whose the other end of a connection over loopback is: the kernel knows,
// whatever the sender says.
package peer

import "net"

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
