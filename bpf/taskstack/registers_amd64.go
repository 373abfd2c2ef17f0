package taskstack

// DWARF numbers of the stack pointer and of the program counter.
const (
	sp = 7
	pc = 16
)

// userCode is the code segment of 64-bit user space (__USER_CS, arch/x86/include/asm/segment.h);
// 32-bit programs have another, kernel threads none.
const userCode = 0x33

// fromKernel takes the registers from struct pt_regs (arch/x86/include/uapi/asm/ptrace.h):
// r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss.
func fromKernel(raw *[21]uint64) (r Registers) {
	if raw[17]&0xffff != userCode { // since 6.9 FRED has other things in its upper half
		return Registers{}
	}
	for number, at := range [...]int{10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16} {
		r.set(number, raw[at])
	}
	return r
}

// sampleMask asks perf for ax bx cx dx si di bp sp ip r8 … r15
// (arch/x86/include/uapi/asm/perf_regs.h).
const sampleMask = 0xff01ff

// fromSample takes the registers in the order of that mask.
func fromSample(raw []uint64) (r Registers) {
	for number, at := range [...]int{0, 3, 2, 1, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 8} {
		r.set(number, raw[at])
	}
	return r
}
