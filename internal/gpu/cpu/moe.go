// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"

	"github.com/metrale/metrale/internal/gpu/cpu/linear"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// router picks each row's k best experts by softmax probability.
func router(a *args) func() {
	k := a.size("k")
	logits := a.acts("logits", plan.In, 0)
	weights := a.actsLike(logits, "weights", plan.Out, k)
	ids := a.picks("ids", plan.Out, logits.max, k)
	a.word("score", "softmax")
	renorm, scale := a.flag("renorm"), float32(a.float("scale", 1))
	if a.err == nil && k > logits.n {
		a.fail("", "attribute k is %d of %d experts", k, logits.n)
	}
	level := a.dev.level
	probs := make([][]float32, a.dev.pool.Workers())
	for i := range probs {
		probs[i] = make([]float32, logits.n)
	}
	r := a.dev.region(logits.n*(k+4), func(lo, hi, worker int) {
		p := probs[worker]
		for i := lo; i < hi; i++ {
			softmax(level, p, logits.row(i))
			pick(ids[i*k:(i+1)*k], weights.row(i), p, renorm, scale)
		}
	})
	return func() { r.run(logits.rows()) }
}

// picks takes int32 [rows, k].
func (a *args) picks(param string, access plan.Access, rows, k int) []int32 {
	x, ok := a.take(param, access)
	if !ok {
		return nil
	}
	ids := stored[int32](a, x, tensor.I32)
	if len(x.Axes) != 2 || x.Axes[0].Size != int64(rows) || x.Axes[1].Size != int64(k) {
		a.fail(param, "axes %s, want [rows=%d, %d]", axesString(x.Axes), rows, k)
	}
	return ids
}

// pick writes the len(ids) largest of p, falling; of equals the lower index first. It marks the taken in p.
func pick(ids []int32, weights, p []float32, renorm bool, scale float32) {
	var sum float32
	for j := range ids {
		best := 0
		for e, v := range p {
			if v > p[best] {
				best = e
			}
		}
		ids[j], weights[j] = int32(best), p[best]
		sum += p[best]
		p[best] = -1
	}
	for j := range weights {
		if renorm {
			weights[j] /= sum
		}
		weights[j] *= scale
	}
}

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

// experts is y = Σ_slot weight * down(act(gate x) * up x), in slot order.
func experts(a *args) func() {
	k := a.size("k")
	x := a.acts("x", plan.In, 0)
	c := &linear.ExpertsCall{X: x.data, Slots: k, Act: a.act("act", vec.Silu, vec.GeluTanh), Compute: a.compute()}
	ids := a.picks("ids", plan.In, x.max, k)
	c.Weights = a.actsLike(x, "weights", plan.In, k).data
	c.GateUp, c.Experts = a.stack("gate_up", 0, 0, x.n)
	if a.err == nil && c.GateUp.N%2 != 0 {
		a.fail("gate_up", "%d rows, want gate's and as many of up", c.GateUp.N)
	}
	c.Down, _ = a.stack("down", c.Experts, x.n, c.GateUp.N/2)
	c.Y = a.actsLike(x, "y", plan.Out, x.n).data
	d := a.dev
	return func() {
		if c.Rows = x.rows(); c.Rows == 0 {
			return
		}
		c.IDs = ids[:c.Rows*k]
		for i, id := range c.IDs {
			if id < 0 || int(id) >= c.Experts {
				panic(fmt.Sprintf("row %d goes to expert %d of %d", i/k, id, c.Experts))
			}
		}
		linear.Experts(d.pool, d.linear, c)
	}
}
