// SPDX-License-Identifier: MIT OR Apache-2.0

package kernels

import "embed"

// FS is the kernel tree, rooted at this folder.
//
//go:embed DEVICES.toml circuits/*.toml circuits/blocks circuits/keys cpu
var FS embed.FS
