// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

const (
	rows = plan.Rows
	outs = plan.Outs
)

// stories are the launches that kernels are tried on, by the reference kernels of their steps: shapes of models, odd ones, every
// element type, every attribute.
func stories() map[string][]*story {
	all := map[string][]*story{}
	add := func(s *story) {
		seen := map[string]bool{}
		for _, p := range s.steps {
			if !seen[p.kernel] {
				seen[p.kernel] = true
				all[p.kernel] = append(all[p.kernel], s)
			}
		}
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8_0} {
		for _, h := range []int{32, 64, 1056} {
			add(embedStory(h, d))
		}
		add(expertsStory(mixture{rows: 3, experts: 5, k: 2, h: 64, i: 32, dtype: d, act: "silu", gated: 1}))
		add(groupLinearStory(3, 2, 24, 64, d))
		add(groupLinearStory(20, 3, 10, 96, d))
		add(linearStory("linear", rows, 3, 24, 64, d, true))
		add(linearNStory(d, 1, 64, 40, 9))
		add(linearNStory(d, 6, 96, 17, 32, 8))
		add(linearNStory(d, 2, 32, 1, 70, 3, 8))
		add(linearStory("linear", rows, 19, 40, 320, d, false))
		add(linearStory("linear_add", rows, 2, 9, 96, d, false))
		add(linearStory("linear_add", rows, 12, 33, 96, d, true))
		for _, act := range gluActs {
			add(gluStory(rows, 1, 17, 64, d, act, 0))
			add(gluStory(rows, 21, 18, 288, d, act, 0.5))
		}
	}
	for _, d := range []tensor.DType{tensor.E4M3, tensor.E4M3_B128, tensor.NVFP4, tensor.MXFP4} { // that stay as they are
		for _, c := range []struct{ rows, n, k int }{{1, 8, 128}, {2, 72, 1280}, {3, 40, 256}, {5, 48, 2944}, {6, 336, 1152}, {7, 24, 640}, {8, 264, 2048}} {
			add(linearStory("linear", rows, c.rows, c.n, c.k, d, true))
			add(linearStory("linear_add", rows, c.rows, c.n, c.k, d, c.n%3 == 0))
			add(gluStory(rows, c.rows, c.n, c.k, d, gluActs[c.rows%2], 0))
			add(linearNStory(d, c.rows, c.k, c.n, 8, 16, 264))
			add(linearNStory(d, c.rows, c.k, 24, c.n))
		}
		add(linearStory("linear", rows, 6, 16, 8192, d, true))      // x comes through the rings
		add(linearStory("linear_add", rows, 5, 264, 4224, d, true)) // the same
		add(linearStory("linear_add", rows, 2, 40, 8064, d, true))  // a long K
		add(linearStory("linear_add", rows, 6, 24, 2048, d, false)) // of at most 8 rows: x leaves a ring little of half a multiprocessor
		add(expertsStory(mixture{rows: 6, experts: 5, k: 2, h: 2048, i: 128, dtype: d, act: "silu", gated: 1}))
		for _, r := range []int{9, 20, 27} { // groups of 8 rows
			add(linearStory("linear", rows, r, 72, 384, d, true))
			add(linearStory("linear_add", rows, r, 40, 2176, d, false))
			add(linearNStory(d, r, 256, 40, 8, 264))
			add(gluStory(rows, r, 56, 256, d, "silu", 0))
		}
		for _, c := range []struct{ rows, n, k int }{{9, 72, 1152}, {33, 40, 2048}, {77, 200, 640}, {80, 1032, 384}, {50, 1096, 1152}} { // for clusters that split K
			add(linearStory("linear", rows, c.rows, c.n, c.k, d, c.n > 50))
			add(linearStory("linear_add", rows, c.rows, c.n, c.k, d, c.n < 50))
		}
		for _, c := range []struct{ rows, n, k int }{{14, 40, 256}, {60, 136, 128}, {130, 264, 384}} { // turned into bf16
			add(linearStory("linear", rows, c.rows, c.n, c.k, d, true))
			add(linearStory("linear_add", rows, c.rows, c.n, c.k, d, false))
			act := c.rows % 4
			add(gluStory(rows, c.rows, c.n, c.k, d, gluActs[act], float64(act/2)/2))
		}
		add(linearStory("linear", rows, 30, 16504, 128, d, true))
		add(linearStory("linear_add", rows, 10, 16504, 128, d, false))
		add(gluStory(rows, 20, 8256, 128, d, "silu", 0))
		add(expertsStory(mixture{rows: 20, experts: 30, k: 5, h: 256, i: 128, dtype: d, act: "silu", gated: 1}))
		h, i := 256, 128
		if d == tensor.NVFP4 || d == tensor.MXFP4 {
			h, i = 288, 160 // units are filled up
		}
		add(expertsStory(mixture{rows: 1, experts: 5, k: 3, h: h, i: i, dtype: d, act: "silu", gated: 1}))
		add(expertsStory(mixture{rows: 3, experts: 6, k: 2, h: h, i: i, dtype: d, act: "gelu_tanh", gated: 1}))
		add(expertsStory(mixture{rows: 6, experts: 40, k: 4, h: h, i: i, dtype: d, act: "swiglu_oai", gated: 1, limit: 7, bias: true}))
		add(expertsStory(mixture{rows: 5, experts: 3, k: 2, h: h, i: i, dtype: d, act: "silu_then_limit", gated: 1, limit: 0.7}))
		add(expertsStory(mixture{rows: 7, experts: 12, k: 5, h: h, i: i, dtype: d, act: "silu", gated: 1}))
		add(expertsStory(mixture{rows: 8, experts: 6, k: 3, h: h, i: i, dtype: d, act: "gelu_tanh", gated: 1, bias: true}))
		add(expertsStory(mixture{rows: 40, experts: 2, k: 2, h: h, i: i, dtype: d, act: "gelu_tanh", gated: 1, limit: 0.7})) // in parts
		add(expertsStory(mixture{rows: 21, experts: 9, k: 2, h: h, i: i, dtype: d, act: "swiglu_oai", gated: 1, limit: 7, bias: true}))
		add(expertsStory(mixture{rows: 9, experts: 7, k: 7, h: h, i: i, dtype: d, act: "silu_then_limit", gated: 1, limit: 0.7}))
		add(expertsStory(mixture{rows: 150, experts: 3, k: 2, h: h, i: i, dtype: d, act: "silu", gated: 1})) // turned into bf16
	}
	for _, r := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33} {
		add(linearStory("linear", rows, r, 48, 256, tensor.BF16, r%2 == 0))
		if r <= 8 {
			add(linearStory("linear_add", rows, r, 40, 384, tensor.BF16, r%2 == 1))
			add(linearNStory(tensor.BF16, r, 192, 40, 8, 24))
			add(gluStory(rows, r, 56, 320, tensor.BF16, gluActs[r%4], 0))
		}
	}
	for _, r := range []int{12, 30, 60} {
		add(linearNStory(tensor.BF16, r, 1032+8*r, 136, 1))       // K over the blocks of clusters
		add(linearNStory(tensor.BF16, r, 136, 8500, 40, 130, 30)) // three blocks a multiprocessor
	}
	add(linearStory("linear_add", rows, 4, 24, 8448, tensor.BF16, false))                                                    // a window of x
	for _, c := range []struct{ rows, n, k int }{{9, 1, 8}, {14, 40, 1000}, {60, 130, 72}, {130, 257, 200}, {300, 64, 64}} { // for tiles
		add(linearStory("linear", rows, c.rows, c.n, c.k, tensor.BF16, true))
		add(linearStory("linear_add", rows, c.rows, c.n, c.k, tensor.BF16, c.n%2 == 0))
		add(linearNStory(tensor.BF16, c.rows, c.k, c.n, 2*c.n, 3*c.n+1))
		add(linearNStory(tensor.BF16, c.rows, c.k, c.n, 4, 9, 128))
		for i, act := range gluActs {
			if i == 0 || c.rows < 20 {
				add(gluStory(rows, c.rows, c.n, c.k, tensor.BF16, act, 0.5))
			}
		}
	}
	add(linearStory("linear", rows, 30, 16500, 16, tensor.BF16, true))                                                                                                                                                  // as many tiles as multiprocessors
	for _, c := range []struct{ rows, n, k int }{{10, 70, 1024}, {40, 18, 1096}, {90, 130, 1024}, {140, 33, 1200}, {50, 100, 296}, {20, 66, 2200}, {160, 256, 2200}, {80, 70, 512}, {33, 300, 136}, {50, 1100, 1096}} { // for clusters that split K
		add(linearStory("linear", rows, c.rows, c.n, c.k, tensor.BF16, c.n > 50))
		add(linearStory("linear_add", rows, c.rows, c.n, c.k, tensor.BF16, c.n < 50))
	}
	add(linearStory("linear_add", rows, 10, 16500, 16, tensor.BF16, false))
	add(linearNStory(tensor.BF16, 200, 16, 8200, 4, 8192))
	add(gluStory(rows, 20, 8250, 16, tensor.BF16, "silu", 0))
	add(linearStory("linear", outs, 2, 50, 64, tensor.BF16, false))
	add(linearStory("linear", rows, 3, 7, 13, tensor.F32, true)) // nothing is aligned
	add(linearStory("linear", rows, 11, 7, 13, tensor.BF16, true))
	add(linearStory("linear", rows, 2, 12, 4096, tensor.BF16, false))
	add(embedStory(30, tensor.BF16))
	for _, act := range append(gluActs, "relu2") {
		add(expertsStory(mixture{rows: 11, experts: 8, k: 4, h: 96, i: 40, dtype: tensor.BF16, act: act, gated: 1, limit: 0.7}))
	}
	for _, act := range []string{"silu", "gelu_tanh", "relu2"} {
		add(expertsStory(mixture{rows: 4, experts: 8, k: 2, h: 96, i: 40, dtype: tensor.BF16, act: act, bias: true}))
	}
	for _, act := range gluActs { // more than a tile of an expert's rows, and experts without rows
		add(expertsStory(mixture{rows: 150, experts: 3, k: 2, h: 72, i: 136, dtype: tensor.BF16, act: act, gated: 1, limit: 0.7}))
	}
	add(expertsStory(mixture{rows: 20, experts: 200, k: 5, h: 264, i: 64, dtype: tensor.BF16, act: "silu", gated: 1}))
	add(expertsStory(mixture{rows: 2, experts: 3, k: 1, h: 13, i: 7, dtype: tensor.F32, act: "silu", gated: 1}))
	add(expertsStory(mixture{rows: 6, experts: 4, k: 3, h: 32, i: 16, dtype: tensor.F16, act: "swiglu_oai", gated: 1, limit: 7, bias: true}))
	add(expertsStory(mixture{rows: 6, experts: 4, k: 3, h: 33, i: 16, dtype: tensor.F32, act: "silu", gated: 1, identity: 3}))
	add(groupMulStory(3, 4, 32, 48))
	add(groupMulStory(19, 2, 13, 200))

	for _, n := range []int{16, 48, 100, 576, 2048, 30} {
		for _, r := range []int{1, 5} {
			add(normStory("rms_norm", rows, r, n, n, true, 0))
			add(normStory("add_rms_norm", rows, r, n, n, true, 1))
			add(addStory(rows, r, n))
			for _, act := range gluActs {
				add(elementStory("glu", r, n, n, act))
			}
			for _, act := range []string{"silu", "gelu", "gelu_tanh", "relu2"} {
				add(elementStory("act", r, n, n, act))
			}
		}
		for _, act := range []string{"sigmoid", "silu", "softplus"} {
			add(elementStory("gate", 3, n, n, act))
			add(elementStory("gate", 3, 4*n, n, act))
		}
		add(gatherStory(7, 3, n))
		add(takeStory(n))
		add(putStory("replace", n))
		add(putStory("add", n))
		for _, kernel := range []string{"scale", "softcap", "slice", "repeat", "mean"} {
			add(plainStory(kernel, n))
		}
		add(foldStory(4, n))
	}
	add(normStory("rms_norm", outs, 2, 64, 64, true, 0))
	add(normStory("rms_norm", rows, 2, 9000, 9000, false, 0))
	for _, n := range []int{300, 8192, 8400} {
		add(normStory("gated_norm", rows, 2, n, n, true, 0))
	}
	for _, group := range []int{16, 20, 64, 128, 18} {
		for _, kernel := range []string{"rms_norm", "add_rms_norm", "l2_norm", "gated_norm", "layer_norm"} {
			add(normStory(kernel, rows, 3, 3*group, group, group != 20, 0))
		}
	}
	add(spanStory("rms_norm", 48, 4))
	add(spanStory("add_rms_norm", 64, 2))
	for _, kernel := range []string{"split", "join"} {
		add(splitStory(kernel, 3, 5, 2))
		add(splitStory(kernel, 1, 64, 128))
		add(splitStory(kernel, 4, 8, 4))
	}
	add(anglesStory(12, 1.3466, 0, 1, 77, 9000, 131071))
	add(anglesStory(64, 1, 1000000, 5))
	for _, style := range []string{"half", "interleaved"} {
		add(ropeStory(style, 3, 64, 64, 0))
		add(ropeStory(style, 2, 40, 20, 8))
		add(ropeStory(style, 5, 128, 96, 32))
		add(ropeStory(style, 1, 2, 2, 0))
		add(pairStory(style, 4, 1, 64, 64, 0))
		add(pairStory(style, 1, 2, 128, 96, 32))
		add(pairStory(style, 3, 2, 40, 20, 8))
	}
	add(positionScaleStory(40))
	add(gridAnglesStory(20))
	add(gridEmbedStory(9, 40))
	add(gatesStory(24, 1, 0))
	add(gatesStory(7, 1, 0))
	add(gatesStory(3, 16, 0))
	add(gatesStory(4, 5, -5))
	for _, s := range slices.Concat(plainExpertsStories(), attentionStories(), latentStories(), sparseStories(), entryStories(), fullStories(), routerStories()) {
		add(s)
	}
	for _, k := range []int{2, 3, 4} {
		add(convStory(70, k, "silu", k == 4, [][]int{{3, 1, 6}, {1, 1, 1}, {2, 5, 0}}))
	}
	add(convStory(300, 4, "none", false, [][]int{{1}, {9}}))
	add(convStory(132, 4, "silu", true, [][]int{{33, 1, 17}, {16, 2, 48}})) // several blocks of a sequence
	for _, c := range []struct{ kh, vh, kd, vd int }{{1, 2, 16, 16}, {2, 4, 128, 128}, {1, 1, 48, 40}, {2, 2, 192, 64}, {1, 3, 256, 33}} {
		add(deltaStory(c.kh, c.vh, c.kd, c.vd, 1, [][]int{{5, 1}, {1, 3}}))
		add(deltaStory(c.kh, c.vh, c.kd, c.vd, c.kd, [][]int{{5, 1}, {1, 3}}))
	}
	for _, c := range []struct{ kh, vh, kd, vd int }{{1, 2, 128, 128}, {1, 1, 64, 40}, {2, 2, 36, 96}} { // for chunks
		add(deltaStory(c.kh, c.vh, c.kd, c.vd, 1, [][]int{{63, 1, 130}, {65, 64, 0}, {1, 128, 1}}))
	}
	for _, series := range []int{1, 2} {
		add(compressStory(20, 4, series, [][]int{{7, 1}, {1, 6}, {3, 4}}))
		add(compressStory(130, 16, series, [][]int{{15}, {1}, {18}}))
	}
	for _, c := range []struct{ streams, width int }{{4, 64}, {2, 300}, {8, 13}} {
		add(mixStory(c.streams, c.width))
		add(spreadStory(c.streams, c.width))
		add(headStory(c.streams, c.width))
	}
	for _, c := range []struct{ heads, groups, hd, sd int }{{4, 2, 16, 16}, {8, 1, 64, 128}, {2, 2, 40, 80}, {3, 1, 20, 256}} {
		add(ssdStory(c.heads, c.groups, c.hd, c.sd, [][]int{{5, 1}, {1, 3}}))
	}
	for _, c := range []struct{ heads, groups, hd, sd int }{{4, 2, 64, 128}, {2, 1, 40, 84}, {3, 1, 20, 256}, {2, 2, 34, 16}, {2, 2, 80, 64}} { // for chunks
		add(ssdStory(c.heads, c.groups, c.hd, c.sd, [][]int{{63, 1, 190}, {65, 64, 0}, {1, 128, 1}}))
	}
	if *large {
		add(embedStory(4096, tensor.BF16))
		add(normStory("add_rms_norm", rows, 300, 4096, 4096, true, 0))
		add(linearStory("linear", rows, 1, 14336, 4096, tensor.BF16, true))
		add(linearStory("linear", rows, 300, 4096, 4096, tensor.BF16, false))
		add(linearStory("linear", outs, 3, 128256, 2048, tensor.BF16, false))
		add(gluStory(rows, 70, 14336, 2048, tensor.BF16, "silu", 0))
		add(expertsStory(mixture{rows: 40, experts: 128, k: 8, h: 2048, i: 768, dtype: tensor.BF16, act: "silu", gated: 1}))
		add(convStory(8192, 4, "silu", false, [][]int{{700, 1, 30}, {1, 1, 1}}))
		add(deltaStory(16, 32, 128, 128, 1, [][]int{{300, 1, 30}, {1, 1, 1}}))
		add(ssdStory(64, 8, 64, 128, [][]int{{300, 1, 30}, {1, 1, 1}, {1, 64, 500}}))
		for _, c := range []attention{{heads: 32, kv: 8, kd: 128, vd: 128, dtype: tensor.BF16}, {heads: 16, kv: 2, kd: 256, vd: 256, window: 700, dtype: tensor.F16}} {
			s := newStory(fmt.Sprint("attention/large/", c.kd), 900, 3, 1)
			s.limits.Pages = 200
			g := s.page(3100, 600, 20)
			for at := 0; at < 3000; at += 600 {
				c.step(s, g, []span{{0, at, at + 600}, {1, at / 10, at/10 + 60}})
			}
			c.step(s, g, []span{{1, 300, 301}, {0, 3000, 3001}, {2, 0, 10}})
			add(s)
		}
	}
	return all
}

// newAxisStory is a story of n rows, or of n outs of a few more rows.
func newAxisStory(name, axis string, n int) *story {
	if axis == outs {
		return newStory(name, n+3, 2, n)
	}
	return newStory(name, n, 2, 1)
}

// only is the step of such a story.
func (s *story) only(kernel, axis string, n int) *step {
	if axis == outs {
		return s.step(kernel, n+3, 2, n)
	}
	return s.step(kernel, n, 2, 1)
}

func linearStory(kernel, axis string, r, n, k int, d tensor.DType, bias bool) *story {
	s := newAxisStory(fmt.Sprint(kernel, "/", d, "/", axis, r, "x", n, "x", k), axis, r)
	p := s.only(kernel, axis, r).in(s, "x", axis, k, s.normal).weight(s, "w", d, 1/math.Sqrt(float64(k)), n, k)
	if bias {
		p.weight(s, "bias", tensor.F32, 1, n)
	}
	p.scaled(s, "scale", d, n)
	if kernel == "linear_add" {
		p.io(s, "y", axis, n, s.normal)
	} else {
		p.out(s, "y", axis, n)
	}
	p.attr("compute", "f32")
	return s
}

// scaled adds factors of outputs to weights of some types.
func (p *step) scaled(s *story, name string, d tensor.DType, shape ...int) *step {
	if d == tensor.BF16 || d == tensor.E4M3_B128 || d == tensor.MXFP4 {
		return p
	}
	size := 1.0
	if d == tensor.E4M3 || d == tensor.NVFP4 {
		size = 0.5 // the largest of many still makes outputs about 1
	}
	return p.weight(s, name, tensor.F32, size, shape...)
}

// linearNStory is two to four linears of one x.
func linearNStory(d tensor.DType, r, k int, n ...int) *story {
	s := newStory(fmt.Sprint("linear_n/", d, "/", r, "x", n, "x", k), r, 2, 1)
	p := s.step("linear_n", r, 2, 1).in(s, "x", rows, k, s.normal).attr("compute", "f32").attr("n", len(n))
	for i, n := range n {
		p.weight(s, fmt.Sprint("w", i), d, 1/math.Sqrt(float64(k)), n, k).out(s, fmt.Sprint("y", i), rows, n).scaled(s, fmt.Sprint("scale", i), d, n)
		if i%2 == 1 {
			p.weight(s, fmt.Sprint("bias", i), tensor.F32, 1, n)
		}
	}
	return s
}

// gluActs join gate and up.
var gluActs = []string{"silu", "gelu_tanh", "silu_then_limit", "swiglu_oai"}

func gluStory(axis string, r, n, k int, d tensor.DType, act string, limit float64) *story {
	s := newAxisStory(fmt.Sprint("linear_glu/", act, "/", d, "/", r, "x", n, "x", k), axis, r)
	w := 1 / math.Sqrt(float64(k))
	s.only("linear_glu", axis, r).in(s, "x", axis, k, s.normal).weight(s, "wg", d, w, n, k).weight(s, "wu", d, w, n, k).scaled(s, "sg", d, n).scaled(s, "su", d, n).out(s, "y", axis, n).
		attr("compute", "f32").attr("act", act).attr("limit", limit)
	return s
}

func groupLinearStory(r, groups, n, k int, d tensor.DType) *story {
	s := newStory(fmt.Sprint("group_linear/", d, "/", r, "x", groups, "x", n, "x", k), r, 2, 1)
	s.step("group_linear", r, 2, 1).in(s, "x", rows, groups*k, s.normal).weight(s, "w", d, 1/math.Sqrt(float64(k)), groups, n, k).scaled(s, "scale", d, groups, n).out(s, "y", rows, groups*n).
		attr("compute", "f32")
	return s
}

func groupMulStory(r, groups, k, n int) *story {
	s := newStory(fmt.Sprint("group_mul/", r, "x", groups, "x", k, "x", n), r, 2, 1)
	s.step("group_mul", r, 2, 1).in(s, "x", rows, groups*k, s.normal).weight(s, "w", tensor.F32, 1/math.Sqrt(float64(k)), groups, k, n).out(s, "y", rows, groups*n)
	return s
}

func embedStory(h int, d tensor.DType) *story {
	s := newStory(fmt.Sprint("embed/", d, "/", h), 5, 2, 1)
	s.step("embed", 5, 2, 1).ints("tokens", int(s.limits.Rows), []int32{0, 39, 7, 7, 12}).weight(s, "w", d, 1, 40, h).out(s, "y", rows, h).attr("scale", 1.5)
	return s
}

func normStory(kernel, axis string, r, n, group int, weight bool, plusOne int) *story {
	s := newAxisStory(fmt.Sprint(kernel, "/", axis, r, "x", n, "/", group), axis, r)
	p := s.only(kernel, axis, r)
	if kernel == "add_rms_norm" {
		p.io(s, "x", axis, n, s.normal).in(s, "d", axis, n, s.normal)
	} else {
		p.in(s, "x", axis, n, s.normal)
	}
	if kernel == "gated_norm" {
		p.in(s, "z", axis, n, s.normal)
	}
	if weight && kernel != "l2_norm" || kernel == "gated_norm" {
		p.weight(s, "w", tensor.F32, 1, group)
	}
	if kernel == "layer_norm" && group%3 == 0 {
		p.weight(s, "bias", tensor.F32, 1, group)
	}
	p.out(s, "y", axis, n).attr("eps", 1e-6).attr("group", group)
	switch kernel {
	case "layer_norm":
	case "l2_norm":
		p.attr("scale", 0.125)
	case "gated_norm":
		p.attr("act", []string{"silu", "sigmoid"}[group%3%2])
	default:
		p.attr("plus_one", plusOne).attr("span", 1).attr("scale", 1.0)
	}
	return s
}

// spanStory norms groups whose weights go over several of them.
func spanStory(kernel string, group, span int) *story {
	n := 2 * span * group
	s := newStory(fmt.Sprint(kernel, "/span/", group, "x", span), 3, 2, 1)
	p := s.step(kernel, 3, 2, 1)
	if kernel == "add_rms_norm" {
		p.io(s, "x", rows, n, s.normal).in(s, "d", rows, n, s.normal).attr("scale", 1.0)
	} else {
		p.in(s, "x", rows, n, s.normal).attr("scale", 0.3)
	}
	p.weight(s, "w", tensor.F32, 1, span*group).out(s, "y", rows, n).attr("eps", 1e-6).attr("group", group).attr("plus_one", 0).attr("span", span)
	return s
}

func addStory(axis string, r, n int) *story {
	s := newAxisStory(fmt.Sprint("add/", r, "x", n), axis, r)
	s.only("add", axis, r).io(s, "x", axis, n, s.normal).in(s, "y", axis, n, s.normal)
	return s
}

// elementStory is glu or act of n values, or gate of n by m.
func elementStory(kernel string, r, n, m int, act string) *story {
	s := newStory(fmt.Sprint(kernel, "/", act, "/", r, "x", n, "/", m), r, 2, 1)
	p := s.step(kernel, r, 2, 1).attr("act", act)
	switch kernel {
	case "glu":
		p.in(s, "g", rows, m, s.normal).in(s, "u", rows, n, s.normal).out(s, "y", rows, n).attr("limit", float64(n%3)/2)
	case "act":
		p.in(s, "x", rows, n, s.normal).out(s, "y", rows, n)
	case "gate":
		p.io(s, "x", rows, n, s.normal).in(s, "g", rows, m, s.normal)
	}
	return s
}

func gatherStory(r, n, width int) *story {
	s := newStory(fmt.Sprint("gather_rows/", width), r, 2, n)
	s.step("gather_rows", r, 2, n).in(s, "x", rows, width, s.normal).ints("out_rows", n+1, []int32{0, 3, 6}).out(s, "y", outs, width)
	return s
}

// pool adds rows that were written outside of the plan.
func (p *step) pool(s *story, count, width int) *step {
	return p.add(&array{param: "pool", dtype: tensor.F32, axes: s.axes(count, width), data: s.stored(tensor.F32, count*width, 1)})
}

func takeStory(width int) *story {
	s := newStory(fmt.Sprint("take_rows/", width), 3, 2, 1)
	s.step("take_rows", 3, 2, 1).pool(s, 6, width).ints("hidden_row", int(s.limits.Rows), []int32{5, 0, 3}).out(s, "y", rows, width)
	return s
}

func putStory(mode string, width int) *story {
	s := newStory(fmt.Sprint("put_features/", mode, "/", width), 4, 2, 1)
	s.step("put_features", 4, 2, 1).io(s, "x", rows, width, s.normal).pool(s, 6, width).ints("feature_row", int(s.limits.Rows), []int32{-1, 5, 0, -1}).attr("mode", mode)
	return s
}

func foldStory(fold, width int) *story {
	s := newStory(fmt.Sprint("fold_rows/", width), 3*fold, 2, 3)
	s.step("fold_rows", 3*fold, 2, 3).in(s, "x", rows, width, s.normal).out(s, "y", outs, fold*width).attr("fold", fold)
	return s
}

// splitStory is split of groups of a+b, or join to them.
func splitStory(kernel string, groups, a, b int) *story {
	s := newStory(fmt.Sprint(kernel, "/", groups, "/", a, "/", b), 5, 2, 1)
	p := s.step(kernel, 5, 2, 1).attr("groups", groups).attr("a", a).attr("b", b)
	if kernel == "join" {
		p.in(s, "x0", rows, groups*a, s.normal).in(s, "x1", rows, groups*b, s.normal).out(s, "y", rows, groups*(a+b))
	} else {
		p.in(s, "x", rows, groups*(a+b), s.normal).out(s, "y0", rows, groups*a).out(s, "y1", rows, groups*b)
	}
	return s
}

// plainStory is a kernel of one input of some width.
func plainStory(kernel string, width int) *story {
	s := newStory(fmt.Sprint(kernel, "/", width), 3, 2, 1)
	p := s.step(kernel, 3, 2, 1)
	switch kernel {
	case "scale":
		p.io(s, "x", rows, width, s.normal).attr("factor", 0.3).attr("group", max(1, width%3*width))
		if width%3 > 0 {
			p.weight(s, "w", tensor.F32, 1, width%3*width)
			p.arrays[len(p.arrays)-1].axes = s.axes(width)
			p.arrays[len(p.arrays)-1].data = s.stored(tensor.F32, width, 1)
			p.attrs[len(p.attrs)-1].Int = int64(width)
		}
	case "softcap":
		p.io(s, "x", rows, width, s.normal).attr("cap", 1.5)
	case "slice":
		p.in(s, "x", rows, width+12, s.normal).out(s, "y", rows, width).attr("from", 4+width%7).attr("n", width)
	case "repeat":
		p.in(s, "x", rows, width, s.normal).out(s, "y", rows, 4*width).attr("streams", 4).attr("width", width)
	case "mean":
		p.in(s, "x", rows, 4*width, s.normal).out(s, "y", rows, width).attr("streams", 4).attr("width", width)
	}
	return s
}

func mixStory(streams, width int) *story {
	n := (2 + streams) * streams
	s := newStory(fmt.Sprint("mhc_mix/", streams, "x", width), 3, 2, 1)
	s.step("mhc_mix", 3, 2, 1).in(s, "x", rows, streams*width, s.normal).in(s, "m", rows, n, s.normal).weight(s, "base", tensor.F32, 1, n).weight(s, "scale", tensor.F32, 1, 3).
		out(s, "y", rows, width).out(s, "post", rows, streams).out(s, "comb", rows, streams*streams).
		attr("streams", streams).attr("width", width).attr("iters", 20).attr("eps", 1e-6)
	return s
}

func spreadStory(streams, width int) *story {
	s := newStory(fmt.Sprint("mhc_add/", streams, "x", width), 3, 2, 1)
	s.step("mhc_add", 3, 2, 1).io(s, "x", rows, streams*width, s.normal).in(s, "d", rows, width, s.normal).in(s, "post", rows, streams, s.rng.Float32).
		in(s, "comb", rows, streams*streams, s.rng.Float32).attr("streams", streams).attr("width", width)
	return s
}

func headStory(streams, width int) *story {
	s := newStory(fmt.Sprint("mhc_head/", streams, "x", width), 3, 2, 1)
	s.step("mhc_head", 3, 2, 1).in(s, "x", rows, streams*width, s.normal).in(s, "m", rows, streams, s.normal).weight(s, "base", tensor.F32, 1, streams).weight(s, "scale", tensor.F32, 1, 1).
		out(s, "y", rows, width).attr("streams", streams).attr("width", width).attr("eps", 1e-6)
	return s
}

func gatesStory(h, channels int, floor float64) *story {
	s := newStory(fmt.Sprint("delta_gates/", h, "x", channels), 5, 2, 1)
	n := h * channels
	s.step("delta_gates", 5, 2, 1).in(s, "a", rows, n, s.normal).in(s, "b", rows, h, s.normal).weight(s, "a_log", tensor.F32, 1, h).weight(s, "dt_bias", tensor.F32, 1, n).
		out(s, "g", rows, n).out(s, "beta", rows, h).attr("channels", channels).attr("floor", floor)
	return s
}

func routerStories() (list []*story) {
	for i, c := range []struct {
		experts, k, groups, top int
		score                   string
		softcap, eps            float64
		bias, scale             bool
		renorm                  int
	}{
		{8, 2, 1, 1, "softmax", 0, 0, false, false, 1},
		{128, 8, 1, 1, "softmax", 0, 0, false, false, 1},
		{61, 5, 1, 1, "softmax", 3, 0, true, true, 0},
		{160, 8, 1, 1, "sigmoid", 0, 1e-20, true, true, 1},
		{500, 6, 1, 1, "sigmoid", 0, 0, false, false, 0},
		{256, 8, 8, 4, "sigmoid", 0, 1e-20, true, false, 1},
		{12, 3, 4, 2, "sigmoid", 0, 1e-20, false, true, 1},
		{10, 2, 10, 5, "sigmoid", 0, 0, true, false, 0},
		{384, 6, 1, 1, "sqrt_softplus", 0, 1e-20, true, false, 1},
	} {
		s := newStory(fmt.Sprint("router/", i, "/", c.score, "/", c.experts), 6, 2, 1)
		p := s.step("router", 6, 2, 1).in(s, "logits", rows, c.experts, s.normal)
		if c.bias {
			p.weight(s, "bias", tensor.F32, 0.1, c.experts)
		}
		if c.scale {
			p.weight(s, "expert_scale", tensor.F32, 1, c.experts)
		}
		p.picks(s, "ids", plan.Out, c.k, nil).out(s, "weights", rows, c.k).attr("k", c.k).attr("score", c.score).attr("softcap", c.softcap).
			attr("groups", c.groups).attr("top_groups", c.top).attr("renorm", c.renorm).attr("renorm_eps", c.eps).attr("scale", 2.5)
		list = append(list, s)
	}
	for _, score := range []string{"softmax", "sigmoid", "sqrt_softplus"} {
		s := newStory("hash_router/"+score, 4, 2, 1)
		p := s.step("hash_router", 4, 2, 1).ints("tokens", int(s.limits.Rows), []int32{3, 0, 9, 3}).in(s, "logits", rows, 40, s.normal)
		table := make([]byte, 4*10*3)
		for i := range 30 {
			table[4*i] = byte(s.rng.IntN(40))
		}
		p.add(&array{param: "table", kind: kernel.WeightArg, dtype: tensor.I32, axes: s.axes(10, 3), data: table})
		p.picks(s, "ids", plan.Out, 3, nil).out(s, "weights", rows, 3).attr("k", 3).attr("score", score).attr("renorm", len(score)%2).attr("renorm_eps", 1e-20).attr("scale", 1.5)
		list = append(list, s)
	}
	// Equal scores: the lower id first.
	s := newStory("router/ties", 2, 2, 1)
	s.step("router", 2, 2, 1).in(s, "logits", rows, 40, func() float32 { return float32(s.rng.IntN(3)) }).picks(s, "ids", plan.Out, 7, nil).out(s, "weights", rows, 7).
		attr("k", 7).attr("score", "softmax").attr("softcap", 0.0).attr("groups", 1).attr("top_groups", 1).attr("renorm", 1).attr("renorm_eps", 0.0).attr("scale", 1.0)
	return append(list, s)
}
