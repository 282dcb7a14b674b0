// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"testing"

	"golang.org/x/sys/unix"
)

// hugePages is memory as a device has it for weights.
func hugePages(b *testing.B, n int) []byte {
	const page = 2 << 20
	if n < page/2 {
		return aligned(n)
	}
	all, err := unix.Mmap(-1, 0, n+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(all) })
	_ = unix.Madvise(all, unix.MADV_HUGEPAGE)
	return align(all)[:n]
}
