// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !linux

package cuda

// Near is for Linux.
func (d *Device) Near() bool { return false }
