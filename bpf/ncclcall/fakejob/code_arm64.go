//go:build linux

package fakejob

import (
	"encoding/binary"
	"unsafe"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
)

// plain returns 0 (ncclSuccess): bti c; mov w0, #0; ret.
func plain() []byte { return words(0xd503245f, 0x52800000, 0xd65f03c0) }

// loads reads ints from its first argument and stores the last of them through its
// second: as ncclCommUserRank(comm, int *rank) does.
func loads(places []uint64) []byte {
	code := []uint32{0xd503245f}
	for i := len(places) - 1; i >= 0; i-- {
		code = append(code, load(places[i])...)
	}
	return words(append(code, 0xb9000022, 0x52800000, 0xd65f03c0)...) // str w2, [x1]; mov w0, #0; ret
}

// load is ldr w2, [x0, #at], where at fits, or add x2, x0, #high, lsl #12; ldr w2, [x2, #low].
func load(at uint64) []uint32 {
	if at < 4096*4 {
		return []uint32{0xb9400002 | uint32(at/4)<<10}
	}
	return []uint32{0x91400002 | uint32(at>>12)<<10, 0xb9400042 | uint32(at&0xfff/4)<<10}
}

// reduce puts the communicator where ncclReduce has it: the seventh argument.
func reduce(a *standin.Arguments, communicator uintptr) { a.Registers[6] = communicator }

// id passes a pointer to a copy of a unique id, and the rank behind it.
func id(a *standin.Arguments, id []byte, rank int32) {
	a.Registers[2], a.Registers[3] = uintptr(unsafe.Pointer(unsafe.SliceData(id))), uintptr(uint32(rank))
}

func words(list ...uint32) []byte {
	var code []byte
	for _, w := range list {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}
