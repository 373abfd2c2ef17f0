// Calls and the function called keep to the C calling convention (AAPCS64):
// arguments in R0 to R4, the result in R0.

#include "textflag.h"

TEXT refuse<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVWU R4, R0 // mov w0, w4: as in code_arm64.go
	RET

// func entry() uintptr
TEXT ·entry(SB), NOSPLIT, $0-8
	MOVD $refuse<>(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func callProp(function uintptr, address *uint64, size uint64, prop *Prop, result uintptr) uint32
TEXT ·callProp(SB), NOSPLIT, $16-44
	MOVD function+0(FP), R9
	MOVD address+8(FP), R0
	MOVD size+16(FP), R1
	MOVD prop+24(FP), R2
	MOVD $0, R3
	MOVD result+32(FP), R4
	CALL (R9)
	MOVW R0, ret+40(FP)
	RET

// func callPitch(function uintptr, address, pitch *uint64, width, rows uint64, result uintptr) uint32
TEXT ·callPitch(SB), NOSPLIT, $16-52
	MOVD function+0(FP), R9
	MOVD address+8(FP), R0
	MOVD pitch+16(FP), R1
	MOVD width+24(FP), R2
	MOVD rows+32(FP), R3
	MOVD result+40(FP), R4
	CALL (R9)
	MOVW R0, ret+48(FP)
	RET

// func call(function uintptr, registers *[8]uintptr, stack *[20]uintptr) uint32
TEXT ·call(SB), NOSPLIT, $16-28
	MOVD function+0(FP), R9
	MOVD registers+8(FP), R10
	MOVD 0(R10), R0
	MOVD 8(R10), R1
	MOVD 16(R10), R2
	MOVD 24(R10), R3
	MOVD 32(R10), R4
	MOVD 40(R10), R5
	MOVD 48(R10), R6
	MOVD 56(R10), R7
	CALL (R9)
	MOVW R0, ret+24(FP)
	RET
