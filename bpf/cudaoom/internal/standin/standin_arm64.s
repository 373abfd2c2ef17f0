// Calls and the function called keep to the C calling convention (AAPCS64):
// arguments in R0 to R4, the result in R0.

#include "textflag.h"

TEXT refuse<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVW R4, R0
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
