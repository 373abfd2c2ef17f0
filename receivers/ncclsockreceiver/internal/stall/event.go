package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
)

// Cause says why a socket does not move.
type Cause string

// The causes. All but Waiting accuse somebody.
const (
	NotReading     Cause = "not_reading"
	PeerNotReading Cause = "peer_not_reading"
	Network        Cause = "network"
	Connecting     Cause = "connecting"
	Waiting        Cause = "waiting"
)

// weight orders causes by how much they say, where sockets of one pair differ.
func (c Cause) weight() int {
	switch c {
	case Network:
		return 4
	case NotReading, PeerNotReading:
		return 3
	case Connecting:
		return 2
	case Waiting:
		return 1
	}
	return 0
}

// Direction of the data that does not move, seen from the rank.
type Direction string

// The directions.
const (
	Send    Direction = "send"
	Receive Direction = "receive"
)

// EndReason says how a stall ended.
type EndReason string

// The reasons.
const (
	Progress EndReason = "progress" // bytes moved
	Closed   EndReason = "closed"   // the socket is gone
	Exited   EndReason = "exited"   // the process is gone
)

// Unknown stands for a number that is not known.
const Unknown = -1

// RankFacts are what is known of the rank process as a whole. Durations and
// shares are negative when not known.
type RankFacts struct {
	LastSentAge     time.Duration // newest data on any of its collective sockets
	LastReceivedAge time.Duration
	CPUShare        float64 // cores used since it fell silent
	MainCPUShare    float64
	State           State
	UsualPhase      time.Duration // longest silence of the job that ended by itself
}

// Event is a stall that began, goes on or ended.
type Event struct {
	ID        string // the same from the first to the end
	Time      time.Time
	End       EndReason // "" while it lasts
	Cause     Cause
	Direction Direction
	Kind      Kind
	Process   identity.Process
	Age       time.Duration   // since the last progress
	Socket    ncclsock.Socket // the one that stalls longest
	Count     int             // sockets of this peer, direction and cause
	Errno     int32           // that the socket reported, 0 when none
	PeerRank  int             // Unknown unless the peer is a rank of the job on this node
	Rank      RankFacts
}
