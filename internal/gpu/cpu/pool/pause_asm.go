// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build amd64 || arm64

package pool

// pause lets n spin-wait hints pass, n ≥ 1.
//
//go:noescape
func pause(n int)
