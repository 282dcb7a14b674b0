// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// places adds coordinates of rows: time, height, width.
func (p *step) places(list ...int32) *step {
	p.ints("coords", 3*int(p.limits.Rows), list)
	p.arrays[len(p.arrays)-1].axes = plan.Axes{{Name: rows, Size: p.limits.Rows}, {Name: "axes", Size: 3}}
	return p
}

func gridAnglesStory(half int) *story {
	s := newStory(fmt.Sprint("grid_angles/", half), 3, 2, 1)
	freq, axis := make([]float32, half), make([]float32, half)
	for i := range freq {
		freq[i], axis[i] = float32(math.Pow(10000, -float64(i)/float64(half))), float32(i%3)
	}
	s.step("grid_angles", 3, 2, 1).places(1, 2, 3, 700, 30, 5, 0, 0, 1).constant(s, "inv_freq", freq).constant(s, "axis", axis).out(s, "y", rows, 2*half).attr("scale", 1.0)
	return s
}

func gridEmbedStory(side, width int) *story {
	s := newStory(fmt.Sprint("grid_embed/", side, "x", width), 4, 2, 1)
	p := s.step("grid_embed", 4, 2, 1).places(0, 0, 0, 0, 3, 2, 0, 5, 11, 0, 1, 0).ints("grids", 9, []int32{1, 6, 12, 1, 2, 1}).ints("row_seq", int(s.limits.Rows), []int32{0, 0, 0, 1})
	p.arrays[2].axes = plan.Axes{{Name: "seqs", Size: 3}, {Name: "axes", Size: 3}}
	p.weight(s, "w", tensor.F32, 1, side*side, width).out(s, "y", rows, width)
	return s
}

func anglesStory(half int, scale float64, positions ...int32) *story {
	r := len(positions)
	s := newStory(fmt.Sprint("rope_angles/", half), r, 2, 1)
	freq := make([]float32, half)
	for i := range freq {
		freq[i] = float32(math.Pow(10000, -float64(i)/float64(half)))
	}
	s.step("rope_angles", r, 2, 1).ints("positions", int(s.limits.Rows), positions).constant(s, "inv_freq", freq).out(s, "y", rows, 2*half).attr("scale", scale).attr("back", half%5)
	return s
}

func ropeStory(style string, heads, dim, rot, offset int) *story {
	s := newStory(fmt.Sprint("rope/", style, "/", heads, "x", dim), 5, 2, 1)
	s.step("rope", 5, 2, 1).io(s, "x", rows, heads*dim, s.normal).in(s, "angles", rows, rot, s.normal).
		attr("heads", heads).attr("head_dim", dim).attr("rot", rot).attr("style", style).attr("offset", offset).attr("inverse", heads%2)
	return s
}

// pairStory turns two arrays.
func pairStory(style string, heads0, heads1, dim, rot, offset int) *story {
	s := newStory(fmt.Sprint("rope_pair/", style, "/", heads0, "+", heads1, "x", dim), 5, 2, 1)
	s.step("rope_pair", 5, 2, 1).io(s, "x0", rows, heads0*dim, s.normal).io(s, "x1", rows, heads1*dim, s.normal).in(s, "angles", rows, rot, s.normal).
		attr("heads0", heads0).attr("heads1", heads1).attr("head_dim", dim).attr("rot", rot).attr("style", style).attr("offset", offset).attr("inverse", heads1%2)
	return s
}

func positionScaleStory(n int) *story {
	s := newStory("position_scale", 4, 2, 1)
	s.step("position_scale", 4, 2, 1).ints("positions", int(s.limits.Rows), []int32{0, 7, 8, 100000}).io(s, "x", rows, n, s.normal).attr("beta", 0.1).attr("period", 8)
	return s
}
