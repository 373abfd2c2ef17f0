package stall

import (
	"net/netip"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// weight orders causes by how much they say, where sockets of one pair differ.
func weight(c socketstall.Cause) int {
	switch c {
	case socketstall.Network:
		return 4
	case socketstall.NotReading, socketstall.PeerNotReading:
		return 3
	case socketstall.Connecting:
		return 2
	case socketstall.Waiting:
		return 1
	}
	return 0
}

// Unknown stands for a number that is not known.
const Unknown = activity.Unknown

// RankFacts are what is known of the rank process as a whole. Durations and
// shares are negative when not known.
type RankFacts struct {
	LastSentAge     time.Duration // newest data on any of its collective sockets; of a rank that only receives not known
	LastReceivedAge time.Duration
	Tick            time.Duration // of the kernel's clock: how exact both are; 0 not known
	CPUShare        float64       // cores used since it fell silent
	MainCPUShare    float64
	State           socketstall.State
	Stopped         identity.Signal // that stopped it, none where it is not stopped or nobody knows
	UsualPhase      time.Duration   // healthy pause that is usual for what it does

	Awaits   netip.AddrPort       // process of no rank for whose answer it waits, not valid for none
	Activity socketstall.Activity // "" when not known
	Rest     time.Duration        // since nothing of it has made progress
	Watched  time.Duration        // since it was first seen
	Silence  socketstall.Silence
	Inside   *Inside // nil: nobody has looked
}

// Event is a stall that began, goes on or ended.
type Event struct {
	ID        string // the same from the first to the end
	Time      time.Time
	End       socketstall.EndReason // "" while it lasts
	Cause     socketstall.Cause
	Direction socketstall.Direction
	Kind      socketstall.Kind
	Process   identity.Process
	Age       time.Duration   // since the last progress
	Socket    ncclsock.Socket // the one that stalls longest
	Count     int             // sockets of this peer, direction and cause
	Errno     int32           // that the socket reported, 0 when none
	PeerRank  int             // Unknown unless the peer is, or was, a rank of the job on this node

	PeerReceived int64 // bytes that the other end has received, Unknown unless it is on this node
	Rank         RankFacts
}
