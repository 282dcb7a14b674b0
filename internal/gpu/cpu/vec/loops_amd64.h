// SPDX-License-Identifier: MIT OR Apache-2.0

// Elementwise loops and reductions. n is a multiple of 16 elements. Registers:
//
//	DI dst   SI x   DX y   CX bytes left   R8 step of y

// NEXT moves on by a vector and loops.
#define NEXT(loop) \
	ADDQ $WIDTH, DI; \
	ADDQ $WIDTH, SI; \
	ADDQ R8, DX; \
	SUBQ $WIDTH, CX; \
	JNZ  loop

// func elementwise(op op, dst, x, y *float32, n int, s, b float32)
TEXT ELEMENTWISE(SB), NOSPLIT, $0-48
	MOVQ op+0(FP), AX
	MOVQ dst+8(FP), DI
	MOVQ x+16(FP), SI
	MOVQ y+24(FP), DX
	MOVQ n+32(FP), CX
	SHLQ $2, CX
	MOVQ $WIDTH, R8
	CMPQ AX, $OP_EXP
	JLT  plain
	LOADCONST
	VXORPS V6, V6, V6
	CMPQ AX, $OP_EXP
	JEQ  exp
	TESTQ DX, DX
	JNZ  acts
	LEAQ ·ones(SB), DX
	XORQ R8, R8
acts:
	CMPQ AX, $OP_SIGMOID
	JEQ  sigmoid
	CMPQ AX, $OP_SILU
	JEQ  silu

gelu:
	VMOVUPS (SI), V4
	VMULPS  V4, V4, V0
	VMOVUPS C_GELU3, V1
	VFMADD213PS C_GELU1, V1, V0
	VMULPS  V4, V0, V0
	EXP
	VADDPS  C_ONE, V0, V0
	VDIVPS  V0, V4, V0
	VMULPS  (DX), V0, V0
	VMOVUPS V0, (DI)
	NEXT(gelu)
	JMP done

silu:
	VMOVUPS (SI), V4
	VSUBPS  V4, V6, V0
	EXP
	VADDPS  C_ONE, V0, V0
	VDIVPS  V0, V4, V0
	VMULPS  (DX), V0, V0
	VMOVUPS V0, (DI)
	NEXT(silu)
	JMP done

sigmoid:
	VMOVUPS (SI), V4
	VSUBPS  V4, V6, V0
	EXP
	VMOVUPS C_ONE, V1
	VADDPS  V1, V0, V0
	VDIVPS  V0, V1, V0
	VMULPS  (DX), V0, V0
	VMOVUPS V0, (DI)
	NEXT(sigmoid)
	JMP done

exp:
	VMOVUPS (SI), V0
	EXP
	VMOVUPS V0, (DI)
	NEXT(exp)
	JMP done

plain:
	VBROADCASTSS s+40(FP), V4
	VBROADCASTSS b+44(FP), V5
	CMPQ AX, $OP_ADD
	JEQ  add
	CMPQ AX, $OP_SCALE
	JEQ  scale
	CMPQ AX, $OP_SCALEMUL
	JEQ  scalemul
	CMPQ AX, $OP_MUL
	JEQ  mul

muladd:
	VMOVUPS (SI), V0
	VMOVUPS (DI), V1
	VFMADD231PS (DX), V0, V1
	VMOVUPS V1, (DI)
	NEXT(muladd)
	JMP done

mul:
	VMOVUPS (SI), V0
	VMULPS  (DX), V0, V0
	VMOVUPS V0, (DI)
	NEXT(mul)
	JMP done

add:
	VMOVUPS (DI), V0
	VADDPS  (SI), V0, V0
	VMOVUPS V0, (DI)
	NEXT(add)
	JMP done

scale:
	VMULPS  (SI), V4, V0
	VMOVUPS V0, (DI)
	NEXT(scale)
	JMP done

scalemul:
	VMULPS  (SI), V4, V0
	VADDPS  (DX), V5, V1
	VMULPS  V1, V0, V0
	VMOVUPS V0, (DI)
	NEXT(scalemul)

done:
	VZEROUPPER
	RET

// func rotate(a, b, cos, sin *float32, n int)
TEXT ROTATE(SB), NOSPLIT, $0-40
	MOVQ a+0(FP), DI
	MOVQ b+8(FP), SI
	MOVQ cos+16(FP), DX
	MOVQ sin+24(FP), R9
	MOVQ n+32(FP), CX
	SHLQ $2, CX
	MOVQ $WIDTH, R8
rotate:
	VMOVUPS (DI), V0
	VMOVUPS (SI), V1
	VMOVUPS (DX), V2
	VMOVUPS (R9), V3
	VMULPS  V2, V0, V4
	VMULPS  V3, V1, V5
	VSUBPS  V5, V4, V4
	VMULPS  V2, V1, V1
	VMULPS  V3, V0, V0
	VADDPS  V0, V1, V1
	VMOVUPS V4, (DI)
	VMOVUPS V1, (SI)
	ADDQ $WIDTH, R9
	NEXT(rotate)
	VZEROUPPER
	RET

// func widenBF16(dst *float32, x *uint16, n int)
TEXT WIDENBF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	SHLQ $2, CX
bf16:
	VPMOVZXWD (SI), V0
	VPSLLD  $16, V0, V0
	VMOVUPS V0, (DI)
	ADDQ $WIDTH, DI
	ADDQ $HALF, SI
	SUBQ $WIDTH, CX
	JNZ  bf16
	VZEROUPPER
	RET

// func widenF16(dst *float32, x *uint16, n int)
TEXT WIDENF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	SHLQ $2, CX
f16:
	VCVTPH2PS (SI), V0
	VMOVUPS V0, (DI)
	ADDQ $WIDTH, DI
	ADDQ $HALF, SI
	SUBQ $WIDTH, CX
	JNZ  f16
	VZEROUPPER
	RET

// func narrowF16(dst *uint16, x *float32, n int)
TEXT NARROWF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	SHLQ $2, CX
tof16:
	VMOVUPS (SI), V0
	VCVTPS2PH $0, V0, (DI)
	ADDQ $HALF, DI
	ADDQ $WIDTH, SI
	SUBQ $WIDTH, CX
	JNZ  tof16
	VZEROUPPER
	RET
