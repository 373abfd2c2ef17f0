//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/sock_diag.h and include/uapi/linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	inetDiagInfo     = 2 // attribute: struct tcp_info
	diagTimerProbe   = 4 // idiag_timer: a closed window is probed
	// allStates but TIME_WAIT and SYN_RECV, whose sockets nobody holds.
	allStates = 1<<(Closing+1) - 1&^(1<<TimeWait|1<<SynReceived)
)

type diagSocketID struct {
	localPort, remotePort uint16 // network order
	local, remote         [16]byte
	device                uint32
	cookie                [2]uint32
}

// inet_diag_req_v2
type diagRequestBody struct {
	family, protocol, extensions, _ uint8
	states                          uint32
	id                              diagSocketID
}

// inet_diag_msg
type diagMessage struct {
	family, state, timer, retransmits            uint8
	id                                           diagSocketID
	expires, receiveQueue, sendQueue, uid, inode uint32
}

func diagRequest(family uint8) []byte {
	body := diagRequestBody{
		family: family, protocol: unix.IPPROTO_TCP,
		extensions: 1 << (inetDiagInfo - 1), states: allStates,
	}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&body)), unsafe.Sizeof(body))...)
}

// parseDiag turns one answer into the record that the iterator would have made of
// the socket, with milliseconds for jiffies.
func parseDiag(raw []byte, r *bpfSocketRecord) error {
	var m diagMessage
	if uintptr(len(raw)) < unsafe.Sizeof(m) {
		return fmt.Errorf("%w: sock_diag message of %d bytes", errInvalid, len(raw))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m)), raw)
	*r = bpfSocketRecord{
		Cookie: uint64(m.id.cookie[1])<<32 | uint64(m.id.cookie[0]), Inode: uint64(m.inode),
		State: m.state, Unread: m.receiveQueue, Unacked: m.sendQueue,
		Endpoints: bpfEndpoints{
			Local: m.id.local, Remote: m.id.remote,
			LocalPort: m.id.localPort, RemotePort: m.id.remotePort, Family: uint16(m.family),
		},
	}
	if m.timer == diagTimerProbe {
		r.Pending = timerProbe0
	}
	info, err := tcpInfo(raw[unsafe.Sizeof(m):])
	if err != nil {
		return err
	}
	fillFromInfo(r, info)
	return nil
}

// tcpInfo finds the tcp_info among the attributes. An older kernel's is shorter.
func tcpInfo(attributes []byte) (*unix.TCPInfo, error) {
	var info unix.TCPInfo
	decoder, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return nil, fmt.Errorf("%w: sock_diag attributes: %w", errInvalid, err)
	}
	decoder.ByteOrder = binary.NativeEndian
	for decoder.Next() {
		if decoder.Type() == inetDiagInfo {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)), decoder.Bytes())
		}
	}
	if err := decoder.Err(); err != nil {
		return nil, fmt.Errorf("%w: sock_diag attributes: %w", errInvalid, err)
	}
	return &info, nil
}

// fillFromInfo takes the unsent bytes out of the send queue, which holds both those
// and the unacknowledged.
func fillFromInfo(r *bpfSocketRecord, info *unix.TCPInfo) {
	if wasReset(State(r.State), info) {
		r.State = uint8(Close)
	}
	r.Unsent = info.Notsent_bytes
	r.Unacked = less(r.Unacked, r.Unsent)
	r.SendWindow = info.Snd_wnd
	r.BytesReceived, r.BytesSent, r.BytesRetransmitted = info.Bytes_received, info.Bytes_sent, info.Bytes_retrans
	r.Retransmits = info.Total_retrans
	r.Timeouts, r.Probes = info.Retransmits, info.Probes
	r.SrttUs = info.Rtt * 8
	r.SentAgeJiffies, r.ReceivedAgeJiffies = info.Last_data_sent, info.Last_data_recv
}

// wasReset reports whether tcp_disconnect() ran between the reading of the state, for which
// tcp_get_info() takes no lock, and that of the numbers, for which it does. It moves write_seq
// by the window and 2, which then looks unsent, and sets the counts of segments to 0. A
// connection has received one at least, that of its handshake.
func wasReset(state State, info *unix.TCPInfo) bool {
	told := info.State != 0 // the answer has a tcp_info
	return told && state != Listen && state != SynSent && info.Segs_in == 0
}
