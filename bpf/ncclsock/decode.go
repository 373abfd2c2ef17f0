//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
)

// errInvalid marks a record that the decoder refused.
var errInvalid = errors.New("invalid record")

// timerProbe0 is icsk_pending while the kernel probes a closed window
// (ICSK_TIME_PROBE0, include/net/inet_connection_sock.h).
const timerProbe0 = 3

// handshakeBytes is how much of a connection's beginning is told
// (HANDSHAKE_BYTES in handshake.h); the field has room for more.
const handshakeBytes = 13

// decodeSocket turns one record into a socket. tick is the unit of its ages.
func decodeSocket(r *bpfSocketRecord, tick time.Duration, s *Socket) error {
	local, remote, err := addresses(&r.Endpoints)
	if err != nil {
		return err
	}
	*s = Socket{
		Cookie: r.Cookie, Inode: r.Inode, NetNS: r.Netns, PID: r.Pid,
		Local: local, Remote: remote, State: State(r.State),
		Retransmits: r.Retransmits, Backoff: max(r.Timeouts, r.Probes), Probing: r.Pending == timerProbe0,
		LastSentAge: -1, LastReceivedAge: -1, Age: -1,
		RTT: time.Duration(r.SrttUs/8) * time.Microsecond,
	}
	if r.AgeNs != 0 {
		s.Age = time.Duration(min(r.AgeNs, math.MaxInt64))
	}
	if s.State == Listen {
		return nil // the queues of a listener count connections
	}
	decodeQueues(r, s)
	decodeProgress(r, tick, s)
	if n := int(r.HandshakeBytes); n > 0 {
		s.Handshake = append([]byte(nil), r.Handshake[:min(n, handshakeBytes)]...)
	}
	return nil
}

// decodeQueues takes SYN and FIN out of the differences of sequence numbers, in
// which each counts as a byte. A difference is negative when the queue moved
// between the two readings.
func decodeQueues(r *bpfSocketRecord, s *Socket) {
	s.ReceiveQueueBytes, s.UnsentBytes, s.UnackedBytes = positive(r.Unread), positive(r.Unsent), positive(r.Unacked)
	s.SendWindowBytes = r.SendWindow
	switch s.State {
	case SynSent, Close: // tcp_v4_connect and tcp_disconnect set these states before the numbers, one by one
		s.ReceiveQueueBytes, s.UnsentBytes, s.UnackedBytes = 0, 0, 0
	case SynReceived:
		s.ReceiveQueueBytes = 0
		withoutSyn(s)
	case CloseWait: // the peer's FIN lies behind its last byte
		s.ReceiveQueueBytes = less(s.ReceiveQueueBytes, 1)
	case LastAck, Closing:
		s.ReceiveQueueBytes = less(s.ReceiveQueueBytes, 1)
		withoutFin(s)
	case FinWait1:
		withoutFin(s)
	}
}

// withoutSyn takes our SYN from the front of what is unacknowledged, or of what is unsent.
func withoutSyn(s *Socket) {
	if s.UnackedBytes > 0 {
		s.UnackedBytes--
		return
	}
	s.UnsentBytes = less(s.UnsentBytes, 1)
}

// withoutFin takes our FIN from the end of what is unsent, or of what is unacknowledged.
func withoutFin(s *Socket) {
	if s.UnsentBytes > 0 {
		s.UnsentBytes--
		return
	}
	s.UnackedBytes = less(s.UnackedBytes, 1)
}

// decodeProgress counts each byte once. The kernel's bytes_acked would count the
// SYN of the side that connected, so what is acknowledged is what was sent and is
// not in flight.
func decodeProgress(r *bpfSocketRecord, tick time.Duration, s *Socket) {
	s.BytesReceived = r.BytesReceived
	s.BytesRead = less(r.BytesReceived, uint64(s.ReceiveQueueBytes))
	s.BytesSent = less(r.BytesSent, r.BytesRetransmitted)
	s.BytesAcked = less(s.BytesSent, uint64(s.UnackedBytes))
	if r.BytesSent > 0 {
		s.LastSentAge = age(r.SentAgeJiffies, tick)
	}
	if r.BytesReceived > 0 {
		s.LastReceivedAge = age(r.ReceivedAgeJiffies, tick)
	}
}

// age reads a difference of 32-bit jiffies. One just below zero is data that moved
// while we read.
func age(ticks uint32, tick time.Duration) time.Duration {
	const reading = 1 << 16 // a minute at the fastest tick
	if ticks > math.MaxUint32-reading {
		return 0
	}
	return time.Duration(ticks) * tick
}

func positive(difference uint32) uint32 {
	if int32(difference) < 0 {
		return 0
	}
	return difference
}

// less is a-b, or 0.
func less[T uint32 | uint64](a, b T) T { return a - min(a, b) }

// decodeChange turns one record of the ring into a change. clockOffset is what
// bootclock.Offset returned.
func decodeChange(raw []byte, clockOffset int64, c *Change) error {
	if uintptr(len(raw)) < unsafe.Sizeof(bpfChange{}) {
		return fmt.Errorf("%w: change of %d bytes, want %d", errInvalid, len(raw), unsafe.Sizeof(bpfChange{}))
	}
	r := (*bpfChange)(unsafe.Pointer(unsafe.SliceData(raw)))
	local, remote, err := addresses(&r.Endpoints)
	if err != nil {
		return err
	}
	if ChangeKind(r.Kind) > Retransmitted {
		return fmt.Errorf("%w: change of kind %d", errInvalid, r.Kind)
	}
	*c = Change{
		Time: bootclock.Time(r.TimeNs, clockOffset), Cookie: r.Cookie, NetNS: r.Netns, PID: r.Pid,
		Local: local, Remote: remote,
		Kind: ChangeKind(r.Kind), Old: State(r.OldState), New: State(r.NewState), Error: r.Error,
	}
	return nil
}

// addresses reads both ends. An IPv4 address in an IPv6 socket is an IPv4 address.
func addresses(e *bpfEndpoints) (local, remote netip.AddrPort, err error) {
	switch e.Family {
	case unix.AF_INET:
		return addrPort(netip.AddrFrom4([4]byte(e.Local[:4])), e.LocalPort), addrPort(netip.AddrFrom4([4]byte(e.Remote[:4])), e.RemotePort), nil
	case unix.AF_INET6:
		return addrPort(netip.AddrFrom16(e.Local).Unmap(), e.LocalPort), addrPort(netip.AddrFrom16(e.Remote).Unmap(), e.RemotePort), nil
	}
	return local, remote, fmt.Errorf("%w: address family %d", errInvalid, e.Family)
}

// addrPort takes a port in network order.
func addrPort(a netip.Addr, port uint16) netip.AddrPort {
	var wire [2]byte
	binary.NativeEndian.PutUint16(wire[:], port)
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(wire[:]))
}
