// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"encoding/binary"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/tensor"
)

// TestDiffOfWhatIsNotFinite: a NaN is outside of every tolerance wherever it stands, an infinity unless both have it, and neither makes room
// for the errors beside it.
func TestDiffOfWhatIsNotFinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	wide := kernel.Tolerance{Abs: 0.1, Rel: 0.1}
	for _, c := range []struct {
		name     string
		got, ref []float64
		tol      kernel.Tolerance
		right    bool
	}{
		{"equal", []float64{1, 2}, []float64{1, 2}, kernel.Tolerance{}, true},
		{"within the tolerance", []float64{1, 2.1}, []float64{1, 2}, wide, true},
		{"outside of it", []float64{1, 3}, []float64{1, 2}, wide, false},
		{"anything, where nothing is allowed", []float64{1, 2.1}, []float64{1, 2}, kernel.Tolerance{}, false},
		{"NaN of the device", []float64{nan, 2}, []float64{1, 2}, wide, false},
		{"NaN of the device, last", []float64{1, nan}, []float64{1, 2}, wide, false},
		{"NaN of the reference", []float64{1, 2}, []float64{nan, 2}, wide, false},
		{"NaN of the reference, last", []float64{1, 2}, []float64{1, nan}, wide, false},
		{"NaN of both", []float64{nan, 2}, []float64{nan, 2}, wide, false},
		{"NaN of both, nothing allowed", []float64{nan, 2}, []float64{nan, 2}, kernel.Tolerance{}, false},
		{"NaN and infinity", []float64{nan, 2}, []float64{inf, 2}, wide, false},
		{"infinity and NaN", []float64{inf, 2}, []float64{nan, 2}, wide, false},
		{"infinity of the device", []float64{inf, 2}, []float64{1, 2}, wide, false},
		{"infinity of the reference", []float64{1, 2}, []float64{inf, 2}, wide, false},
		{"infinity of the reference, nothing allowed", []float64{1, 2}, []float64{-inf, 2}, kernel.Tolerance{}, false},
		{"infinities of two signs", []float64{inf, 2}, []float64{-inf, 2}, wide, false},
		{"the same infinity", []float64{-inf, 2.1}, []float64{-inf, 2}, wide, true},
		{"the same infinity beside an error", []float64{-inf, 3}, []float64{-inf, 2}, wide, false},
		{"NaN before an error within the tolerance", []float64{nan, 2.1}, []float64{1, 2}, wide, false},
		{"the largest float", []float64{math.MaxFloat32, 3}, []float64{math.MaxFloat32, 2}, kernel.Tolerance{Rel: 0.1}, false},
	} {
		bytesOf := func(list []float64) (b []byte) {
			for _, x := range list {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
			}
			return b
		}
		for _, way := range []string{"as it is", "backwards"} {
			r := diffRow{judged: true, kernel: "k"}
			r.add(tensor.F32, bytesOf(c.got), bytesOf(c.ref), c.tol)
			worst := max(0.5, newDiffTable(io.Discard, false).add(r)) // as compare takes the worst of all
			if right := worst <= 1; right != c.right || r.ratio > 1 == c.right {
				t.Errorf("%s, %s: a ratio of %v, right %v", c.name, way, r.ratio, right)
			}
			slices.Reverse(c.got)
			slices.Reverse(c.ref)
		}
	}
}

// TestDiffOfIntegers: no integer is a NaN, and none but its equal is right.
func TestDiffOfIntegers(t *testing.T) {
	word := func(x uint32) []byte { return binary.LittleEndian.AppendUint32(nil, x) }
	for got, right := range map[uint32]bool{0x7fc00000: true, 0x7fc00001: false, 0xffffffff: false} {
		r := diffRow{}
		r.add(tensor.I32, word(got), word(0x7fc00000), kernel.Tolerance{Abs: 1e9, Rel: 1})
		if r.ratio <= 1 != right {
			t.Errorf("%x: a ratio of %v", got, r.ratio)
		}
	}
}
