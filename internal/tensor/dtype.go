// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import "fmt"

// DType is the stored format of an array's elements.
type DType uint8

const (
	None DType = iota
	Bool
	U8
	I8
	I16
	I32
	I64
	F16
	BF16
	F32
	F64
	E4M3 // float8_e4m3fn: no infinity, max 448
	E5M2 // float8_e5m2
	E8M0 // power-of-two scale, 2^(e-127); 0xFF is NaN
	E2M1 // float4, two to a byte, element 2i in the low nibble

	// GGUF block formats (ggml's names; layouts in weights/gguf).
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_NL
	MXFP4 // 32 E2M1 in ggml's order with one E8M0

	// Block formats of safetensors checkpoints, made of values and their scales (layouts in weights).
	INT4_B32  // 32 int4 in ggml's order with one BF16
	NVFP4     // 16 E2M1 with one E4M3
	E4M3_B32  // 32 E4M3 with one F32
	E4M3_B128 // 128 E4M3 with one F32

	numDTypes
)

// dtypes gives each format its name, and its block as elements and bytes.
var dtypes = [numDTypes]struct {
	name         string
	elems, bytes int
}{
	None: {"none", 1, 0}, Bool: {"bool", 1, 1}, U8: {"u8", 1, 1}, I8: {"i8", 1, 1}, I16: {"i16", 1, 2}, I32: {"i32", 1, 4},
	I64: {"i64", 1, 8}, F16: {"f16", 1, 2}, BF16: {"bf16", 1, 2}, F32: {"f32", 1, 4}, F64: {"f64", 1, 8}, E4M3: {"e4m3", 1, 1},
	E5M2: {"e5m2", 1, 1}, E8M0: {"e8m0", 1, 1}, E2M1: {"e2m1", 2, 1},
	Q4_0: {"q4_0", 32, 18}, Q4_1: {"q4_1", 32, 20}, Q5_0: {"q5_0", 32, 22}, Q5_1: {"q5_1", 32, 24}, Q8_0: {"q8_0", 32, 34},
	Q2_K: {"q2_k", 256, 84}, Q3_K: {"q3_k", 256, 110}, Q4_K: {"q4_k", 256, 144}, Q5_K: {"q5_k", 256, 176}, Q6_K: {"q6_k", 256, 210},
	IQ4_NL: {"iq4_nl", 32, 18}, MXFP4: {"mxfp4", 32, 17},
	INT4_B32: {"int4_b32", 32, 18}, NVFP4: {"nvfp4", 16, 9}, E4M3_B32: {"e4m3_b32", 32, 36}, E4M3_B128: {"e4m3_b128", 128, 132},
}

// String is the lower-case name, as plans and manifests write it.
func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// ParseDType reads a name that String writes.
func ParseDType(s string) (DType, bool) {
	for d, t := range dtypes {
		if t.name == s && d != int(None) {
			return DType(d), true
		}
	}
	return None, false
}

// Block is the number of elements in a block and of bytes that it takes. Plain types have blocks of one element.
func (d DType) Block() (elems, bytes int) { return dtypes[d].elems, dtypes[d].bytes }

// Bits is how many whole bits an element takes in the mean: 4 of NVFP4, scales included.
func (d DType) Bits() int64 { return int64(8 * dtypes[d].bytes / max(1, dtypes[d].elems)) }

// Integers says whether values are small integers times the scales of their blocks, as integer dot products want them.
func (d DType) Integers() bool { return d >= Q4_0 && d <= NVFP4 }

// Bytes is the size of n elements; n must be whole blocks.
func (d DType) Bytes(n int64) int64 {
	t := dtypes[d]
	if n%int64(t.elems) != 0 {
		panic(fmt.Sprintf("tensor: %d elements are no whole blocks of %v", n, d))
	}
	return n / int64(t.elems) * int64(t.bytes)
}

// Shape is the extent of each axis, outermost first, row-major.
type Shape []int64

// Elems is the number of elements; a scalar (no axes) has one.
func (s Shape) Elems() int64 {
	n := int64(1)
	for _, d := range s {
		n *= d
	}
	return n
}

// Equal says whether both have the same axes.
func (s Shape) Equal(o Shape) bool {
	if len(s) != len(o) {
		return false
	}
	for i := range s {
		if s[i] != o[i] {
			return false
		}
	}
	return true
}

// String is [2 3].
func (s Shape) String() string { return fmt.Sprint([]int64(s)) }

// Info describes a named tensor, as of a checkpoint.
type Info struct {
	Name  string
	DType DType
	Shape Shape // row-major, [out, in] for a linear layer
}

// Size is the number of its bytes.
func (i Info) Size() int64 { return i.DType.Bytes(i.Shape.Elems()) }
