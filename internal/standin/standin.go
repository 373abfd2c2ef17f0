// Package standin makes a stand-in for a training job: real processes, one per
// rank, that talk to each other as NCCL's socket transport or as Gloo does, in
// network namespaces of their own or on loopback. Tests and drills break it on
// purpose. Nothing of it outlives the process that started it: the namespaces
// have no name and the ranks die with their parent.
package standin

import "time"

// Library is whose way of moving data the ranks imitate.
type Library string

const (
	// NCCL sends its handshake, then chunks around a ring over non-blocking sockets
	// that a thread of its own polls, and only while the rank is in a collective.
	NCCL Library = "nccl"
	// Gloo connects each rank with each, sends chunks with a header around the
	// ring, and has threads that read whatever comes, at any time.
	Gloo Library = "gloo"
)

// Options of a job. Zero values mean four ranks that imitate NCCL on loopback,
// without pauses.
type Options struct {
	Library    Library
	Size       int           // ranks
	Phase      time.Duration // each rank computes for a random time up to this between two collectives
	Busy       bool          // computing burns CPU; else the main thread sleeps, as if a GPU worked
	Namespaces bool          // each rank in a network namespace of its own
	JobID      string        // one word, as identity reads it
	Env        []string      // more of the environment of each rank
	Shell      string        // a script for bash that runs each rank as "$0", "": none
	ChunkBytes int
	// BufferBytes is what the kernel may hold of a connection of the ring at each end;
	// 0 leaves it to the kernel. A chunk above both makes its sender wait for the reader.
	BufferBytes int
}

func (o Options) withDefaults() Options {
	if o.Library == "" {
		o.Library = NCCL
	}
	if o.Size == 0 {
		o.Size = 4
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 64 << 10
	}
	if o.JobID == "" {
		o.JobID = "stand-in"
	}
	return o
}

// processName is the whole command line of a rank.
const processName = "stand-in-rank"

// childVariable marks a process that computes for a rank; its value says for how long.
const childVariable = "TRACECORE_STANDIN_COMPUTES"

// variable marks the process of a rank; its value is its part as JSON.
const variable = "TRACECORE_STANDIN"

// part is what a rank is told of the job.
type part struct {
	Library     Library
	Rank, Size  int
	Phase       time.Duration
	Busy        bool
	ChunkBytes  int
	BufferBytes int
	Address     string // its own, to listen on
}

// The orders that a rank takes on standard input, one a line.
const (
	orderPeers   = "peers"   // addresses and pids of all ranks, in order: begin
	orderSleep   = "sleep"   // the main thread sleeps for good
	orderLeave   = "leave"   // the connections to the others are closed, and the main thread sleeps for good
	orderDeaf    = "deaf"    // nothing is read any more
	orderCompute = "compute" // the next phase lasts this long
	orderChild   = "child"   // a child process computes for so long, and the main thread waits for it
	orderThread  = "thread"  // another thread does
	orderWrite   = "write"   // the main thread writes so many bytes to this file in one call
	orderRead    = "read"    // the main thread reads this file, then goes on
	orderTouch   = "touch"   // the main thread maps this file and touches each page
	orderGrow    = "grow"    // the main thread takes memory until it is killed for it
	orderRate    = "rate"    // bytes a second that are sent, at most
)

// What a rank says on standard output, one a line.
const (
	sayListening = "listening" // its address
	saySteps     = "step"      // collectives it has completed
	sayObeys     = "obeys"     // orders that its main thread has taken
)
