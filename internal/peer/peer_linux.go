package peer

import (
	"bytes"
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
)

// include/uapi/linux/sock_diag.h, include/uapi/linux/inet_diag.h
const (
	sockDiagByFamily = 20
	requestBytes     = 56 // struct inet_diag_req_v2
	answerBytes      = 72 // struct inet_diag_msg
	idAt             = 8  // in the request: struct inet_diag_sockid
	idAtAnswer       = 4
	portsBytes       = 4
	addressBytes     = 16
	cookieAt         = idAt + portsBytes + 2*addressBytes + 4
	userAt           = 64
	inodeAt          = 68
	tcpListen        = 10 // include/net/tcp_states.h
	cgroupID         = 21 // INET_DIAG_CGROUP_ID, since Linux 5.8
)

// end is whose socket an end of a connection is.
type end struct {
	user   uint32
	cgroup uint64 // in the unified hierarchy; 0 where the kernel does not tell, before 5.8 or without that hierarchy
}

// askFor asks sock_diag for the socket whose own end is at one address and whose other end is
// at the other. The kernel answers before the question returns, so nothing is waited for.
func askFor(own, other *net.TCPAddr) (e end, known bool) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return end{}, false
	}
	defer func() { _ = unix.Close(fd) }()
	request := requestFor(own, other)
	message := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+requestBytes)
	binary.NativeEndian.PutUint32(message, unix.NLMSG_HDRLEN+requestBytes)
	binary.NativeEndian.PutUint16(message[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, append(message, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return end{}, false
	}
	answer := make([]byte, 512)
	n, from, err := unix.Recvfrom(fd, answer, 0)
	kernel, ok := from.(*unix.SockaddrNetlink)
	if err != nil || !ok || kernel.Pid != 0 || n < unix.NLMSG_HDRLEN || binary.NativeEndian.Uint16(answer[4:]) != sockDiagByFamily {
		return end{}, false
	}
	return parse(answer[unix.NLMSG_HDRLEN:n], request)
}

// requestFor names one socket. IPv4 in IPv6 is looked up as IPv4, as the kernel keeps it
// (inet_diag_find_one_icsk, net/ipv4/inet_diag.c).
func requestFor(own, other *net.TCPAddr) []byte {
	request := make([]byte, requestBytes)
	family, length, at := byte(unix.AF_INET), net.IPv4len, func(a *net.TCPAddr) []byte { return a.IP.To4() }
	if own.IP.To4() == nil {
		family, length, at = unix.AF_INET6, net.IPv6len, func(a *net.TCPAddr) []byte { return a.IP.To16() }
	}
	request[0], request[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0)) // any state
	binary.BigEndian.PutUint16(request[idAt:], uint16(own.Port))
	binary.BigEndian.PutUint16(request[idAt+2:], uint16(other.Port))
	copy(request[idAt+portsBytes:][:length], at(own))
	copy(request[idAt+portsBytes+addressBytes:][:length], at(other))
	binary.NativeEndian.PutUint64(request[cookieAt:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return request
}

// parse reads whose the socket is that was asked for. Where there is none, the kernel
// shows who listens on that port. A socket that its process has closed has no inode, and its
// user is told as root.
func parse(answer, request []byte) (e end, known bool) {
	if len(answer) < answerBytes || answer[1] == tcpListen ||
		!bytes.Equal(answer[idAtAnswer:][:portsBytes], request[idAt:][:portsBytes]) ||
		binary.NativeEndian.Uint32(answer[inodeAt:]) == 0 {
		return end{}, false
	}
	e.user = binary.NativeEndian.Uint32(answer[userAt:])
	for rest := answer[answerBytes:]; len(rest) >= unix.NLA_HDRLEN; { // struct nlattr
		length := int(binary.NativeEndian.Uint16(rest))
		if length < unix.NLA_HDRLEN || length > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == cgroupID && length == unix.NLA_HDRLEN+8 {
			e.cgroup = binary.NativeEndian.Uint64(rest[unix.NLA_HDRLEN:])
		}
		rest = rest[min(len(rest), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return e, true
}
