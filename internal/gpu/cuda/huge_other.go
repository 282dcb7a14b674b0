// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !linux

package cuda

func mapHuge(int64) (mapping, mem []byte) { return nil, nil }

func unmapHuge([]byte) {}
