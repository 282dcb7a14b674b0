// SPDX-License-Identifier: MIT OR Apache-2.0

// The bodies in *_amd64.h are written once for both paths. The including file defines
//
//	V0 … V13       vector registers
//	WIDTH          bytes of a vector
//	HALF           bytes of as many 16-bit elements
//	PAIR           defined if sixteen elements are two vectors
//	LOADCONST      brings the constants C… into their operands
//	ROUND(v)       rounds to integers, ties to even
//	LDEXP          V0 *= 2^V1, V1 whole; may use V2. Rounds once, also into subnormals
//	FOLD(op)       joins the upper half of V0 with its lower by op, if it is wider than 32 bytes
//	C…             constants, as register or memory operands
//
// and the names of the functions.

// EXP turns V0 into exp(V0): see act.go for the algorithm. Uses V1 and V2.
#define EXP \
	VMOVUPS C_MIN, V1;             \
	VMAXPS  V0, V1, V0;            \
	VMOVUPS C_MAX, V1;             \
	VMINPS  V0, V1, V0;            \
	VMULPS  C_LOG2E, V0, V1;       \
	ROUND(V1);                     \
	VFNMADD231PS C_LN2HI, V1, V0;  \
	VFNMADD231PS C_LN2LO, V1, V0;  \
	VMOVUPS C_C4, V2;              \
	VFMADD213PS C_C3, V0, V2;      \
	VFMADD213PS C_C2, V0, V2;      \
	VFMADD213PS C_C1, V0, V2;      \
	VFMADD213PS C_C0, V0, V2;      \
	VMULPS  V0, V2, V2;            \
	VFMADD213PS V0, V0, V2;        \
	VADDPS  C_ONE, V2, V0;         \
	LDEXP

// FOLDALL joins the elements of V0 by op and its scalar form into X0. Uses X1.
#define FOLDALL(op, ops) \
	FOLD(op);                   \
	VEXTRACTF128 $1, Y0, X1;    \
	op       X1, X0, X0;        \
	VMOVHLPS X0, X0, X1;        \
	op       X1, X0, X0;        \
	VMOVSHDUP X0, X1;           \
	ops      X1, X0, X0
