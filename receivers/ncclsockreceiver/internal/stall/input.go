// Package stall tells which sockets of a training job stopped moving, since when
// and why. Snapshots go in, stalls come out: no I/O, no clock, no goroutine. How
// a rank stops, and what that looks like in its sockets, is in the README of the
// receiver.
package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Process is one process of a rank at the time of a snapshot.
type Process struct {
	identity.Process
	State   socketstall.State
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
