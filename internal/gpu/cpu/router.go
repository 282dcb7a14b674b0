// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// routing picks experts by score plus bias and weighs them by score alone.
type routing struct {
	level       vec.Level
	score       string
	softcap     float32   // of logits: softcap*tanh(x/softcap); 0 is none
	bias        []float32 // [E] added for the choice only; nil is none
	expertScale []float32 // [E] factor of each expert's weight; nil is none
	groups      int       // equal groups of consecutive experts
	topGroups   int       // those that experts are chosen from: the ones whose two best sum highest
	renorm      bool      // weights sum to 1
	eps, scale  float32
}

// routerScratch is one worker's memory.
type routerScratch struct {
	scores, choice []float32 // [E]
	groups         []float32 // [groups]
}

// router picks each row's k best experts.
func router(a *args) func() {
	k := a.size("k")
	logits := a.acts("logits", plan.In, 0)
	weights := a.actsLike(logits, "weights", plan.Out, k)
	ids := a.picks("ids", plan.Out, logits.max, k)
	c := routing{level: a.dev.level, score: a.word("score", "softmax", "sigmoid", "sqrt_softplus"), softcap: float32(a.float("softcap", 0)),
		bias: a.optFloats("bias", logits.n), expertScale: a.optFloats("expert_scale", logits.n),
		groups: a.size("groups", 1), topGroups: a.size("top_groups", 1),
		renorm: a.flag("renorm"), eps: float32(a.float("renorm_eps", 0)), scale: float32(a.float("scale", 1))}
	switch per := a.divides("logits", logits.n, c.groups); {
	case a.err != nil:
		return nil
	case c.topGroups > c.groups:
		a.fail("", "attribute top_groups is %d of %d groups", c.topGroups, c.groups)
	case k > c.topGroups*per:
		a.fail("", "attribute k is %d of %d experts", k, c.topGroups*per)
	}
	scratch := a.routerScratch(logits.n, c.groups)
	r := a.dev.region(logits.n*(k+4), func(lo, hi, worker int) {
		for i := lo; i < hi; i++ {
			c.row(&scratch[worker], ids[i*k:(i+1)*k], weights.row(i), logits.row(i))
		}
	})
	return func() { r.run(logits.rows()) }
}

func (a *args) routerScratch(experts, groups int) []routerScratch {
	scratch := make([]routerScratch, a.dev.pool.Workers())
	for i := range scratch {
		scratch[i] = routerScratch{make([]float32, experts), make([]float32, experts), make([]float32, groups)}
	}
	return scratch
}

// hashRouter takes the experts that a table names for each row's token.
func hashRouter(a *args) func() {
	k := a.size("k")
	logits := a.acts("logits", plan.In, 0)
	weights := a.actsLike(logits, "weights", plan.Out, k)
	ids := a.picks("ids", plan.Out, logits.max, k)
	tokens := a.ints("tokens", int64(logits.max))
	c := routing{level: a.dev.level, score: a.word("score", "softmax", "sigmoid", "sqrt_softplus"),
		renorm: a.flag("renorm"), eps: float32(a.float("renorm_eps", 0)), scale: float32(a.float("scale", 1))}
	x, _ := a.b.Arg("table")
	if a.err == nil && (len(x.Axes) != 2 || x.Axes[1].Size != int64(k)) {
		a.fail("table", "axes %s, want [vocabulary, %d]", axesString(x.Axes), k)
	}
	table := a.floats("table", int(x.Axes.Shape().Elems()))
	if a.err != nil {
		return nil
	}
	scratch := a.routerScratch(logits.n, 0)
	r := a.dev.region(logits.n*4, func(lo, hi, worker int) {
		s := &scratch[worker]
		for i := lo; i < hi; i++ {
			named := table[int(tokens[i])*k:][:k]
			for j, e := range named {
				if e < 0 || int(e) >= logits.n {
					panic(fmt.Sprintf("token %d names expert %v of %d", tokens[i], e, logits.n))
				}
				ids[i*k+j] = int32(e)
			}
			c.scores(s.scores, logits.row(i))
			c.weigh(s, ids[i*k:(i+1)*k], weights.row(i))
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

// row routes one row.
func (c *routing) row(s *routerScratch, ids []int32, weights, logits []float32) {
	c.scores(s.scores, logits)
	copy(s.choice, s.scores)
	if c.bias != nil {
		c.level.Add(s.choice, c.bias)
	}
	if c.topGroups < c.groups {
		c.limit(s)
	}
	for j := range ids {
		ids[j] = int32(takeBest(s.choice))
	}
	c.weigh(s, ids, weights)
}

// weigh gives the chosen experts their weights.
func (c *routing) weigh(s *routerScratch, ids []int32, weights []float32) {
	var sum float32
	for j, e := range ids {
		weights[j] = s.scores[e]
		sum += s.scores[e]
	}
	for j := range weights {
		if c.renorm {
			weights[j] /= sum + c.eps
		}
		weights[j] *= c.scale
		if c.expertScale != nil {
			weights[j] *= c.expertScale[ids[j]]
		}
	}
}

// scores maps logits to what experts are weighed by.
func (c *routing) scores(p, logits []float32) {
	if c.softcap > 0 {
		for e, x := range logits {
			p[e] = float32(math.Tanh(float64(x/c.softcap))) * c.softcap
		}
		logits = p
	}
	switch c.score {
	case "softmax":
		softmax(c.level, p, logits)
	case "sigmoid":
		c.level.Apply(vec.Sigmoid, p, logits)
	case "sqrt_softplus":
		c.level.Apply(vec.Softplus, p, logits)
		for e, x := range p {
			p[e] = float32(math.Sqrt(float64(x)))
		}
	}
}

// limit keeps the choice to the best groups.
func (c *routing) limit(s *routerScratch) {
	per := len(s.choice) / c.groups
	for g := range s.groups {
		members := s.choice[g*per : (g+1)*per]
		first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
		for _, v := range members {
			if v > first {
				first, second = v, first
			} else if v > second {
				second = v
			}
		}
		if s.groups[g] = first; per > 1 {
			s.groups[g] += second
		}
	}
	for range c.groups - c.topGroups { // drop the worst; of equals the higher index
		worst := c.groups - 1
		for g, v := range slices.Backward(s.groups) {
			if v < s.groups[worst] {
				worst = g
			}
		}
		s.groups[worst] = float32(math.Inf(1))
		for e := worst * per; e < (worst+1)*per; e++ {
			s.choice[e] = float32(math.Inf(-1))
		}
	}
}

// takeBest gives the largest value's index, of equals the lowest, and takes it out.
func takeBest(x []float32) int {
	best := 0
	for e, v := range x {
		if v > x[best] {
			best = e
		}
	}
	x[best] = float32(math.Inf(-1))
	return best
}
