//go:build linux

// Package counter reads counters that BPF programs keep per CPU.
package counter

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Sum adds up one slot of a per-CPU array of 64-bit counters.
func Sum(m *ebpf.Map, slot uint32) (uint64, error) {
	var perCPU []uint64
	if err := m.Lookup(slot, &perCPU); err != nil {
		return 0, fmt.Errorf("read per-CPU counter: %w", err)
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// Misses is how often the kernel did not run a program, because it was running on that CPU
// already; 0 where it does not count them (before Linux 5.12).
func Misses(program *ebpf.Program) uint64 {
	stats, err := program.Stats()
	if err != nil {
		return 0
	}
	return stats.RecursionMisses
}
