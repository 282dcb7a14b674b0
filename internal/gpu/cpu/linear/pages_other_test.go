// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !linux

package linear

import "testing"

// hugePages is memory as a device has it for weights.
func hugePages(_ *testing.B, n int) []byte { return aligned(n) }
