// SPDX-License-Identifier: MIT OR Apache-2.0

// Inner steps of attention. A row of scores has stride elements.

// ROW adds one broadcast element times two vectors: a0 += *mem * V8, a1 += *mem * V9. Uses t.
#define ROW(mem, t, a0, a1) \
	VBROADCASTSS mem, t;     \
	VFMADD231PS V8, t, a0;   \
	VFMADD231PS V9, t, a1

// func scores4(s *float32, stride int, q0, q1, q2, q3, k0, k1 *float32, dim int)
//
// Four queries by two vectors of keys, dimension by dimension.
TEXT SCORES4(SB), NOSPLIT, $0-72
	MOVQ q0+16(FP), AX
	MOVQ q1+24(FP), BX
	MOVQ q2+32(FP), DX
	MOVQ q3+40(FP), R8
	MOVQ k0+48(FP), SI
	MOVQ k1+56(FP), DI
	MOVQ dim+64(FP), CX
	XORQ R9, R9
	VXORPS V0, V0, V0
	VXORPS V1, V1, V1
	VXORPS V2, V2, V2
	VXORPS V3, V3, V3
	VXORPS V4, V4, V4
	VXORPS V5, V5, V5
	VXORPS V6, V6, V6
	VXORPS V7, V7, V7
dims:
	VMOVUPS (SI), V8
	VMOVUPS (DI), V9
	ROW((AX)(R9*4), V10, V0, V1)
	ROW((BX)(R9*4), V11, V2, V3)
	ROW((DX)(R9*4), V12, V4, V5)
	ROW((R8)(R9*4), V13, V6, V7)
	ADDQ $64, SI
	ADDQ $64, DI
	INCQ R9
	CMPQ R9, CX
	JLT  dims
	MOVQ s+0(FP), DI
	MOVQ stride+8(FP), CX
	SHLQ $2, CX
	VMOVUPS V0, (DI)
	VMOVUPS V1, WIDTH(DI)
	ADDQ CX, DI
	VMOVUPS V2, (DI)
	VMOVUPS V3, WIDTH(DI)
	ADDQ CX, DI
	VMOVUPS V4, (DI)
	VMOVUPS V5, WIDTH(DI)
	ADDQ CX, DI
	VMOVUPS V6, (DI)
	VMOVUPS V7, WIDTH(DI)
	VZEROUPPER
	RET

// func scores1(s, q, k0, k1, k2, k3 *float32, dim int)
//
// One query by four vectors of keys.
TEXT SCORES1(SB), NOSPLIT, $0-56
	MOVQ q+8(FP), AX
	MOVQ k0+16(FP), SI
	MOVQ k1+24(FP), DI
	MOVQ k2+32(FP), R8
	MOVQ k3+40(FP), R9
	MOVQ dim+48(FP), CX
	XORQ BX, BX
	VXORPS V0, V0, V0
	VXORPS V1, V1, V1
	VXORPS V2, V2, V2
	VXORPS V3, V3, V3
dim1:
	VBROADCASTSS (AX), V4
	VFMADD231PS (SI)(BX*1), V4, V0
	VFMADD231PS (DI)(BX*1), V4, V1
	VFMADD231PS (R8)(BX*1), V4, V2
	VFMADD231PS (R9)(BX*1), V4, V3
	ADDQ $4, AX
	ADDQ $64, BX
	DECQ CX
	JNZ  dim1
	MOVQ s+0(FP), DI
	VMOVUPS V0, (DI)
	VMOVUPS V1, WIDTH(DI)
	VMOVUPS V2, (2*WIDTH)(DI)
	VMOVUPS V3, (3*WIDTH)(DI)
	VZEROUPPER
	RET

// func weigh(s *float32, n int, scale, top float32, sum *float32) (newTop, alpha float32)
//
// newTop = max(top, max(s)*scale); s = exp(s*scale - newTop); alpha = exp(top - newTop); sum[16] = sum*alpha + s by lanes.
// n is a positive multiple of 16, scale positive. Scores of -Inf become 0.
TEXT WEIGH(SB), NOSPLIT, $0-40
	MOVQ s+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ sum+24(FP), DX
	SHLQ $2, CX
	LOADCONST
	MOVQ DI, SI
	MOVQ CX, BX
	VMOVUPS (SI), V0
max:
	VMAXPS (SI), V0, V0
	ADDQ $WIDTH, SI
	SUBQ $WIDTH, BX
	JNZ  max
	FOLDALL(VMAXPS, VMAXSS)
	VMULSS scale+16(FP), X0, X0
	VMAXSS top+20(FP), X0, X0
	VMOVSS X0, newTop+32(FP)
	VBROADCASTSS newTop+32(FP), V4
	VBROADCASTSS scale+16(FP), V3
	VBROADCASTSS top+20(FP), V0
	VSUBPS V4, V0, V0
	EXP
	VMOVSS X0, alpha+36(FP)
	VMULPS (DX), V0, V6
#ifdef PAIR
	VMULPS WIDTH(DX), V0, V7
#endif
weights:
	VMOVUPS (DI), V0
	VFMSUB213PS V4, V3, V0
	EXP
	VMOVUPS V0, (DI)
	VADDPS V0, V6, V6
#ifdef PAIR
	VMOVUPS WIDTH(DI), V0
	VFMSUB213PS V4, V3, V0
	EXP
	VMOVUPS V0, WIDTH(DI)
	VADDPS V0, V7, V7
#endif
	ADDQ $64, DI
	SUBQ $64, CX
	JNZ  weights
	VMOVUPS V6, (DX)
#ifdef PAIR
	VMOVUPS V7, WIDTH(DX)
#endif
	VZEROUPPER
	RET

// func weighted4(o *float32, ostride int, p *float32, pstride int, alpha *float32, v *[]float32, keys, dim int)
//
// o[r] = o[r]*alpha[r] + Σ p[r][j] v[j] for four rows, key by key. v are the blocks of sixteen keys, each [16][dim]; dim is a
// multiple of 16 and keys positive. Registers:
//
//	R12 column   AX o at it, rows BX apart (DX = 3 BX)   SI p, rows R10 apart (R11 = 3 R10)
//	R9 block     DI v at key and column, keys R8 apart    CX keys left, R13 in the block
TEXT WEIGHTED4(SB), NOSPLIT, $0-64
	MOVQ o+0(FP), AX
	MOVQ ostride+8(FP), BX
	MOVQ pstride+24(FP), R10
	MOVQ dim+56(FP), R8
	SHLQ $2, BX
	SHLQ $2, R10
	SHLQ $2, R8
	LEAQ (BX)(BX*2), DX
	LEAQ (R10)(R10*2), R11
	XORQ R12, R12

columns:
	MOVQ R8, CX
	SUBQ R12, CX
	CMPQ CX, $(2*WIDTH)
	JLT  last
	MOVQ alpha+32(FP), SI
	VBROADCASTSS (SI), V10
	VBROADCASTSS 4(SI), V11
	VBROADCASTSS 8(SI), V12
	VBROADCASTSS 12(SI), V13
	VMULPS (AX), V10, V0
	VMULPS WIDTH(AX), V10, V1
	VMULPS (AX)(BX*1), V11, V2
	VMULPS WIDTH(AX)(BX*1), V11, V3
	VMULPS (AX)(BX*2), V12, V4
	VMULPS WIDTH(AX)(BX*2), V12, V5
	VMULPS (AX)(DX*1), V13, V6
	VMULPS WIDTH(AX)(DX*1), V13, V7
	MOVQ p+16(FP), SI
	MOVQ v+40(FP), R9
	MOVQ keys+48(FP), CX
block:
	MOVQ (R9), DI
	ADDQ R12, DI
	ADDQ $24, R9
	MOVQ $16, R13
	CMPQ CX, R13
	CMOVQLT CX, R13
	SUBQ R13, CX
key:
	VMOVUPS (DI), V8
	VMOVUPS WIDTH(DI), V9
	ROW((SI), V10, V0, V1)
	ROW((SI)(R10*1), V11, V2, V3)
	ROW((SI)(R10*2), V12, V4, V5)
	ROW((SI)(R11*1), V13, V6, V7)
	ADDQ R8, DI
	ADDQ $4, SI
	DECQ R13
	JNZ  key
	TESTQ CX, CX
	JNZ  block
	VMOVUPS V0, (AX)
	VMOVUPS V1, WIDTH(AX)
	VMOVUPS V2, (AX)(BX*1)
	VMOVUPS V3, WIDTH(AX)(BX*1)
	VMOVUPS V4, (AX)(BX*2)
	VMOVUPS V5, WIDTH(AX)(BX*2)
	VMOVUPS V6, (AX)(DX*1)
	VMOVUPS V7, WIDTH(AX)(DX*1)
	ADDQ $(2*WIDTH), AX
	ADDQ $(2*WIDTH), R12
	JMP  columns

last: // one vector of columns, or none
	TESTQ CX, CX
	JZ   done4
	MOVQ alpha+32(FP), SI
	VBROADCASTSS (SI), V10
	VBROADCASTSS 4(SI), V11
	VBROADCASTSS 8(SI), V12
	VBROADCASTSS 12(SI), V13
	VMULPS (AX), V10, V0
	VMULPS (AX)(BX*1), V11, V2
	VMULPS (AX)(BX*2), V12, V4
	VMULPS (AX)(DX*1), V13, V6
	MOVQ p+16(FP), SI
	MOVQ v+40(FP), R9
	MOVQ keys+48(FP), CX
lastblock:
	MOVQ (R9), DI
	ADDQ R12, DI
	ADDQ $24, R9
	MOVQ $16, R13
	CMPQ CX, R13
	CMOVQLT CX, R13
	SUBQ R13, CX
lastkey:
	VMOVUPS (DI), V8
	VBROADCASTSS (SI), V10
	VBROADCASTSS (SI)(R10*1), V11
	VBROADCASTSS (SI)(R10*2), V12
	VBROADCASTSS (SI)(R11*1), V13
	VFMADD231PS V8, V10, V0
	VFMADD231PS V8, V11, V2
	VFMADD231PS V8, V12, V4
	VFMADD231PS V8, V13, V6
	ADDQ R8, DI
	ADDQ $4, SI
	DECQ R13
	JNZ  lastkey
	TESTQ CX, CX
	JNZ  lastblock
	VMOVUPS V0, (AX)
	VMOVUPS V2, (AX)(BX*1)
	VMOVUPS V4, (AX)(BX*2)
	VMOVUPS V6, (AX)(DX*1)
done4:
	VZEROUPPER
	RET

// func weighted1(o, p *float32, alpha float32, v *[]float32, keys, dim int)
//
// The same for one row, by four vectors of columns, then by one.
TEXT WEIGHTED1(SB), NOSPLIT, $0-48
	MOVQ o+0(FP), AX
	MOVQ dim+40(FP), R8
	SHLQ $2, R8
	XORQ R12, R12
	VBROADCASTSS alpha+16(FP), V10

columns4:
	MOVQ R8, CX
	SUBQ R12, CX
	CMPQ CX, $(4*WIDTH)
	JLT  column1
	VMULPS (AX), V10, V0
	VMULPS WIDTH(AX), V10, V1
	VMULPS (2*WIDTH)(AX), V10, V2
	VMULPS (3*WIDTH)(AX), V10, V3
	MOVQ p+8(FP), SI
	MOVQ v+24(FP), R9
	MOVQ keys+32(FP), CX
block4:
	MOVQ (R9), DI
	ADDQ R12, DI
	ADDQ $24, R9
	MOVQ $16, R13
	CMPQ CX, R13
	CMOVQLT CX, R13
	SUBQ R13, CX
key4:
	VBROADCASTSS (SI), V8
	VFMADD231PS (DI), V8, V0
	VFMADD231PS WIDTH(DI), V8, V1
	VFMADD231PS (2*WIDTH)(DI), V8, V2
	VFMADD231PS (3*WIDTH)(DI), V8, V3
	ADDQ R8, DI
	ADDQ $4, SI
	DECQ R13
	JNZ  key4
	TESTQ CX, CX
	JNZ  block4
	VMOVUPS V0, (AX)
	VMOVUPS V1, WIDTH(AX)
	VMOVUPS V2, (2*WIDTH)(AX)
	VMOVUPS V3, (3*WIDTH)(AX)
	ADDQ $(4*WIDTH), AX
	ADDQ $(4*WIDTH), R12
	JMP  columns4

column1:
	TESTQ CX, CX
	JZ   done1
	VMULPS (AX), V10, V0
	MOVQ p+8(FP), SI
	MOVQ v+24(FP), R9
	MOVQ keys+32(FP), CX
block1:
	MOVQ (R9), DI
	ADDQ R12, DI
	ADDQ $24, R9
	MOVQ $16, R13
	CMPQ CX, R13
	CMOVQLT CX, R13
	SUBQ R13, CX
key1:
	VBROADCASTSS (SI), V8
	VFMADD231PS (DI), V8, V0
	ADDQ R8, DI
	ADDQ $4, SI
	DECQ R13
	JNZ  key1
	TESTQ CX, CX
	JNZ  block1
	VMOVUPS V0, (AX)
	ADDQ $WIDTH, AX
	ADDQ $WIDTH, R12
	MOVQ R8, CX
	SUBQ R12, CX
	JMP  column1
done1:
	VZEROUPPER
	RET
