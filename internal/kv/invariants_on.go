// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build invariants

package kv

import "fmt"

// Invariants says whether contracts are checked at run time.
const Invariants = true

func assert(ok bool, format string, args ...any) {
	if !ok {
		panic("kv: " + fmt.Sprintf(format, args...))
	}
}
