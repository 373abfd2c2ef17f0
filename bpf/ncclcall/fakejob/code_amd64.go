//go:build linux

package fakejob

import (
	"encoding/binary"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
)

// plain returns 0 (ncclSuccess): endbr64; push %rbp; pop %rbp; xor %eax, %eax; ret.
func plain() []byte { return []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0x31, 0xc0, 0xc3} }

// loads reads ints from its first argument and stores the first of them through its
// second: as ncclCommUserRank(comm, int *rank) does.
func loads(places []uint64) []byte {
	code := []byte{0xf3, 0x0f, 0x1e, 0xfa}
	for _, at := range places[1:] {
		code = binary.LittleEndian.AppendUint32(append(code, 0x8b, 0x87), uint32(at)) // mov at(%rdi), %eax
	}
	code = binary.LittleEndian.AppendUint32(append(code, 0x8b, 0x87), uint32(places[0]))
	return append(code, 0x89, 0x06, 0x31, 0xc0, 0xc3) // mov %eax, (%rsi); xor %eax, %eax; ret
}

// reduce puts the communicator where ncclReduce has it: the seventh argument.
func reduce(a *standin.Arguments, communicator uintptr) { a.Stack[0] = communicator }

// id passes a unique id by value and the rank behind it.
func id(a *standin.Arguments, id []byte, rank int32) {
	for i := range len(id) / 8 {
		a.Stack[i] = uintptr(binary.LittleEndian.Uint64(id[8*i:]))
	}
	a.Registers[2] = uintptr(uint32(rank))
}
