// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// turning is attention with what stands around it: norms and rotation of q and k, an output gate.
type turning struct {
	attention
	rot, gated, plusOne int
	normed              bool
	style               string
	had                 []int // tokens of each sequence before the first step
	steps               [][]span
}

// given adds activations that are there already.
func (p *step) given(s *story, name string, access plan.Access, width int, data []byte) *step {
	return p.add(&array{param: name, access: access, dtype: tensor.F32, axes: s.axes(rows, width), data: data})
}

// ops plays the ops of a step of attention_step_rows that come before the append, one by one: what q, k and the gate become.
func (c turning) ops(t *testing.T, m machine, s *story, p *step) (q, k, gate []byte) {
	t.Helper()
	data := func(name string) []byte {
		return p.arrays[slices.IndexFunc(p.arrays, func(a *array) bool { return a.param == name })].data
	}
	op := func(kernel string) (*story, *step) {
		one := &story{name: s.name + " by " + kernel, limits: s.limits, states: map[string]*array{}, rng: s.rng}
		return one, one.step(kernel, p.counts[plan.Rows], p.counts[plan.Seqs], 1)
	}
	turn := func(x []byte, heads int, norm string) []byte {
		if c.normed {
			one, o := op("rms_norm")
			o.given(one, "x", plan.In, heads*c.kd, x).weight(one, "w", tensor.F32, 1, c.kd).out(one, "y", rows, heads*c.kd).
				attr("eps", 1e-6).attr("group", c.kd).attr("plus_one", c.plusOne).attr("span", 1).attr("scale", 1.0)
			o.arrays[2].data = data(norm)
			x = m.run(t, one, nil)[0]["y"]
		}
		if c.rot > 0 {
			one, o := op("rope")
			o.given(one, "x", plan.InOut, heads*c.kd, x).given(one, "angles", plan.In, c.rot, data("angles")).
				attr("heads", heads).attr("head_dim", c.kd).attr("rot", c.rot).attr("style", c.style).attr("offset", 0).attr("inverse", 0)
			x = m.run(t, one, nil)[0]["x"]
		}
		return x
	}
	q = data("q")
	if c.gated > 0 {
		one, o := op("split")
		o.given(one, "x", plan.In, 2*c.heads*c.kd, q).out(one, "y0", rows, c.heads*c.kd).out(one, "y1", rows, c.heads*c.kd).
			attr("groups", c.heads).attr("a", c.kd).attr("b", c.kd)
		both := m.run(t, one, nil)[0]
		q, gate = both["y0"], both["y1"]
	}
	return turn(q, c.heads, "q_norm"), turn(data("k"), c.kv, "k_norm"), gate
}

// TestAttentionOfFewRows: attention_step_rows, which no kernel of the CPU computes at once, gives what its ops give there one by one,
// within its tolerance: of keys that are few, shared by the blocks of a cluster, and by clusters. A step reads what the one before appended.
func TestAttentionOfFewRows(t *testing.T) {
	gpu, ref := machines(t)
	k := gpu.class.Kernels["attention_step_rows"]
	if k == nil {
		t.Skip("the class has no such kernel")
	}
	for _, c := range []turning{
		{attention: attention{heads: 4, kv: 2, kd: 64}, rot: 64, style: "half", normed: true, gated: 1, had: []int{40, 0, 17},
			steps: [][]span{{{0, 40, 43}, {1, 0, 2}, {2, 17, 18}}, {{1, 2, 3}, {0, 43, 50}}}},
		{attention: attention{heads: 8, kv: 1, kd: 128, window: 20}, rot: 64, style: "interleaved", normed: true, plusOne: 1, had: []int{100, 9},
			steps: [][]span{{{0, 100, 101}, {1, 9, 12}}, {{1, 12, 14}}}},
		{attention: attention{heads: 10, kv: 1, kd: 256, softcap: 5, sinks: true}, rot: 256, style: "half", had: []int{300, 0},
			steps: [][]span{{{0, 300, 301}, {1, 0, 1}}, {{0, 301, 303}}}},
		{attention: attention{heads: 6, kv: 1, kd: 64, sinks: true}, rot: 32, style: "half", had: []int{700},
			steps: [][]span{{{0, 700, 702}}, {{0, 702, 703}}}}, // several clusters
		{attention: attention{heads: 4, kv: 2, kd: 128}, style: "half", gated: 1, had: []int{500, 30},
			steps: [][]span{{{0, 500, 507}, {1, 30, 31}}, {{1, 31, 32}, {0, 507, 508}}}}, // of up to 8 rows
	} {
		c.vd, c.dtype = c.kd, tensor.BF16
		name := fmt.Sprintf("attention_step_rows/%d:%d/%d/window %d", c.heads, c.kv, c.kd, c.window)
		t.Run(name, func(t *testing.T) {
			most, lengths := 0, slices.Clone(c.had)
			for _, spans := range c.steps {
				most = max(most, rowsOf(spans))
				for _, x := range spans {
					lengths[x.seq] = x.hi
				}
			}
			s := newStory(name, most, len(c.had), 1)
			s.limits.Pages = 64
			g := s.page(lengths...)
			fused, parts := *s, *s
			c.before(s, g)
			fused.steps, parts.steps = slices.Clone(s.steps), slices.Clone(s.steps)
			for _, spans := range c.steps {
				p := c.fused(s, g, spans)
				if err := refuses(k, p); err != nil {
					t.Fatal(err)
				}
				fused.steps = append(fused.steps, p)
				from := len(s.steps)
				c.parts(t, ref, s, g, p, spans)
				parts.steps = append(parts.steps, s.steps[from:]...)
			}
			got, want := gpu.run(t, &fused, nil), ref.run(t, &parts, nil)
			for i, p := range fused.steps[1:] {
				y := want[1+2*i+1]
				if c.gated > 0 {
					y = c.gate(t, ref, s, p, y)
				}
				worst := compare(t, s, p, gpu.tolerance(p, k), got[1+i], y)
				t.Logf("step %d: worst error %.2g of the tolerance", i, worst)
			}
		})
	}
}

// before appends the tokens that the sequences have.
func (c turning) before(s *story, g *paging) {
	var spans []span
	for i, n := range c.had {
		if n > 0 {
			spans = append(spans, span{i, 0, n})
		}
	}
	limits := s.limits
	s.limits.Rows = int64(rowsOf(spans))
	c.append(s, g, spans, nil, nil)
	s.limits = limits
}

// append is kv_append of k and v, or of some.
func (c turning) append(s *story, g *paging, spans []span, k, v []byte) {
	p := s.step("kv_append", rowsOf(spans), len(spans), 1)
	if k == nil {
		p.in(s, "k", rows, c.kv*c.kd, s.normal).in(s, "v", rows, c.kv*c.kd, s.normal)
	} else {
		p.given(s, "k", plan.In, c.kv*c.kd, k).given(s, "v", plan.In, c.kv*c.kd, v)
	}
	c.pools(s, g, p.place(g, spans, 0, true), plan.InOut).attr("v_dim", c.vd)
}

func (c turning) pools(s *story, g *paging, p *step, access plan.Access) *step {
	return p.state(s, "k_pool", access, c.dtype, g.pages, true, c.kv*c.kd).state(s, "v_pool", access, c.dtype, g.pages, true, c.kv*c.vd).
		attr("kv_heads", c.kv).attr("head_dim", c.kd)
}

// fused is a launch of attention_step_rows.
func (c turning) fused(s *story, g *paging, spans []span) *step {
	p := s.step("attention_step_rows", rowsOf(spans), len(spans), 1).in(s, "q", rows, (1+c.gated)*c.heads*c.kd, s.normal).
		in(s, "k", rows, c.kv*c.kd, s.normal).in(s, "v", rows, c.kv*c.kd, s.normal)
	if c.normed {
		p.weight(s, "q_norm", tensor.F32, 1, c.kd).weight(s, "k_norm", tensor.F32, 1, c.kd)
	}
	if c.sinks {
		p.weight(s, "sinks", tensor.F32, 1, c.heads)
	}
	if c.rot > 0 {
		p.in(s, "angles", rows, c.rot, func() float32 { return float32(math.Cos(2 * math.Pi * s.rng.Float64())) })
	}
	p.place(g, spans, c.window, false).place(g, spans, 0, true).ints("meet", 8192, make([]int32, 8192))
	return c.pools(s, g, p, plan.InOut).out(s, "y", rows, c.heads*c.kd).attr("heads", c.heads).attr("rot", c.rot).attr("style", c.style).attr("gated", c.gated).
		attr("window", c.window).attr("plus_one", c.plusOne).attr("eps", 1e-6).attr("scale", 1/math.Sqrt(float64(c.kd))).attr("softcap", c.softcap)
}

// parts are kv_append and attention of what a fused step p has.
func (c turning) parts(t *testing.T, m machine, s *story, g *paging, p *step, spans []span) {
	t.Helper()
	q, k, _ := c.ops(t, m, s, p)
	var v []byte
	var sinks *array
	for _, a := range p.arrays {
		switch a.param {
		case "v":
			v = a.data
		case "sinks":
			sinks = a
		}
	}
	c.append(s, g, spans, k, v)
	o := s.step("attention", rowsOf(spans), len(spans), 1).given(s, "q", plan.In, c.heads*c.kd, q).place(g, spans, c.window, false)
	if sinks != nil {
		o.add(sinks)
	}
	c.pools(s, g, o, plan.In).out(s, "y", rows, c.heads*c.vd).attr("v_dim", c.vd).attr("heads", c.heads).attr("scale", 1/math.Sqrt(float64(c.kd))).
		attr("window", c.window).attr("softcap", c.softcap)
}

// gate is y by the gates of a fused step p.
func (c turning) gate(t *testing.T, m machine, s *story, p *step, y map[string][]byte) map[string][]byte {
	t.Helper()
	_, _, g := c.ops(t, m, s, p)
	one := &story{name: s.name + " by gate", limits: s.limits, states: map[string]*array{}, rng: s.rng}
	one.step("gate", p.counts[plan.Rows], p.counts[plan.Seqs], 1).given(one, "x", plan.InOut, c.heads*c.kd, y["y"]).given(one, "g", plan.In, c.heads*c.kd, g).attr("act", "sigmoid")
	return map[string][]byte{"y": m.run(t, one, nil)[0]["x"]}
}
