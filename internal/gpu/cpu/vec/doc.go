// SPDX-License-Identifier: MIT OR Apache-2.0

// Package vec holds the vector loops of the CPU class over float32 slices, and the plain Go that says what they compute:
// elementwise functions, conversions, and the inner steps of attention and of the delta rule.
//
// Contract:
//
//  1. A Level is a path: Go, AVX2 or AVX512. Best picks the highest that the processor has; Parse reads a lever's value.
//  2. Elementwise functions give an element the same bits wherever it lies in a slice and however long the slice is (tails
//     run through the same vector code in a padded block), so callers may cut work anywhere. AVX2 and AVX512 agree bit for
//     bit there; Go differs from them in the last bits, since it fuses no multiply-add.
//  3. Reductions depend on the slice's length only. Their order is the path's own.
//  4. Exp is within 1 ulp of the real value on its normal range, gives 0 below -104 and +Inf above 88.73, and keeps NaN.
//     Sigmoid and silu follow from it with one rounding per operation: within 4 ulp of the result; gelu_tanh within 4 ulp
//     of its argument, as the tests check.
//  5. Slices of one call have equal length; dst may be one of the sources, or must not overlap them.
package vec
