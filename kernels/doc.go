// SPDX-License-Identifier: MIT OR Apache-2.0

// Package kernels embeds the kernel tree: device facts, hardware classes with their manifests and fusion rules, circuits,
// blocks and config maps.
//
// Contract:
//
//  1. The tree is data for people who write no Go; this package exports it as an fs.FS and does nothing else. Compiled kernels
//     are in it as far as kbuild ran before the build.
//  2. Only the composition root (internal/cli), internal/certify and tests import it; all others are handed the fs.FS.
package kernels
