// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"strconv"

	"github.com/metrale/metrale/internal/gpu/cpu/linear"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// panel takes a weight [n, k] in layout panel; 0 is any size.
func (a *args) panel(param string, n, k int) linear.Weight {
	x, ok := a.take(param, plan.In)
	if !ok {
		return linear.Weight{}
	}
	if len(x.Axes) != 2 || n > 0 && x.Axes[0].Size != int64(n) || k > 0 && x.Axes[1].Size != int64(k) {
		a.fail(param, "axes %s, want [%s, %s]", axesString(x.Axes), sizeString(n), sizeString(k))
		return linear.Weight{}
	}
	return a.packed(param, x.DType, x.Layout, 1, x.Axes[0].Size, x.Axes[1].Size)
}

// packed is the memory of count packed matrices [n, k].
func (a *args) packed(param string, d tensor.DType, layoutName string, count, n, k int64) linear.Weight {
	if layoutName != "panel" {
		a.fail(param, "layout %q, the kernel takes panel", layoutName)
		return linear.Weight{}
	}
	size, err := linear.PackedSize(d, n, k)
	if err != nil {
		a.fail(param, "%v", err)
		return linear.Weight{}
	}
	x, _ := a.b.Arg(param)
	return linear.Weight{D: d, N: int(n), K: int(k), Data: a.bytes(x, count*size)}
}

func sizeString(n int) string {
	if n == 0 {
		return "any"
	}
	return strconv.Itoa(n)
}

// compute is the attribute compute.
func (a *args) compute() linear.Compute {
	if a.word("compute", "f32", "q16") == "q16" {
		return linear.Q16
	}
	return linear.F32
}

// multiply is what the linear kernels run.
func (a *args) multiply(x matrix, c *linear.Call) func() {
	d := a.dev
	return func() {
		if c.Rows = x.rows(); c.Rows > 0 {
			linear.Run(d.pool, d.linear, c)
		}
	}
}

// oneLinear is y = x wᵀ · scale + bias, or added to y.
func oneLinear(mode linear.Mode, access plan.Access) func(a *args) func() {
	return func(a *args) func() {
		x := a.acts("x", plan.In, 0)
		w := a.panel("w", 0, x.n)
		scale, bias := a.optFloats("scale", w.N), a.optFloats("bias", w.N)
		y := a.actsLike(x, "y", access, w.N)
		return a.multiply(x, &linear.Call{X: x.data, W: []linear.Weight{w}, Scale: [][]float32{scale}, Bias: [][]float32{bias}, Y: [][]float32{y.data},
			Mode: mode, Compute: a.compute()})
	}
}

// linearN is up to four linears of the same rows.
func linearN(a *args) func() {
	n := a.size("n")
	if a.err == nil && n > 4 {
		a.fail("", "attribute n is %d, want at most 4", n)
		return nil
	}
	x := a.acts("x", plan.In, 0)
	c := &linear.Call{X: x.data, Compute: a.compute()}
	for i := range n {
		w := a.panel(fmt.Sprint("w", i), 0, x.n)
		c.W = append(c.W, w)
		c.Scale = append(c.Scale, a.optFloats(fmt.Sprint("scale", i), w.N))
		c.Bias = append(c.Bias, a.optFloats(fmt.Sprint("bias", i), w.N))
		c.Y = append(c.Y, a.actsLike(x, fmt.Sprint("y", i), plan.Out, w.N).data)
	}
	return a.multiply(x, c)
}

// linearGlu is y = act(x wgᵀ) * (x wuᵀ).
func linearGlu(a *args) func() {
	x := a.acts("x", plan.In, 0)
	g := a.panel("wg", 0, x.n)
	u := a.panel("wu", g.N, x.n)
	scale := [][]float32{a.optFloats("sg", g.N), a.optFloats("su", g.N)}
	y := a.actsLike(x, "y", plan.Out, g.N)
	return a.multiply(x, &linear.Call{X: x.data, W: []linear.Weight{g, u}, Scale: scale, Y: [][]float32{y.data},
		Glu: a.act("act", gluActs...), Limit: float32(a.float("limit", 0)), Compute: a.compute()})
}

// embed is y = scale * w[token].
func embed(a *args) func() {
	y := a.acts("y", plan.Out, 0)
	w := a.panel("w", 0, y.n)
	tokens := a.ints("tokens", int64(y.max))
	scale := float32(a.float("scale", 1))
	r := a.dev.region(8*y.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			t := int(tokens[i])
			if t < 0 || t >= w.N {
				panic(fmt.Sprintf("token %d of a vocabulary of %d", t, w.N))
			}
			linear.Embed(y.row(i), w, t, scale)
		}
	})
	return func() { r.run(y.rows()) }
}
