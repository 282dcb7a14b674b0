// SPDX-License-Identifier: MIT OR Apache-2.0

// Package safetensors reads and writes the safetensors format.
//
//	file   ┌─────────────┬──────────────────┬───────────────────────────────┐
//	       │ N, u64 LE   │ N bytes of JSON  │ data: tensors back to back    │
//	       └─────────────┴──────────────────┴───────────────────────────────┘
//	JSON   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__": {"k": "v"}}
//
// Contract:
//
//  1. Offsets count from the start of data. Tensors, in the order of their offsets, cover data exactly: no hole, no overlap,
//     nothing before the first and nothing behind the last. Each begins at a multiple of its element size and has the size
//     that dtype and shape give. Anything else is refused with an error that names the file and the tensor.
//  2. Only the header is read here. Memory is bounded by MaxHeader whatever the length field claims.
//  3. An element type that tensor.DType lacks (U16, U32, U64, C64, F6_*) is refused by name.
package safetensors
