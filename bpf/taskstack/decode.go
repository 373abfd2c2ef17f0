//go:build linux && (amd64 || arm64)

package taskstack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelThread is PF_KTHREAD, include/linux/sched.h.
const kernelThread = 0x00200000

// decode turns what the iterator wrote about one thread into a stack: a record, and a line
// for each frame of the kernel.
func decode(raw []byte, s *Stack) error {
	const size = int(unsafe.Sizeof(bpfRecord{}))
	if len(raw) < size {
		return fmt.Errorf("taskstack record of %d bytes, want %d", len(raw), size)
	}
	var r bpfRecord
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), size), raw)
	lines := bytes.Split(bytes.TrimSuffix(raw[size:], []byte("\n")), []byte("\n"))
	if len(raw) == size {
		lines = nil
	}
	if uint64(len(lines)) != uint64(r.KernelFrames) {
		return fmt.Errorf("taskstack record of %d frames has %d", r.KernelFrames, len(lines))
	}
	*s = Stack{
		TID: r.Tid, PID: r.Tgid, State: letter(r.State, r.Exiting != 0), Still: r.Still != 0, Switches: r.Switches,
		KernelThread: r.Flags&kernelThread != 0, Kernel: functions(lines),
	}
	if !s.KernelThread {
		s.Registers = fromKernel(&r.Registers)
	}
	return nil
}

// Bits of a task's state, include/linux/sched.h.
const (
	taskIdle   = 0x402  // TASK_UNINTERRUPTIBLE | TASK_NOLOAD
	taskRTLock = 0x1000 // TASK_RTLOCK_WAIT, 5.16
	taskFrozen = 0x8000 // TASK_FROZEN, 6.1
	taskReport = 0x7f
)

// letter is how /proc shows a state (task_state_index, include/linux/sched.h).
func letter(state uint32, exiting bool) byte {
	switch {
	case exiting:
		return 'Z'
	case state == taskIdle:
		return 'I'
	case state&(taskRTLock|taskFrozen) != 0:
		return 'D'
	}
	return "RSDTtXZP"[bits.Len32(state&taskReport)]
}

// functions reads lines such as "[<0>] fuse_simple_request+0x1f/0x30 [fuse]": %pB and
// /proc/TID/stack. An address without a name is left out.
func functions(lines [][]byte) []Function {
	out := make([]Function, 0, len(lines))
	for _, line := range lines {
		name, module, _ := strings.Cut(strings.TrimPrefix(string(line), "[<0>] "), " [")
		name, _, _ = strings.Cut(name, "+")
		name, _, _ = strings.Cut(name, ".")
		module, _, _ = strings.Cut(strings.TrimSuffix(module, "]"), " ") // a build id may follow
		if name != "" && !strings.HasPrefix(name, "0x") {
			out = append(out, Function{name, module})
		}
	}
	return out
}

// Layout of a sample, perf_event_open(2): type, misc and size in the header, then pid, tid,
// the ABI of the registers, the registers, size, bytes and true size of the stack.
const (
	headerBytes = 8
	abi64       = 2 // PERF_SAMPLE_REGS_ABI_64
)

// decodeSample takes one record of perf's ring.
func decodeSample(raw []byte, s *Stack) error {
	count := bits.OnesCount64(sampleMask)
	words := make([]uint64, len(raw)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	const ids, abi, first = 1, 2, 3
	switch {
	case len(words) < first:
		return fmt.Errorf("sample of %d bytes", len(raw))
	case words[abi] == 0:
		return errors.New("the sample has no registers: the thread was not in user space")
	case words[abi] != abi64:
		return errors.New("the thread runs a 32-bit program")
	case len(words) < first+count+1:
		return fmt.Errorf("sample of %d bytes has no room for %d registers", len(raw), count)
	}
	*s = Stack{PID: uint32(words[ids]), TID: uint32(words[ids] >> 32), State: 'R', Still: true, Registers: fromSample(words[first : first+count])}
	size := words[first+count]
	memory := raw[8*(first+count+1):]
	if size == 0 {
		return nil
	}
	if size > uint64(len(memory)) || uint64(len(memory))-size < 8 {
		return fmt.Errorf("sample with a stack of %d bytes in %d", size, len(memory))
	}
	filled := binary.LittleEndian.Uint64(memory[size:])
	s.Memory = bytes.Clone(memory[:min(size, filled)])
	return nil
}

// nextRecord cuts the first record of perf's ring off.
func nextRecord(ring []byte) (kind uint32, record, rest []byte, ok bool) {
	if len(ring) < headerBytes {
		return 0, nil, nil, false
	}
	size := int(binary.LittleEndian.Uint16(ring[6:]))
	if size < headerBytes || size > len(ring) {
		return 0, nil, nil, false
	}
	return binary.LittleEndian.Uint32(ring), ring[:size], ring[size:], true
}

// findSample looks for a sample among the records of the ring.
func findSample(ring []byte, s *Stack) (bool, error) {
	for {
		kind, record, rest, ok := nextRecord(ring)
		if !ok {
			return false, nil
		}
		if kind == unix.PERF_RECORD_SAMPLE {
			return true, decodeSample(record, s)
		}
		ring = rest
	}
}
