// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"

	"github.com/metrale/metrale/internal/gpu/cpu/linear"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
)

// stack takes a weight [experts, n, k] in layout panel; 0 is any size.
func (a *args) stack(param string, experts, n, k int) (w linear.Weight, count int) {
	x, ok := a.take(param, plan.In)
	if !ok {
		return w, 0
	}
	fits := len(x.Axes) == 3
	for i, want := range [...]int{experts, n, k} {
		fits = fits && (want == 0 || x.Axes[i].Size == int64(want))
	}
	if !fits {
		a.fail(param, "axes %s, want [%s, %s, %s]", axesString(x.Axes), sizeString(experts), sizeString(n), sizeString(k))
		return w, 0
	}
	return a.packed(param, x.DType, x.Layout, x.Axes[0].Size, x.Axes[1].Size, x.Axes[2].Size), int(x.Axes[0].Size)
}

// experts is y = Σ_slot weight * down(act(gate x) * up x), or of down(act(up x)), or of x, in slot order.
func experts(a *args) func() {
	k := a.size("k")
	x := a.acts("x", plan.In, 0)
	c := &linear.ExpertsCall{X: x.data, Slots: k, Act: a.act("act", append(gluActs[:len(gluActs):len(gluActs)], vec.Relu2)...), Limit: float32(a.float("limit", 0)), Gated: a.int("gated", 1) == 1, Identity: a.int("identity", 0), Compute: a.compute()}
	ids := a.picks("ids", plan.In, x.max, k)
	c.Weights = a.actsLike(x, "weights", plan.In, k).data
	c.GateUp, c.Experts = a.stack("gate_up", 0, 0, x.n)
	inner := c.GateUp.N
	if c.Gated {
		inner = a.divides("gate_up", inner, 2)
	}
	c.Down, _ = a.stack("down", c.Experts, x.n, inner)
	c.GateUpScale, c.DownScale = a.optFloats("gate_up_scale", c.Experts*c.GateUp.N), a.optFloats("down_scale", c.Experts*x.n)
	c.GateUpBias, c.DownBias = a.optFloats("gate_up_bias", c.Experts*c.GateUp.N), a.optFloats("down_bias", c.Experts*x.n)
	c.Y = a.actsLike(x, "y", plan.Out, x.n).data
	d := a.dev
	return func() {
		if c.Rows = x.rows(); c.Rows == 0 {
			return
		}
		c.IDs = ids[:c.Rows*k]
		for i, id := range c.IDs {
			if id < 0 || int(id) >= c.Experts+c.Identity {
				panic(fmt.Sprintf("row %d goes to expert %d of %d", i/k, id, c.Experts+c.Identity))
			}
		}
		linear.Experts(d.pool, d.linear, c)
	}
}
