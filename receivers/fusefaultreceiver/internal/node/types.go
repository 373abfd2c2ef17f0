package node

import "strconv"

// Mount is a file system in the mount table of a process.
type Mount struct {
	Point  string // as that process sees it
	Source string
	Type   string
	// SeenBy is whose table it was found in: a pid, "1" or "self".
	SeenBy string
}

// The mount tables that are there whatever becomes of a process.
const (
	OfInit = "1"
	OfSelf = "self"
)

// PID names the mount table of a process.
func PID(pid uint32) string { return strconv.FormatUint(uint64(pid), 10) }

// State says what a process can do.
type State string

// The states of a process.
const (
	Alive   State = "alive"
	Stopped State = "stopped" // by a signal or a debugger: SIGCONT lets it go on
	Gone    State = "gone"    // it has ended; a zombie too
	Unknown State = "unknown"
)

// Process is what /proc/<pid>/stat says.
type Process struct {
	Name       string
	State      State
	StartTicks uint64 // tells it from a later process with the same number
}
