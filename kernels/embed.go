// SPDX-License-Identifier: MIT OR Apache-2.0

package kernels

import "embed"

// FS is the kernel tree, rooted at this folder: facts, circuits, every class with its manifests, sources and leaves, and what
// kbuild compiled (bin). A new class, model or source is in it without a change here. Golden plans are not.
//
//go:embed DEVICES.toml FORKS.md circuits/*.toml circuits/blocks circuits/parts circuits/keys circuits/configs include */HARDWARE.toml */common/*.toml
//go:embed */*/MODEL.toml */*/*/*
//go:embed all:bin
var FS embed.FS
