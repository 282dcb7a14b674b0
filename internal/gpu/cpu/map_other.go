// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !unix

package cpu

import "unsafe"

// mapAnonymous takes Go memory where there is no mmap.
func mapAnonymous(n int) (data []byte, unmap func() error, err error) {
	raw := make([]byte, n+alignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % alignment
	return raw[skip : int(skip)+n : int(skip)+n], nil, nil
}
