package oomkill

import "time"

// Constraint says whose limit was hit.
type Constraint uint8

// The constraints of an OOM kill (include/linux/oom.h, enum oom_constraint,
// with the NUMA ones folded into ConstraintNode).
const (
	ConstraintUnknown Constraint = iota
	ConstraintNode               // the node ran out of memory
	ConstraintCgroup             // a memory cgroup reached its limit
)

// Source says how the constraint of a kill was found.
type Source uint8

// The sources, worst first.
const (
	SourceNone       Source = iota // not at all: ConstraintUnknown
	SourceStack                    // by the kernel functions that led to the kill
	SourceOOMControl               // by the kernel's own oom_control
)

// Event is one process killed by the kernel for want of memory.
type Event struct {
	Time        time.Time
	PID         uint32 // victim, thread group id in the initial pid namespace
	ParentPID   uint32 // its parent's thread group id: a worker inherits its rank's identity
	Comm        string
	UID         uint32
	OOMScoreAdj int16

	TotalVMBytes    uint64
	AnonRSSBytes    uint64
	FileRSSBytes    uint64
	ShmemRSSBytes   uint64
	PageTablesBytes uint64
	SwapBytes       uint64

	Constraint   Constraint
	Source       Source // of Constraint and LimitCgroup
	CgroupPath   string // memory cgroup of the victim, from the root of the hierarchy; "…/" stands for names that did not fit
	LimitCgroup  string // cgroup whose limit was hit; "" when node-wide or unknown
	LimitBytes   uint64 // that limit; 0 when node-wide or unlimited
	UsageBytes   uint64 // usage of that cgroup at the kill
	FailureCount uint64 // how often that limit was hit before, 0 when unknown

	TriggerPID  uint32 // the task whose allocation failed
	TriggerComm string

	Late bool // it happened while no agent ran, and was read at the next start
}
