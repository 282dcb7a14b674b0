// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// routerCase is a way of routing.
type routerCase struct {
	experts, k              int
	score                   string
	groups, top             int
	bias, expertScale       bool
	renorm                  int
	renormEps, scale, limit float64
}

// route is the obvious router, in float64: ids and weights of one row.
func (c *routerCase) route(x, bias, expertScale []float32) (ids []int, weights []float64) {
	scores, choice, total := make([]float64, c.experts), make([]float64, c.experts), 0.0
	for e, v := range x {
		l := float64(v)
		if c.limit > 0 {
			l = c.limit * math.Tanh(l/c.limit)
		}
		switch c.score {
		case "softmax":
			scores[e] = math.Exp(l)
			total += scores[e]
		case "sigmoid":
			scores[e] = 1 / (1 + math.Exp(-l))
		case "sqrt_softplus":
			scores[e] = math.Sqrt(math.Log1p(math.Exp(l)))
		}
	}
	order := make([]int, c.experts)
	for e := range scores {
		order[e] = e
		if c.score == "softmax" {
			scores[e] /= total
		}
		choice[e] = scores[e]
		if c.bias {
			choice[e] += float64(bias[e])
		}
	}
	falling := func(v []float64) func(a, b int) int { // of equals the lower index first
		return func(a, b int) int {
			if math.Abs(v[a]-v[b]) < 1e-6 {
				return 0
			}
			return map[bool]int{true: -1, false: 1}[v[a] > v[b]]
		}
	}
	per, sums, groups := c.experts/c.groups, make([]float64, c.groups), make([]int, c.groups)
	for g := range groups {
		best := slices.Sorted(slices.Values(choice[g*per : (g+1)*per]))
		groups[g], sums[g] = g, best[per-1]
		if per > 1 {
			sums[g] += best[per-2]
		}
	}
	slices.SortStableFunc(groups, falling(sums))
	order = slices.DeleteFunc(order, func(e int) bool { return !slices.Contains(groups[:c.top], e/per) })
	slices.SortStableFunc(order, falling(choice))
	ids = order[:c.k]
	norm := 1.0
	if c.renorm == 1 {
		norm = c.renormEps
		for _, e := range ids {
			norm += scores[e]
		}
	}
	for _, e := range ids {
		w := scores[e] / norm * c.scale
		if c.expertScale {
			w *= float64(expertScale[e])
		}
		weights = append(weights, w)
	}
	return ids, weights
}

func TestRouter(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, c := range []routerCase{
			{experts: 8, k: 2, score: "softmax", groups: 1, top: 1, renorm: 1, scale: 1},
			{experts: 128, k: 8, score: "softmax", groups: 1, top: 1, renorm: 1, scale: 2.5},
			{experts: 60, k: 4, score: "softmax", groups: 1, top: 1, scale: 1},
			{experts: 4, k: 4, score: "softmax", groups: 1, top: 1, scale: 1},
			{experts: 1, k: 1, score: "softmax", groups: 1, top: 1, renorm: 1, scale: 1},
			{experts: 12, k: 3, score: "softmax", groups: 1, top: 1, bias: true, scale: 6},
			{experts: 128, k: 8, score: "softmax", groups: 1, top: 1, renorm: 1, expertScale: true, scale: 1},
			{experts: 32, k: 4, score: "sigmoid", groups: 8, top: 4, bias: true, renorm: 1, renormEps: 1e-20, scale: 2.5},
			{experts: 32, k: 4, score: "sigmoid", groups: 8, top: 1, bias: true, renorm: 1, renormEps: 0.5, scale: 1},
			{experts: 6, k: 2, score: "sigmoid", groups: 6, top: 3, renorm: 1, scale: 1},
			{experts: 64, k: 6, score: "sigmoid", groups: 1, top: 1, bias: true, renorm: 1, scale: 1, limit: 2},
			{experts: 24, k: 5, score: "sqrt_softplus", groups: 1, top: 1, bias: true, renorm: 1, renormEps: 1e-20, scale: 1.5},
		} {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				const rows = 40
				rng := rand.New(rand.NewPCG(17, 19))
				steps := func(n int, step float64) []float32 { // ties are common
					x := normals(rng, n)
					for i := range x {
						x[i] = float32(math.Round(float64(x[i])/step) * step)
					}
					return x
				}
				x, bias, expertScale := steps(rows*c.experts, 0.5), steps(c.experts, 0.25), normals(rng, c.experts)
				r := newRig(t, d, "router", rows, 1, 0)
				r.floats("logits", plan.In, x, r.rows(), ax("experts", c.experts))
				if c.bias {
					r.floats("bias", plan.In, bias, ax("experts", c.experts))
				}
				if c.expertScale {
					r.floats("expert_scale", plan.In, expertScale, ax("experts", c.experts))
				}
				axes := plan.Axes{r.rows(), ax("k", c.k)}
				ids := view[int32](r.arg("ids", plan.Out, tensor.I32, "", 4*axes.Shape().Elems(), axes))
				got := r.floats("weights", plan.Out, nil, axes...)
				r.attr("k", c.k).attr("score", c.score).attr("softcap", c.limit).attr("groups", c.groups).attr("top_groups", c.top)
				r.attr("renorm", c.renorm).attr("renorm_eps", c.renormEps).attr("scale", c.scale).run()
				for i := range rows {
					wantIDs, want := c.route(x[i*c.experts:(i+1)*c.experts], bias, expertScale)
					for j, e := range wantIDs {
						if int(ids[i*c.k+j]) != e {
							t.Fatalf("row %d: experts %v, want %v", i, ids[i*c.k:(i+1)*c.k], wantIDs)
						}
					}
					near(t, "weight", got[i*c.k:(i+1)*c.k], want, 2*tolExp)
				}
				allPoison(t, "weights", got[rows*c.k:])
			})
		}
	})
}

func TestRouterRefusesTooFewExperts(t *testing.T) {
	d := open(t, Options{Threads: 1})
	r := newRig(t, d, "router", 1, 1, 0)
	r.floats("logits", plan.In, nil, r.rows(), ax("experts", 8))
	axes := plan.Axes{r.rows(), ax("k", 3)}
	r.arg("ids", plan.Out, tensor.I32, "", 4*axes.Shape().Elems(), axes)
	r.floats("weights", plan.Out, nil, axes...)
	r.attr("k", 3).attr("score", "sigmoid").attr("groups", 4).attr("top_groups", 1)
	if _, err := d.Bind(r.b); err == nil {
		t.Fatal("3 experts of a group of 2")
	}
}

// A row goes to the experts that the table names for its token; only their weights come from the logits.
func TestHashRouter(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		const rows, experts, k, vocab = 20, 12, 3, 30
		rng := rand.New(rand.NewPCG(5, 8))
		x := normals(rng, rows*experts)
		var table []float32
		for range vocab {
			for _, e := range rng.Perm(experts)[:k] {
				table = append(table, float32(e))
			}
		}
		tokens := make([]int32, rows)
		for i := range tokens {
			tokens[i] = int32(rng.IntN(vocab))
		}
		r := newRig(t, d, "hash_router", rows, 1, 0)
		r.ints("tokens", plan.In, r.rows(), tokens...)
		r.floats("logits", plan.In, x, r.rows(), ax("experts", experts))
		r.floats("table", plan.In, table, ax("vocab", vocab), ax("k", k))
		axes := plan.Axes{r.rows(), ax("k", k)}
		ids := view[int32](r.arg("ids", plan.Out, tensor.I32, "", 4*axes.Shape().Elems(), axes))
		got := r.floats("weights", plan.Out, nil, axes...)
		r.attr("k", k).attr("score", "sqrt_softplus").attr("renorm", 1).attr("renorm_eps", 1e-20).attr("scale", 1.5).run()
		for i, token := range tokens {
			want, sum := make([]float64, k), 0.0
			for j, e := range table[token*k:][:k] {
				if ids[i*k+j] != int32(e) {
					t.Fatalf("row %d: experts %v, the table says %v", i, ids[i*k:][:k], table[token*k:][:k])
				}
				want[j] = math.Sqrt(softplus(float64(x[i*experts+int(e)])))
				sum += want[j]
			}
			for j := range want {
				want[j] *= 1.5 / sum
			}
			near(t, fmt.Sprint("row ", i), got[i*k:][:k], want, tolExp)
		}
		bad := view[float32](r.b.Args[3].Buf.(*buffer).data[r.b.Args[3].Off:])
		bad[tokens[0]*k] = experts
		if err := d.Launch(r.bind()); err == nil {
			t.Error("an expert that does not exist")
		}
	})
}
