// SPDX-License-Identifier: MIT OR Apache-2.0

// Package cpu is the CPU hardware class: a gpu.Device that executes plans with kernels in Go and assembly. It is the default
// where no accelerator is, and the reference that every other class is held against.
//
// Where things are: the device, its memory and the checks of Bind here; one binder per kernel of the class's manifest
// (kernels/cpu), listed in kernels.go; the arithmetic in subpackages on plain slices: linear (matrices and experts), attn
// (paged attention), recur (convolution, delta rule), vec (vector loops and all other assembly), pool (workers).
//
// Contract:
//
//  1. Launch runs to the end on the caller and the device's workers, and does not allocate. Sync has nothing to wait for.
//  2. Bind checks a launch completely (names, types, axes, access, overlap, attributes), so that a kernel needs to check only
//     what a step brings: counts, slots, pages, positions, rows. Those that are out of bounds, and any other panic in a
//     kernel, come out of Launch as an error that names the launch.
//  3. A row's result is the same bits whatever other rows are in the step, however rows are cut into steps, and with any
//     number of threads. Paths "avx2" and "avx512" agree, "go" differs in the last bits: it fuses no multiply-add.
//  4. Arithmetic is float32. Angles, softplus and decays go through float64.
//  5. Small work (one row of a small model) runs on the caller alone: waking workers would cost more than it saves.
//  6. Memory: buffers are zeroed, 64-byte aligned; from 1 MiB they are maps of their own, on huge pages where the kernel has
//     them, whose pages appear when touched and go back on Free.
//
// Layouts of weights: "" as stored; "f32" dequantised row-major float32; "panel" as package linear packs. Expert weights of
// three axes are one packed matrix after the other.
//
// Pools of keys and values are in blocks of sixteen tokens, keys across: package attn draws them.
package cpu
