package ncclcall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// Watched says what came out of one Watch.
type Watched struct {
	uprobe.Watched
	NCCL    int // of the libraries, those of NCCL and RCCL
	Unknown int // of these, those whose layout is not known: rank and size are not
	// Layout says why of one of them.
	Layout error
}

// Process is one whose libraries are to be watched.
type Process = uprobe.Process

// Unseen is a process of which not all collectives make a call that can be seen.
type Unseen struct {
	PID  uint32
	Why  Why
	File string // in which that is, in the process's own root
}

// Why they are not seen.
type Why string

// The reasons.
const (
	Static       Why = "static"        // NCCL is linked into a file that does not export its functions
	GPUInitiated Why = "gpu_initiated" // kernels communicate by themselves
)

// Launches are those of CUDA graphs.
type Launches struct {
	Count uint64
	Last  time.Time
}

// Scan is where all communicators stand at one time.
type Scan struct {
	Time          time.Time
	Communicators []Communicator
	// Graphs are the launches by process: the collectives of a graph
	// are counted when it is captured, and not when it is launched.
	Graphs map[uint32]Launches
	// Refused are calls of communicators for which there was no room, since Open.
	Refused uint64
	// Limited says of processes which of their calls are not counted for a while. Their
	// counters stand.
	Limited map[uint32]Limit
}
