// SPDX-License-Identifier: MIT OR Apache-2.0

// Package tensor holds the words for arrays of numbers: element types (whole bytes, packed sub-byte and block formats),
// shapes, and exact conversions between number formats.
//
// Contract:
//
//  1. A DType tells how many elements make a block and how many bytes a block takes, so the size of any array is known
//     without knowing its format's inside. Rows are never split inside a block: blocks run along the last axis.
//  2. Conversions round to nearest, ties to even, and are byte-exact with PyTorch (testdata holds its vectors).
//  3. Nothing here allocates per element, and nothing here knows a file or a device.
package tensor
