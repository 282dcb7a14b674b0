// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"fmt"
	"strings"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

// kernels are the inner loops of one path. Slices are exactly what a kernel touches, or longer.
type kernels struct {
	name  string
	level vec.Level // of the elementwise loops that go with it
	tiles []int     // rows that a tile may have, falling, down to 1

	// quantize writes one row as row r of a tile of the given height, and the sums of its codes by 16.
	quantize func(tile []byte, height, r int, sums []int32, x []float32)
	// unpack writes code records of blocks [first, first+n) of a panel.
	unpack func(f *format, dst, panel []byte, first, n int)
	// widen writes elements [k0, k1) of a panel as float32 [k1-k0][16]; k0 is a multiple of 256. tmp holds widenBytes.
	widen func(f *format, dst []float32, panel []byte, k0, k1 int, tmp []byte)
	// tileQ8 multiplies a tile of activations with a panel of code records.
	tileQ8 func(f *format, t tile, w, a []byte, aux []int32, blocks int)
	// tileF32 is the same for float32; rows of x are ldx apart.
	tileF32 func(t tile, w, x []float32, ldx, k int)
	// directQ8 and directF32 multiply a tile with panels as they are packed, the next panel 16 columns on. Where a path has
	// no such kernel for the format and the height, direct is false.
	directQ8  func(f *format, t tile, panels int, w, a []byte, aux []int32, blocks int)
	directF32 func(f *format, t tile, panels int, w []byte, x []float32, ldx, k int)
	direct    func(f *format, rows int, q8 bool) bool
}

// tile is the output of a tile: the 16 columns of a panel for each row, rows ld apart. add says that they hold what the
// sums begin with.
type tile struct {
	rows int
	out  []float32
	ld   int
	add  bool
}

var goKernels = &kernels{
	name:     "go",
	level:    vec.Go,
	tiles:    []int{4, 1},
	quantize: quantizeGo,
	unpack:   unpackGo,
	widen:    widenGo,
	tileQ8:   tileQ8Go,
	tileF32:  tileF32Go,
	direct:   func(*format, int, bool) bool { return false },
}

// Paths are the names of the paths that this processor has, the best first.
func Paths() (names []string) {
	for _, k := range paths {
		names = append(names, k.name)
	}
	return names
}

// findPath finds the kernels of a path; "" is the best.
func findPath(name string) (*kernels, error) {
	for _, k := range paths {
		if name == "" || k.name == name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("linear: this processor has no path %q, only %s", name, strings.Join(Paths(), ", "))
}
