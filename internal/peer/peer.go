// Package peer tells whose the other end of a connection over loopback is: the kernel knows,
// whatever the sender says.
package peer

import "net"

// Addr is the other end of a connection over loopback that a user of this machine made.
type Addr struct {
	*net.TCPAddr
	User uint32 // of the socket; in the initial user namespace
}

// Of is the address of the other end: an Addr over loopback, where the kernel tells the user.
// It asks the kernel once and waits for nobody. An end that is closed already is nobody's.
func Of(c net.Conn) net.Addr {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, isTCP := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !isTCP || !remote.IP.IsLoopback() {
		return c.RemoteAddr()
	}
	if user, known := userOf(remote, local); known {
		return Addr{remote, user}
	}
	return remote
}
