// Package stall tells which sockets of a training job stopped moving, since when
// and why. Snapshots go in, stalls come out: no I/O, no clock, no goroutine. How
// a rank stops, and what that looks like in its sockets, is in the README of the
// receiver.
package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// What is known of a process comes from activity.
type (
	Process  = activity.Process
	Inside   = activity.Inside
	CPULimit = activity.CPULimit
	Child    = activity.Child
)

// Round is one look at all ranks of this node.
type Round struct {
	Time      time.Time
	Tick      time.Duration // of the kernel's clock, 0 not known
	Sockets   []ncclsock.Socket
	Partial   bool // there were more
	Processes map[uint32]Process
}
