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

#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V11 Y11
#define V12 Y12
#define V13 Y13
#define WIDTH 32
#define HALF  16

#define PAIR
#define ROUND(v) VROUNDPS $8, v, v
#define FOLD(op)

// Two factors, since 2^V1 alone may be no normal number; the first product is exact.
#define LDEXP \
	VCVTPS2DQ V1, V1;   \
	VPSRAD  $1, V1, V2; \
	VPSUBD  V2, V1, V1; \
	VPADDD  C_BIAS, V2, V2; \
	VPADDD  C_BIAS, V1, V1; \
	VPSLLD  $23, V2, V2; \
	VPSLLD  $23, V1, V1; \
	VMULPS  V2, V0, V0; \
	VMULPS  V1, V0, V0

// Constants are read from memory, eight of each.
#define LOADCONST
#define C_MIN    ·consts+0(SB)
#define C_MAX    ·consts+32(SB)
#define C_LOG2E  ·consts+64(SB)
#define C_LN2HI  ·consts+96(SB)
#define C_LN2LO  ·consts+128(SB)
#define C_C4     ·consts+160(SB)
#define C_C3     ·consts+192(SB)
#define C_C2     ·consts+224(SB)
#define C_C1     ·consts+256(SB)
#define C_C0     ·consts+288(SB)
#define C_ONE    ·consts+320(SB)
#define C_BIAS   ·consts+352(SB)
#define C_GELU1  ·consts+384(SB)
#define C_GELU3  ·consts+416(SB)

#define ELEMENTWISE ·elementwiseAVX2
#define ROTATE      ·rotateAVX2
#define WIDENBF16   ·widenBF16AVX2
#define WIDENF16    ·widenF16AVX2
#define NARROWF16   ·narrowF16AVX2
#define SCORES4     ·scores4AVX2
#define SCORES1     ·scores1AVX2
#define WEIGH       ·weighAVX2
#define WEIGHTED4   ·weighted4AVX2
#define WEIGHTED1   ·weighted1AVX2
#define DELTA       ·deltaAVX2

#include "exp_amd64.h"
#include "loops_amd64.h"
#include "attention_amd64.h"
#include "delta_amd64.h"
