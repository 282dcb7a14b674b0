// SPDX-License-Identifier: MIT OR Apache-2.0

// Package kbuild compiles the kernel tree: every source of every class of hardware to a native code object.
//
// Contract:
//
//  1. A class's HARDWARE.toml names its architecture and the class that it inherits from. Its sources are its own
//     common/<family>/*.cu and those of its ancestors, nearest first; a file of the same family and name hides the
//     ancestor's. A class that is abstract compiles nothing.
//  2. An output is keyed by its closure hash: the source, everything that it includes, flags, architecture and compiler.
//     A build whose key is in the index is not repeated.
//  3. Outputs appear by atomic rename, the index last, so that an interrupted build leaves a valid tree.
//  4. A kernel that spills more than the class's ceiling fails the build.
//
// Outputs:
//
//	bin/<class>/<family>.<name>.cubin
//	bin/<class>/index.json              {"arch", "compiler", "kernels": {"<family>.<name>": {"hash", "bytes", "entries": {…}}}}
package kbuild
