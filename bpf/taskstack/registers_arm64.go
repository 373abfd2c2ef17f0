package taskstack

// DWARF numbers of the stack pointer and of the program counter.
const (
	sp = 31
	pc = 32
)

// modeMask finds the mode in pstate: 0 is 64-bit user space, bit 4 a 32-bit program
// (PSR_MODE_MASK, PSR_MODE32_BIT, arch/arm64/include/uapi/asm/ptrace.h).
const modeMask = 0x1f

// fromKernel takes the registers from struct user_pt_regs: x0 … x30 sp pc pstate. A kernel
// thread has none: its pc is 0.
func fromKernel(raw *[34]uint64) (r Registers) {
	if raw[33]&modeMask != 0 || raw[pc] == 0 {
		return Registers{}
	}
	for number := range r.Values {
		r.set(number, raw[number])
	}
	return r
}

// sampleMask asks perf for x0 … x29 lr sp pc (arch/arm64/include/uapi/asm/perf_regs.h).
const sampleMask = 1<<33 - 1

// fromSample takes the registers in the order of that mask.
func fromSample(raw []uint64) (r Registers) {
	for number := range r.Values {
		r.set(number, raw[number])
	}
	return r
}
