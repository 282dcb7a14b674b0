// SPDX-License-Identifier: MIT OR Apache-2.0

// Package kbuild compiles the kernel tree: the modules of every target to native code objects, which the binary embeds.
//
// Contract:
//
//  1. Nothing is compiled of a tree that breaks a rule of kernel.Tree.CheckSources: copies, shadows that are not declared or hide
//     nothing, sources without a kernel. What a target compiles, and with which flags, is internal/kernel's to say; kbuild runs compilers. Targets are selected
//     by patterns of class, model and quantisation.
//  2. A module is keyed by its closure hash: source, everything that it includes, flags, architecture and compiler. What was
//     compiled once is taken from a cache outside the tree; a leaf's module that is its class's is not stored twice.
//  3. What the compiler says of each entry is held against the manifests: registers, spills and static shared memory above
//     their ceilings, entries without a kernel, kernels without an entry, and launches whose conditions allow more shared memory than a
//     block has fail the build, and nothing is written.
//  4. Outputs appear by atomic rename, code under names that its sum is part of, the index behind all of it; what the index before it
//     named goes last. So an interrupted build leaves what was there.
//
// Outputs:
//
//	bin/<class>/<family>.<name>.<sum>.zst                    a code object: cubin, hsaco
//	bin/<class>/<model>/<quant>/<family>.<name>.<sum>.zst    what a leaf compiles differently
//	bin/<class>/index.json                                   kernel.Index
package kbuild
