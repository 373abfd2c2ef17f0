// Package stall tells which sockets of a training job stopped moving, since when
// and why. Snapshots go in, stalls come out: no I/O, no clock, no goroutine. How
// a rank stops, and what that looks like in its sockets, is in the README of the
// receiver.
package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
)

// State is what the main thread of a process does, "" when not known.
type State string

// The states, as /proc/<pid>/stat tells them.
const (
	Running   State = "running"
	Sleeping  State = "sleeping"
	DiskSleep State = "disk_sleep"
	Stopped   State = "stopped"
	Zombie    State = "zombie"
)

// halted reports whether a thread in this state cannot go on by itself.
func (s State) halted() bool { return s == Stopped || s == Zombie }

// Process is one process of a rank at the time of a snapshot.
type Process struct {
	identity.Process
	State   State
	CPU     time.Duration // used by all its threads since it began; negative when not known
	MainCPU time.Duration // of these by its main thread; negative when not known
	Delayed time.Duration // for which its main thread could run and had no CPU; 0 when not known
	NetNS   uint64        // inode of its network namespace, 0 when not known
	NCCL    bool          // libnccl or librccl is mapped
}

// Round is one look at all ranks of this node.
type Round struct {
	Time      time.Time
	Sockets   []ncclsock.Socket
	Processes map[uint32]Process
}
