// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build unix

package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// mapAnonymous maps zeroed memory that starts on a huge page, so that adviseHuge can use those.
func mapAnonymous(n int) (data []byte, unmap func() error, err error) {
	all, err := unix.Mmap(-1, 0, n+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(all))) % hugePage
	return all[skip : int(skip)+n : int(skip)+n], func() error { return unix.Munmap(all) }, nil
}
