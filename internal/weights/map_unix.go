// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux || darwin || freebsd || netbsd || openbsd

package weights

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(m []byte) { _ = unix.Munmap(m) }

// dropPages gives back resident pages; the advice may be ignored.
func dropPages(m []byte) { _ = unix.Madvise(m, unix.MADV_DONTNEED) }
