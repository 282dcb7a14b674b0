// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
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
