//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"slices"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// class says when a function is traced.
type class uint8

const (
	collectives  class = iota // until their rate is above the cap
	pointToPoint              // until their rate is above the cap
	groups                    // as long as either
	lifetimes                 // always
	graphs                    // of libcuda: always
)

// function is a function of NCCL, RCCL or libcuda with its program.
type function struct {
	name, program string
	class         class
}

// functions are in the order of attaching: calls before inits, so that a reader who is
// told of an init misses no call. Not among them is ncclBcast, which calls ncclBroadcast, and
// the one-sided calls (ncclPutSignal and its kin), which have no order to compare.
func functions() []function {
	return []function{
		{"ncclAllReduce", bpfProgAllReduce, collectives},
		{"ncclBroadcast", bpfProgBroadcast, collectives},
		{"ncclReduce", bpfProgReduce, collectives},
		{"ncclAllGather", bpfProgAllGather, collectives},
		{"ncclReduceScatter", bpfProgReduceScatter, collectives},
		{"ncclAlltoAll", bpfProgAllToAll, collectives},
		{"ncclGather", bpfProgGather, collectives},
		{"ncclScatter", bpfProgScatter, collectives},
		{"ncclSend", bpfProgSend, pointToPoint},
		{"ncclRecv", bpfProgRecv, pointToPoint},
		{"ncclGroupStart", bpfProgGroupStart, groups},
		{"ncclGroupEnd", bpfProgGroupEnd, groups},
		{"ncclCommInitRank", bpfProgInitRank, lifetimes},
		{"ncclCommInitRankConfig", bpfProgInitRankConfig, lifetimes},
		{"ncclCommInitRankScalable", bpfProgInitRankScalable, lifetimes},
		{"ncclCommInitAll", bpfProgInitAll, lifetimes},
		{"ncclCommSplit", bpfProgSplit, lifetimes},
		{"ncclCommShrink", bpfProgShrink, lifetimes},
		{"ncclCommGrow", bpfProgGrow, lifetimes},
		{"ncclCommFinalize", bpfProgFinalize, lifetimes},
		{"ncclCommRevoke", bpfProgRevoke, lifetimes},
		{"ncclCommDestroy", bpfProgDestroy, lifetimes},
		{"ncclCommAbort", bpfProgAbortCommunicator, lifetimes},
		{"ncclDevCommCreate", bpfProgDevice, lifetimes},
		{"cuGraphLaunch", bpfProgGraphLaunch, graphs},
		{"cuGraphLaunch_ptsz", bpfProgGraphLaunch, graphs},
	}
}

const (
	// allReduce is in every NCCL and RCCL: a library that defines it is one of them.
	allReduce = "ncclAllReduce"
	// commSplit came with NCCL 2.18, as commHash did in front of the rank.
	commSplit = "ncclCommSplit"
	// allToAllOfRCCL is RCCL's alone, which makes it, and ncclGather and ncclScatter, of
	// ncclSend and ncclRecv: they would count twice.
	allToAllOfRCCL = "ncclAllToAll"
)

// names are all functions that a library is asked for.
func names() []string {
	list := []string{userRank, count, cuDevice, allToAllOfRCCL}
	for _, f := range functions() {
		list = append(list, f.name)
	}
	return list
}

// traced are the functions of a library that are traced.
func traced(image *uprobe.Image) []function {
	_, rccl := image.Function(allToAllOfRCCL)
	return slices.DeleteFunc(functions(), func(f function) bool {
		_, there := image.Function(f.name)
		return !there || rccl && (f.name == "ncclGather" || f.name == "ncclScatter")
	})
}

// traces reports whether functions of a class are traced under a limit.
func (l Limit) traces(c class) bool {
	switch c {
	case pointToPoint:
		return l < NoPointToPoint
	case collectives, groups:
		return l < NoCalls
	default:
		return true
	}
}
