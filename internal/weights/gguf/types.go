// SPDX-License-Identifier: MIT OR Apache-2.0

package gguf

import "github.com/metrale/metrale/internal/tensor"

// types are GGUF's numbers for tensor element types. One without dtype is known by name, and refused.
var types = map[uint32]struct {
	name  string
	dtype tensor.DType
}{
	0: {"F32", tensor.F32}, 1: {"F16", tensor.F16}, 30: {"BF16", tensor.BF16}, 28: {"F64", tensor.F64},
	24: {"I8", tensor.I8}, 25: {"I16", tensor.I16}, 26: {"I32", tensor.I32}, 27: {"I64", tensor.I64},
	2: {"Q4_0", tensor.Q4_0}, 3: {"Q4_1", tensor.Q4_1}, 6: {"Q5_0", tensor.Q5_0}, 7: {"Q5_1", tensor.Q5_1}, 8: {"Q8_0", tensor.Q8_0},
	10: {"Q2_K", tensor.Q2_K}, 11: {"Q3_K", tensor.Q3_K}, 12: {"Q4_K", tensor.Q4_K}, 13: {"Q5_K", tensor.Q5_K}, 14: {"Q6_K", tensor.Q6_K},
	20: {"IQ4_NL", tensor.IQ4_NL}, 39: {"MXFP4", tensor.MXFP4},
	9: {name: "Q8_1"}, 15: {name: "Q8_K"}, 16: {name: "IQ2_XXS"}, 17: {name: "IQ2_XS"}, 18: {name: "IQ3_XXS"}, 19: {name: "IQ1_S"},
	21: {name: "IQ3_S"}, 22: {name: "IQ2_S"}, 23: {name: "IQ4_XS"}, 29: {name: "IQ1_M"}, 34: {name: "TQ1_0"}, 35: {name: "TQ2_0"},
	40: {name: "NVFP4"}, 41: {name: "Q1_0"},
}

// Numbers of metadata value types.
const (
	vUint8 = iota
	vInt8
	vUint16
	vInt16
	vUint32
	vInt32
	vFloat32
	vBool
	vString
	vArray
	vUint64
	vInt64
	vFloat64
)

// valueSize is the size of a scalar, and the least size of a string or an array, in bytes; 0 for an unknown type.
func valueSize(t uint32) int64 {
	switch t {
	case vUint8, vInt8, vBool:
		return 1
	case vUint16, vInt16:
		return 2
	case vUint32, vInt32, vFloat32:
		return 4
	case vUint64, vInt64, vFloat64, vString:
		return 8
	case vArray:
		return 12
	}
	return 0
}
