/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The first arguments and the result of a function, for kprobes and uprobes.
 * Registers are ABI, not kernel layout: arch/x86/include/uapi/asm/ptrace.h and
 * arch/arm64/include/uapi/asm/ptrace.h. Compile with -target amd64,arm64.
 */
#ifndef TRACECORE_REGISTERS_H
#define TRACECORE_REGISTERS_H

#include "bpf.h"

#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#define first_argument(regs) ((regs)->di)
#define second_argument(regs) ((regs)->si)
#define third_argument(regs) ((regs)->dx)
#define fourth_argument(regs) ((regs)->cx)
#define fifth_argument(regs) ((regs)->r8)
#define sixth_argument(regs) ((regs)->r9)
/* Where the n-th argument on the stack lies at entry: above the return address
 * (System V ABI). */
#define stack_argument(regs, n) ((regs)->sp + 8 + 8 * (n))
#define return_value(regs) ((regs)->ax)

#elif defined(__TARGET_ARCH_arm64)

struct pt_regs {
	unsigned long regs[31], sp, pc, pstate;
};

#define first_argument(pt) ((pt)->regs[0])
#define second_argument(pt) ((pt)->regs[1])
#define third_argument(pt) ((pt)->regs[2])
#define fourth_argument(pt) ((pt)->regs[3])
#define fifth_argument(pt) ((pt)->regs[4])
#define sixth_argument(pt) ((pt)->regs[5])
#define seventh_argument(pt) ((pt)->regs[6])
#define return_value(pt) ((pt)->regs[0])

#else
#error "registers.h: compile with bpf2go -target amd64,arm64"
#endif

#endif
