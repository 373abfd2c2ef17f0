// Calls and the function called keep to the C calling convention (System V ABI):
// arguments in DI, SI, DX, CX, R8, the result in AX.

#include "textflag.h"

TEXT refuse<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVL R8, AX
	RET

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
