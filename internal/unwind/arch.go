package unwind

import "debug/elf"

// Registers are those of user space by their DWARF numbers. amd64: rax rdx rcx rbx rsi rdi
// rbp rsp r8 … r15 rip. arm64: x0 … x30 sp pc.
type Registers struct {
	Values [33]uint64
	Known  uint64 // bit n: Values[n] is known
}

func (r *Registers) set(number int, value uint64) {
	r.Values[number] = value
	r.Known |= 1 << number
}

func (r *Registers) get(number uint64) (uint64, bool) {
	return r.Values[number%33], number < 33 && r.Known&(1<<number) != 0
}

// arch is what an unwinder knows of a machine.
type arch struct {
	machine   elf.Machine
	page      uint64 // the smallest
	registers uint64 // that rules may name
	sp, pc    int
	fp        uint64 // 0 marks the start of a thread
	// saved are the registers that a function gives back as it got them, where no rule says
	// otherwise: the others are lost.
	saved uint64
	// code clears the bits of a signed return address that are no address.
	code uint64
}

// System V ABI AMD64, figure 3.4: rbx, rbp, r12 to r15; 3.4.1: rbp.
func amd64() *arch {
	return &arch{machine: elf.EM_X86_64, page: 4096, registers: 17, sp: 7, pc: 16, fp: 6, saved: 1<<3 | 1<<6 | 0xf<<12, code: 1<<57 - 1}
}

// AAPCS64, 6.1.1: x19 to x29; 6.4.6: x29 is 0. A return address stays in x30 until a function saves it. With
// pointer authentication the bits above the 48 of an address are its signature.
func arm64() *arch {
	return &arch{machine: elf.EM_AARCH64, page: 4096, registers: 33, sp: 31, pc: 32, fp: 29, saved: 0x7ff<<19 | 1<<30, code: 1<<48 - 1}
}

// stub is the row of a stub of the PLT on arm64, which leaves stack and return address alone.
func (a *arch) stub() row {
	return row{base: uint64(a.sp), cfa: rule{how: isOffset}, column: 30}
}

// inStub: the address is in a stub of the PLT of arm64, for which the linker writes no unwind table
// (binutils, bfd/elfnn-aarch64.c).
func (i *image) inStub(address uint64) bool {
	if i.arch.machine != elf.EM_AARCH64 || address&3 != 0 {
		return false
	}
	for before := range uint64(maxStub) {
		var code [4 * maxStub]byte
		n, err := i.readSome(address-4*before, code[:])
		if err == nil && stubLength(code[:n]) > before {
			return true
		}
	}
	return false
}

const maxStub = 6 // instructions

// stubLength is how many instructions of a stub are here, 0 where none is: bti c; adrp x16; ldr x17,
// [x16]; add x16, x16; autia1716; br x17. The first and autia1716 are in files made for them alone.
func stubLength(code []byte) uint64 {
	c := cursor{bytes: code}
	word := uint32(c.fixed(4))
	if word == 0xd503245f {
		word = uint32(c.fixed(4))
	}
	load, add := uint32(c.fixed(4)), uint32(c.fixed(4))
	if word&0x9f00001f != 0x90000010 || load&0xffc003ff != 0xf9400211 || add&0xffc003ff != 0x91000210 {
		return 0
	}
	if word = uint32(c.fixed(4)); word == 0xd503219f {
		word = uint32(c.fixed(4))
	}
	if c.bad || word != 0xd61f0220 {
		return 0
	}
	return uint64(c.at / 4)
}
