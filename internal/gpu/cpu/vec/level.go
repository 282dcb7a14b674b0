// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

import "fmt"

// Level is a SIMD path.
type Level uint8

const (
	Go     Level = iota // plain Go, any processor
	AVX2                // with FMA and F16C
	AVX512              // F, BW, DQ, VL
)

// String is the lever's spelling.
func (l Level) String() string { return [...]string{"go", "avx2", "avx512"}[l] }

// Parse reads a lever: "" is Best; a path that this processor lacks is an error.
func Parse(name string) (Level, error) {
	if name == "" {
		return Best(), nil
	}
	for l := Go; l <= AVX512; l++ {
		if l.String() == name {
			if l > Best() {
				return Go, fmt.Errorf("SIMD path %q: this processor has only %q", name, Best())
			}
			return l, nil
		}
	}
	return Go, fmt.Errorf("SIMD path %q: want go, avx2 or avx512", name)
}
