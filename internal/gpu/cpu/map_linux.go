// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages; a kernel without them says no, which does not matter.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
