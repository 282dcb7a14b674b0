// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import "golang.org/x/sys/unix"

const hugePage = 2 << 20

// mapHuge gives memory of that size in large pages, if the system has such, and the mapping that it lies in; nil if there is none.
// It is touched, near the processor that calls.
func mapHuge(bytes int64) (mapping, mem []byte) {
	size := (int(bytes) + hugePage - 1) / hugePage * hugePage
	mapping, err := unix.Mmap(-1, 0, size+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil
	}
	skip := -int(address(mapping)) & (hugePage - 1)
	mem = mapping[skip : skip+size]
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // a wish
	for i := 0; i < size; i += 4096 {
		mem[i] = 0
	}
	return mapping, mem[:bytes]
}

func unmapHuge(mapping []byte) {
	if mapping != nil {
		_ = unix.Munmap(mapping)
	}
}
