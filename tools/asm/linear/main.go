// SPDX-License-Identifier: MIT OR Apache-2.0

// Command linear writes the assembly of package internal/gpu/cpu/linear and the Go declarations that go with it:
//
//	go run ./tools/asm/linear internal/gpu/cpu/linear
//
// A kernel is written once for vectors of 64 bytes (AVX-512) and of 32 (AVX2). 32 bytes hold the first or second half of a
// panel's 16 rows, so those kernels run twice over a panel, once for each half; what a row's result is made of, and in
// which order, is the same. The package's doc.go draws the memory.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: linear DIR")
		os.Exit(2)
	}
	for name, text := range files() {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
