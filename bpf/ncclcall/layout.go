package ncclcall

import (
	"debug/elf"
	"encoding/binary"
	"errors"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// The functions of the library that return a field of struct ncclComm each. The three
// fields lie side by side in this order, as ints (src/include/comm.h, all releases).
const (
	userRank = "ncclCommUserRank"
	count    = "ncclCommCount"
	cuDevice = "ncclCommCuDevice"
)

// The layout of struct ncclComm differs between releases, and the library says it
// nowhere but in its code.
var (
	errNoFunctions = errors.New("it lacks ncclCommUserRank, ncclCommCount or ncclCommCuDevice")
	errNoLayout    = errors.New("their code shows no place of rank, size and device in struct ncclComm")
	errAmbiguous   = errors.New("their code shows more than one place of rank, size and device in struct ncclComm")
)

const (
	// maxCode bounds what is read of a function: those of NCCL 2.29 have 600 bytes.
	maxCode = 16 << 10
	// maxLayout bounds the offset: struct ncclComm of NCCL 2.29 has 1.2 MB.
	maxLayout = 16 << 20
	// intBytes is from one of the fields to the next.
	intBytes = 4
)

// rankOffset finds where the library keeps the rank in struct ncclComm: the one offset
// from which ncclCommUserRank loads 32 bits, while ncclCommCount loads them four bytes
// further and ncclCommCuDevice eight. It is a multiple of eight, for a 64-bit commHash
// is in front of it. Nothing is guessed: two candidates are none.
func rankOffset(image *uprobe.Image) (uint64, error) {
	var loads [3]map[uint64]bool
	for i, name := range []string{userRank, count, cuDevice} {
		if _, there := image.Function(name); !there {
			return 0, errNoFunctions
		}
		loads[i] = loadsOf(image.Machine, image.Code(name, maxCode))
	}
	found := uint64(0)
	for at := range loads[0] {
		if at%8 != 0 || at < 8 || at > maxLayout || !loads[1][at+intBytes] || !loads[2][at+2*intBytes] {
			continue
		}
		if found != 0 {
			return 0, errAmbiguous
		}
		found = at
	}
	if found == 0 {
		return 0, errNoLayout
	}
	return found, nil
}

// loadsOf are the offsets of 32-bit loads from memory in a function.
func loadsOf(machine elf.Machine, code []byte) map[uint64]bool {
	switch machine {
	case elf.EM_X86_64:
		return loadsOfX86(code)
	case elf.EM_AARCH64:
		return loadsOfARM(code)
	default:
		return nil
	}
}

// loadsOfX86 looks for MOV r32, [r64+disp32] (8b /r, mod 10) at each byte. Bytes within
// other instructions may look like one; three functions must agree.
func loadsOfX86(code []byte) map[uint64]bool {
	const movLoad, disp32, sib, displacement = 0x8b, 2, 4, 4
	found := map[uint64]bool{}
	for i := 0; i+2 < len(code); i++ {
		if code[i] != movLoad || code[i+1]>>6 != disp32 {
			continue
		}
		at := i + 2
		if code[i+1]&7 == sib {
			at++
		}
		if at+displacement <= len(code) {
			found[uint64(binary.LittleEndian.Uint32(code[at:]))] = true
		}
	}
	return found
}

// loadsOfARM looks for LDR Wt, [Xn, #low], where an ADD Xn, Xm, #high, LSL #12 before it
// adds to the offset.
func loadsOfARM(code []byte) map[uint64]bool {
	const (
		opcode     = 0xffc00000
		addShifted = 0x91400000
		load       = 0xb9400000
	)
	found, high := map[uint64]bool{}, map[uint32]uint64{}
	for i := 0; i+4 <= len(code); i += 4 {
		word := binary.LittleEndian.Uint32(code[i:])
		target, source, immediate := word&31, word>>5&31, uint64(word>>10&0xfff)
		switch word & opcode {
		case addShifted:
			high[target] = immediate << 12
		case load:
			found[high[source]+immediate*4] = true
		}
	}
	return found
}
