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
	// saved are the registers that a function gives back as it got them, where no rule says
	// otherwise: the others are lost.
	saved uint64
	// code clears the bits of a signed return address that are no address.
	code uint64
}

// System V ABI AMD64, figure 3.4: rbx, rbp, r12 to r15.
func amd64() *arch {
	return &arch{machine: elf.EM_X86_64, page: 4096, registers: 17, sp: 7, pc: 16, saved: 1<<3 | 1<<6 | 0xf<<12, code: 1<<57 - 1}
}

// AAPCS64, 6.1.1: x19 to x29. A return address stays in x30 until a function saves it. With
// pointer authentication the bits above the 48 of an address are its signature.
func arm64() *arch {
	return &arch{machine: elf.EM_AARCH64, page: 4096, registers: 33, sp: 31, pc: 32, saved: 0x7ff<<19 | 1<<30, code: 1<<48 - 1}
}
