//go:build linux

// Package kmsgtest makes, for tests, the kernel write to its log.
package kmsgtest

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// HoldCPU has an interrupt of the timer of a process take some seconds, once: a program
// that copies memory until they are over.
func HoldCPU(tb testing.TB, pid int) {
	tb.Helper()
	const size, copies, rounds = 3 << 20, 8, 4000 // the verifier follows 8192 branches, a map takes 4 MiB
	memory, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8 + size, MaxEntries: 1})
	require.NoError(tb, err)
	defer memory.Close()
	instructions := asm.Instructions{
		asm.LoadMapValue(asm.R6, memory.FD(), 0),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
		asm.JNE.Imm(asm.R1, 0, "end"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.R6, 0, asm.R1, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.LoadImm(asm.R8, int64(6*time.Second), asm.DWord),
		asm.Add.Reg(asm.R8, asm.R0),
		asm.Mov.Imm(asm.R9, 0),
		asm.Add.Imm(asm.R9, 1).WithSymbol("again"),
	}
	for range copies {
		instructions = append(instructions, asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, 8), asm.Mov.Imm(asm.R2, size), asm.Mov.Reg(asm.R3, asm.R6), asm.FnProbeReadKernel.Call())
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.PerfEvent, License: "GPL", Instructions: append(
		instructions,
		asm.FnKtimeGetNs.Call(),
		asm.JGT.Reg(asm.R0, asm.R8, "end"),
		asm.JLT.Imm(asm.R9, rounds, "again"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)})
	require.NoError(tb, err)
	tb.Cleanup(func() { program.Close() })
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(10 * time.Millisecond)}
	event, err := unix.PerfEventOpen(&attr, pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	require.NoError(tb, err)
	tb.Cleanup(func() { unix.Close(event) })
	require.NoError(tb, unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_SET_BPF, program.FD()))
	require.NoError(tb, unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_ENABLE, 0))
}
