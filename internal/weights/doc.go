// SPDX-License-Identifier: MIT OR Apache-2.0

// Package weights presents a checkpoint, whatever its files, as a set of named tensors that are read lazily.
//
// Contract:
//
//  1. Open reads headers only. Every fault that headers can show is found there, before any tensor is read.
//  2. A Store speaks the tensor names and the row order of Hugging Face checkpoints, also over a GGUF file: names are mapped
//     and rows that GGUF converters permuted are put back while reading (weights/gguf says which).
//  3. Bytes of a tensor are little-endian and row-major, in the stored format; block formats stay blocks. Dequantize turns
//     whole blocks of any format into float32.
//     Quantised puts values and scales that a checkpoint keeps apart together while they are read.
//  4. A Store is safe for concurrent use. Close ends it, and with it the views that Bytes gave.
//  5. Read never faults on a file that shrinks under us, since it reads and does not touch a mapping; a view that Bytes gave
//     may. Drop tells the kernel that a view's pages are not needed any more, so that resident memory stays near what was
//     loaded.
//
// The formats are in the packages below: safetensors, gguf; hub brings checkpoints to this machine.
package weights
