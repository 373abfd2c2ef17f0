package ncclsock

import (
	"net/netip"
	"time"
)

// State is the state of a TCP socket (include/net/tcp_states.h).
type State uint8

// The states.
const (
	Established State = 1 + iota
	SynSent
	SynReceived
	FinWait1
	FinWait2
	TimeWait
	Close
	CloseWait
	LastAck
	Listen
	Closing
)

// Socket is one TCP socket of one rank process at the time of a snapshot.
type Socket struct {
	Cookie uint64 // of the socket (SO_COOKIE): the same in every snapshot while it lives
	Inode  uint64 // as in /proc/<pid>/fd
	NetNS  uint64 // inode of its network namespace
	PID    uint32 // a process of Options.Owners that holds it: the lowest, if several do
	Local  netip.AddrPort
	Remote netip.AddrPort
	State  State

	ReceiveQueueBytes uint32 // received and not read
	UnsentBytes       uint32 // written and not sent
	UnackedBytes      uint32 // sent and not acknowledged
	SendWindowBytes   uint32 // window the peer offers (tcp_sock.snd_wnd); 0: it does not read
	BytesReceived     uint64 // since the connection began
	BytesRead         uint64 // of those, read by the process
	BytesSent         uint64 // handed to the network for the first time
	BytesAcked        uint64

	Retransmits uint32 // segments, since the connection began
	Backoff     uint8  // consecutive timeouts of the segment in flight (inet_connection_sock.icsk_retransmits), or window probes without answer
	Probing     bool   // the kernel probes a closed window

	LastSentAge     time.Duration // since data was last sent (tcp_sock.lsndtime); negative when never
	LastReceivedAge time.Duration // since data was last received (inet_csk_ack.lrcvtime); negative when never
	Age             time.Duration // since the connection began to exist; negative when unknown

	RTT time.Duration
	// Handshake holds the first bytes of the receive or send queue where they are
	// also the first bytes of the connection: NCCL's 8-byte magic, 4-byte type and
	// 1-byte index. Len 0 when they were gone before the snapshot.
	Handshake []byte
}

// Snapshot is what the kernel holds for a set of processes at one moment.
type Snapshot struct {
	Time    time.Time
	Tick    time.Duration // of the kernel's clock: how exact the ages of sockets are; 0 not known
	Sockets []Socket
	// Unreadable counts processes and network namespaces that could not be read.
	Unreadable int
	// Over counts sockets beyond Options.MaxSockets, which Sockets lacks.
	Over int
}

// Change is a rare event of one socket between two snapshots.
type Change struct {
	Time          time.Time
	Cookie        uint64
	NetNS         uint64
	PID           uint32 // process that held it first
	Local, Remote netip.AddrPort
	Kind          ChangeKind
	Old, New      State // of a state change
	Error         int32 // errno that the socket reported: ECONNREFUSED, ETIMEDOUT, ECONNRESET; 0 when none
}

// ChangeKind is what changed.
type ChangeKind uint8

// The kinds of changes.
const (
	StateChanged ChangeKind = iota
	Retransmitted
)
