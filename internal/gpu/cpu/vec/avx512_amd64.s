// SPDX-License-Identifier: MIT OR Apache-2.0

#include "textflag.h"

// Numbers of the operations: op in simd_amd64.go.
#define OP_ADD      0
#define OP_SCALE    1
#define OP_SCALEMUL 2
#define OP_MUL      3
#define OP_MULADD   4
#define OP_EXP      5
#define OP_SIGMOID  6
#define OP_SILU     7
#define OP_GELU     8

#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V11 Z11
#define V12 Z12
#define V13 Z13
#define WIDTH 64
#define HALF  32

#define ROUND(v) VRNDSCALEPS $8, v, v
#define LDEXP    VSCALEFPS V1, V0, V0
#define FOLD(op) \
	VEXTRACTF64X4 $1, Z0, Y1; \
	op Y1, Y0, Y0

// Constants stay in registers.
#define C_MIN    Z16
#define C_MAX    Z17
#define C_LOG2E  Z18
#define C_LN2HI  Z19
#define C_LN2LO  Z20
#define C_C4     Z21
#define C_C3     Z22
#define C_C2     Z23
#define C_C1     Z24
#define C_C0     Z25
#define C_ONE    Z26
#define C_BIAS   Z27
#define C_GELU1  Z28
#define C_GELU3  Z29

#define LOADCONST \
	VBROADCASTSS ·consts+0(SB), C_MIN; \
	VBROADCASTSS ·consts+32(SB), C_MAX; \
	VBROADCASTSS ·consts+64(SB), C_LOG2E; \
	VBROADCASTSS ·consts+96(SB), C_LN2HI; \
	VBROADCASTSS ·consts+128(SB), C_LN2LO; \
	VBROADCASTSS ·consts+160(SB), C_C4; \
	VBROADCASTSS ·consts+192(SB), C_C3; \
	VBROADCASTSS ·consts+224(SB), C_C2; \
	VBROADCASTSS ·consts+256(SB), C_C1; \
	VBROADCASTSS ·consts+288(SB), C_C0; \
	VBROADCASTSS ·consts+320(SB), C_ONE; \
	VBROADCASTSS ·consts+352(SB), C_BIAS; \
	VBROADCASTSS ·consts+384(SB), C_GELU1; \
	VBROADCASTSS ·consts+416(SB), C_GELU3

#define ELEMENTWISE ·elementwiseAVX512
#define ROTATE      ·rotateAVX512
#define WIDENBF16   ·widenBF16AVX512
#define WIDENF16    ·widenF16AVX512
#define NARROWF16   ·narrowF16AVX512
#define SCORES4     ·scores4AVX512
#define SCORES1     ·scores1AVX512
#define WEIGH       ·weighAVX512
#define WEIGHTED4   ·weighted4AVX512
#define WEIGHTED1   ·weighted1AVX512
#define DELTA       ·deltaAVX512

#include "exp_amd64.h"
#include "loops_amd64.h"
#include "attention_amd64.h"
#include "delta_amd64.h"
