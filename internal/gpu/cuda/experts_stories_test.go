// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// mixture is a configuration of experts.
type mixture struct {
	rows, experts, k, h, i int
	dtype                  tensor.DType
	act                    string
	gated, identity        int
	limit                  float64
	bias                   bool
}

func expertsStory(c mixture) *story {
	s := newStory(fmt.Sprintf("experts/%+v", c), c.rows, 2, 1)
	var ids []int32
	for range c.rows {
		for _, e := range s.rng.Perm(c.experts + c.identity)[:c.k] {
			ids = append(ids, int32(e))
		}
	}
	wide := (1 + c.gated) * c.i
	p := s.step("experts", c.rows, 2, 1).in(s, "x", rows, c.h, s.normal).picks(s, "ids", plan.In, c.k, ids).in(s, "weights", rows, c.k, s.rng.Float32).
		weight(s, "gate_up", c.dtype, 1/math.Sqrt(float64(c.h)), c.experts, wide, c.h).weight(s, "down", c.dtype, 1/math.Sqrt(float64(c.i)), c.experts, c.h, c.i)
	p.scaled(s, "gate_up_scale", c.dtype, c.experts, wide).scaled(s, "down_scale", c.dtype, c.experts, c.h)
	if c.bias {
		p.weight(s, "gate_up_bias", tensor.F32, 1, c.experts, wide).weight(s, "down_bias", tensor.F32, 1, c.experts, c.h)
	}
	p.out(s, "y", rows, c.h).attr("k", c.k).attr("act", c.act).attr("limit", c.limit).attr("gated", c.gated).attr("identity", c.identity).attr("compute", "f32")
	return s
}

// plainExpertsStories are of experts without a gate, and of widths that kernels of few rows take.
func plainExpertsStories() (list []*story) {
	for _, c := range []mixture{{rows: 1, experts: 3, k: 2, h: 96, i: 32}, {rows: 3, experts: 40, k: 5, h: 288, i: 96}, {rows: 5, experts: 9, k: 4, h: 64, i: 544}} {
		for _, act := range []string{"silu", "gelu_tanh"} {
			c.dtype, c.act, c.gated = tensor.BF16, act, 1
			list = append(list, expertsStory(c))
		}
		c.act, c.gated = "relu2", 0
		list = append(list, expertsStory(c))
	}
	for _, c := range []mixture{{rows: 5, experts: 7, k: 3, h: 72, i: 40}, {rows: 11, experts: 200, k: 5, h: 264, i: 72}, {rows: 150, experts: 3, k: 2, h: 72, i: 264}} {
		c.dtype, c.act = tensor.BF16, "relu2"
		list = append(list, expertsStory(c))
	}
	for _, d := range []tensor.DType{tensor.E4M3, tensor.E4M3_B128, tensor.NVFP4, tensor.MXFP4} {
		h, i := 256, 128
		if d == tensor.NVFP4 || d == tensor.MXFP4 {
			h, i = 288, 160 // units are filled up
		}
		for _, r := range []int{1, 3, 6, 20, 150} {
			list = append(list, expertsStory(mixture{rows: r, experts: 3 + r%7, k: 2, h: h, i: i, dtype: d, act: "relu2", bias: r == 3 || r == 20}))
		}
		list = append(list, expertsStory(mixture{rows: 150, experts: 3, k: 2, h: h, i: i, dtype: d, act: "relu2"})) // rows enough to unpack for
	}
	return list
}
