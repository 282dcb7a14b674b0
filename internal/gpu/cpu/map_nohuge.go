// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build unix && !linux

package cpu

func adviseHuge([]byte) {}
