package ncclcall

import (
	"math/bits"
	"net/netip"
	"strconv"
	"time"
)

// Operation is a call of NCCL that moves data.
type Operation uint8

// The operations, as BPF numbers them.
const (
	OperationUnknown Operation = iota
	AllReduce
	Broadcast
	Reduce
	AllGather
	ReduceScatter
	AllToAll
	Gather
	Scatter
	Send
	Recv
	Operations // how many there are
)

// String is the operation's name as nccl.h has it, without its prefix.
func (o Operation) String() string {
	names := [Operations]string{"unknown", "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter", "Send", "Recv"}
	return names[min(o, Operations)%Operations]
}

// PointToPoint: between two ranks, so that each rank has its own count of them.
func (o Operation) PointToPoint() bool { return o == Send || o == Recv }

// DataType is nccl.h's ncclDataType_t.
type DataType uint32

// String is the type's name as PyTorch and NCCL's log have it.
func (d DataType) String() string {
	names := []string{"int8", "uint8", "int32", "uint32", "int64", "uint64", "fp16", "fp32", "fp64", "bf16", "fp8e4m3", "fp8e5m2"}
	if int(d) < len(names) {
		return names[d]
	}
	return "type" + strconv.FormatUint(uint64(d), 10)
}

// Call is one call: what all ranks of a collective must agree on.
type Call struct {
	Time      time.Time
	Operation Operation
	Type      DataType
	Count     uint64 // elements, as the call says it: of ReduceScatter what a rank receives, of AllGather what it sends
	Root      int32  // rank, of Send and Recv the peer; -1 where the call has none
}

// Numbered is one of the last collectives of a communicator.
type Numbered struct {
	Call
	Number uint64 // from 0
}

// Identity says what is known of who a communicator belongs to.
type Identity uint8

// The identities.
const (
	// NoLayout: where its library keeps rank and size was not found, so only its
	// counters are known.
	NoLayout Identity = iota
	// Unread: its memory was not resident, or says what cannot be.
	Unread
	// Known: rank, size and, from NCCL 2.18 on, hash are its own.
	Known
)

// Communicator is one rank of a communicator, in one process.
type Communicator struct {
	PID      uint32 // thread group id in the initial pid namespace
	Address  uint64 // of its struct ncclComm
	Identity Identity
	// Hash is the same on all ranks and differs between communicators: NCCL's
	// commHash, which NCCL_DEBUG=INFO prints as commId from 2.26 on. 0: not known.
	Hash   uint64
	Rank   int32 // in this communicator
	Size   int32
	Device int32  // ordinal among the GPUs that the process sees
	GPU    string // PCI address, "0000:1b:00.0"; "" where not known
	// Exact: the probe saw the communicator being made, so Collectives is the number
	// of all it has called. Otherwise it is those since First.
	Exact       bool
	First       time.Time
	Collectives uint64
	// Aligned: it is not exact, and NCCL's own counter says that there were Before
	// launches before the first call that was counted. NCCL counts what goes to single
	// ranks as well: one that has sent or received any is not aligned.
	Aligned bool
	Before  uint64
	Calls   [Operations]uint64
	Last    Call
	// GroupDepth: so many groups (ncclGroupStart) are open yet around the last call. NCCL launches it when the
	// outermost ends.
	GroupDepth uint32
	Recent     []Numbered
	// Samples are when calls were made that each rank of the communicator chooses alike,
	// two to four a second, oldest first.
	Samples []Sample
	slot    uint32    // of its library
	owner   [2]uint16 // whose process it is: slots of room.h
}

// Sample is when a collective was called.
type Sample struct {
	Number uint64 // from 0
	Time   time.Time
	// Pause is the longest between two calls on the communicator since the sample before.
	Pause time.Duration
}

// Level says how rare a number is among those that are sampled: a rank that keeps those of
// some level keeps all of a higher one. Half of all numbers are of level 0.
func (s *Sample) Level() int { return bits.TrailingZeros32(mix(uint32(s.Number)) | 1<<31) }

// mix is BPF's.
func mix(number uint32) uint32 {
	number ^= number >> 16
	number *= 0x85ebca6b
	number ^= number >> 13
	number *= 0xc2b2ae35
	return number ^ number>>16
}

// PointToPoint is how many calls it made to single ranks.
func (c *Communicator) PointToPoint() uint64 { return c.Calls[Send] + c.Calls[Recv] }

// Kind is what happens to a communicator.
type Kind uint8

// The kinds, as BPF numbers them.
const (
	KindUnknown Kind = iota
	InitRank
	InitRankConfig
	InitRankScalable
	InitAll
	Split
	Shrink
	Grow
	Finalize
	Revoke
	Destroy
	Abort
	Device // kernels of the program may communicate by themselves from now on
	Kinds  // how many there are
)

// String is the function's name.
func (k Kind) String() string {
	names := [Kinds]string{
		"unknown", "ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommInitAll", "ncclCommSplit",
		"ncclCommShrink", "ncclCommGrow", "ncclCommFinalize", "ncclCommRevoke", "ncclCommDestroy", "ncclCommAbort", "ncclDevCommCreate",
	}
	return names[min(k, Kinds)%Kinds]
}

// Init: it makes a communicator from nothing.
func (k Kind) Init() bool { return k >= InitRank && k <= InitAll }

// Event is a call that makes a communicator, or ends one. It is told at the call's
// begin: an init returns only when all ranks have called.
type Event struct {
	Time   time.Time
	Kind   Kind
	PID    uint32
	Thread uint32
	// Address and Hash are of the communicator the call is about: the one that is
	// split or ended. Of an init there is none yet; its Hash is that of NCCL 2.26 and later.
	Address uint64
	Hash    uint64
	Rank    int32 // as an init says it, else -1
	Size    int32 // ranks of the new communicator; of Shrink those left out
	Color   int32 // of Split
	Key     int32 // of Split
	// Root is where rank 0 of the new communicator listens for the others: part of
	// the unique id. Zero where the call has no readable id, or none of IPv4 or IPv6.
	Root         netip.AddrPort
	Collectives  uint64 // calls until now
	Calls        [Operations]uint64
	born         []uint64 // the hashes that the new communicator may have
	bootNS       uint64   // Time, on the boot clock
	slot         uint32   // of its library
	tenant, user uint16   // whose process it is: slots of room.h
}
