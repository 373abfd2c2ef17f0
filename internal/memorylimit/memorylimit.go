// Package memorylimit gives the Go runtime the memory limit of the cgroup, so that
// the garbage collector works harder before the kernel kills.
package memorylimit

import (
	"errors"
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Fractions of the cgroup's memory that a program's Go runtime may use. What is left
// is for what the runtime does not count: BPF maps, memory-mapped state, the
// page cache, stacks of C, and the helper programs, which live in the same cgroup.
const (
	Collector = 0.8
	Helper    = 0.1
)

// Unlimited is the memory that budgets are shares of where nothing limits the process.
const Unlimited = 1 << 30

// Apply sets the limit of the Go runtime to a fraction of the smallest memory limit of
// the cgroup and its ancestors, version 1 or 2. GOMEMLIMIT in the environment goes
// first. Without cgroups there is no limit, and that is no error.
func Apply(fraction float64) error {
	_, err := memlimit.Set(memlimit.WithRatio(fraction))
	if errors.Is(err, memlimit.ErrCgroupsNotSupported) || errors.Is(err, memlimit.ErrNoCgroup) {
		return nil
	}
	return err
}

// Budget is the share of the runtime's memory limit, in bytes, that one part of the
// program may hold.
func Budget(share float64) int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = Unlimited
	}
	return int64(share * float64(limit))
}
