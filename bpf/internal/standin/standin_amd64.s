// Calls and the function called keep to the C calling convention (System V ABI):
// arguments in DI, SI, DX, CX, R8, the result in AX.

#include "textflag.h"

// endbr64; push %rbp; mov %r8d, %eax; pop %rbp; ret: as compilers begin a function.
TEXT refuse<>(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0xf3; BYTE $0x0f; BYTE $0x1e; BYTE $0xfa
	BYTE $0x55
	BYTE $0x44; BYTE $0x89; BYTE $0xc0
	BYTE $0x5d
	BYTE $0xc3

// func entry() uintptr
TEXT ·entry(SB), NOSPLIT, $0-8
	LEAQ refuse<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func callProp(function uintptr, address *uint64, size uint64, prop *Prop, result uintptr) uint32
TEXT ·callProp(SB), NOSPLIT, $8-44
	MOVQ function+0(FP), AX
	MOVQ address+8(FP), DI
	MOVQ size+16(FP), SI
	MOVQ prop+24(FP), DX
	MOVQ $0, CX
	MOVQ result+32(FP), R8
	CALL AX
	MOVL AX, ret+40(FP)
	RET

// func callPitch(function uintptr, address, pitch *uint64, width, rows uint64, result uintptr) uint32
TEXT ·callPitch(SB), NOSPLIT, $8-52
	MOVQ function+0(FP), AX
	MOVQ address+8(FP), DI
	MOVQ pitch+16(FP), SI
	MOVQ width+24(FP), DX
	MOVQ rows+32(FP), CX
	MOVQ result+40(FP), R8
	CALL AX
	MOVL AX, ret+48(FP)
	RET

// func call(function uintptr, registers *[8]uintptr, stack *[20]uintptr) uint32
TEXT ·call(SB), NOSPLIT, $168-28
	MOVQ stack+16(FP), R11
	XORL CX, CX
copy:
	MOVQ (R11)(CX*8), AX
	MOVQ AX, 0(SP)(CX*8)
	INCQ CX
	CMPQ CX, $20
	JLT  copy
	MOVQ registers+8(FP), R11
	MOVQ function+0(FP), AX
	MOVQ 0(R11), DI
	MOVQ 8(R11), SI
	MOVQ 16(R11), DX
	MOVQ 24(R11), CX
	MOVQ 32(R11), R8
	MOVQ 40(R11), R9
	CALL AX
	MOVL AX, ret+24(FP)
	RET
