// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// newLatentWorld is a world with one key per token, whose first part is the value.
func newLatentWorld(rng *rand.Rand, heads, dim, vd int, lengths ...int) *world {
	w := newWorld(rng, heads, 1, dim, vd, lengths...)
	for s, k := range w.k {
		for i := range w.v[s] {
			w.v[s][i] = k[i/vd*dim+i%vd]
		}
	}
	return w
}

// latentStep is world.step with latent attention.
func (w *world) latentStep(t *testing.T, d *Device, p pools, spans ...span) [][]float32 {
	x := w.rows(spans)
	w.appendRows(t, d, x, p.k)
	r := x.rig(t, d, "latent_attention")
	r.floats("q", plan.In, x.q, r.rows(), ax("n", w.heads*w.kd))
	x.state(r, "pool", plan.In, p.k, w.kd)
	x.places(r)
	y := r.floats("y", plan.Out, nil, r.rows(), ax("n", w.heads*w.vd))
	r.attr("heads", w.heads).attr("head_dim", w.kd).attr("v_dim", w.vd).attr("scale", 1/math.Sqrt(float64(w.kd))).attr("window", w.window).run()
	return x.cut(t, y)
}

// appendRows writes the rows' keys to a pool.
func (w *world) appendRows(t *testing.T, d *Device, x *rows, pool gpu.HostBuffer) {
	r := x.rig(t, d, "append")
	r.floats("k", plan.In, x.k, r.rows(), ax("n", w.kd))
	r.ints("slots", plan.In, r.rows(), x.slots...)
	x.state(r, "pool", plan.InOut, pool, w.kd)
	r.run()
}

func latentWorlds() map[string]*world {
	rng := rand.New(rand.NewPCG(7, 11))
	ws := map[string]*world{
		"4 heads":        newLatentWorld(rng, 4, 48, 32, 140, 33, 1),
		"128 heads":      newLatentWorld(rng, 128, 80, 64, 40, 9),
		"20 heads":       newLatentWorld(rng, 20, 36, 20, 70, 18),
		"37 heads":       newLatentWorld(rng, 37, 24, 24, 20, 3),
		"a long context": newLatentWorld(rng, 2, 20, 16, 600),
	}
	windowed := newLatentWorld(rng, 6, 48, 48, 110, 20)
	windowed.window = 40
	ws["window"] = windowed
	for _, d := range []tensor.DType{tensor.BF16, tensor.F16} {
		w := newLatentWorld(rng, 6, 72, 64, 70, 10)
		w.dtype = d
		ws["pool "+d.String()] = w
	}
	return ws
}

func TestLatentAttention(t *testing.T) {
	all := latentWorlds()
	eachPath(t, func(t *testing.T, d *Device) {
		for name, w := range all {
			t.Run(name, func(t *testing.T) { w.check(t, d, w.latentStep) })
		}
	})
}

// sparseStep is latentStep over the listed positions.
func (w *world) sparseStep(t *testing.T, d *Device, p pools, spans ...span) [][]float32 {
	x := w.rows(spans)
	w.appendRows(t, d, x, p.k)
	top := 0
	for _, lists := range w.lists {
		for _, l := range lists {
			top = max(top, len(l)+1)
		}
	}
	r := x.rig(t, d, "sparse_attention")
	r.floats("q", plan.In, x.q, r.rows(), ax("n", w.heads*w.kd))
	axes := plan.Axes{r.rows(), ax("top", top)}
	ids := view[int32](r.arg("ids", plan.In, tensor.I32, "", 4*axes.Shape().Elems(), axes))
	for i := range ids {
		ids[i] = -1
	}
	for i, at := range x.pos {
		copy(ids[i*top:], w.lists[spans[x.seq[i]].seq][at])
	}
	x.state(r, "pool", plan.In, p.k, w.kd)
	x.places(r)
	y := r.floats("y", plan.Out, nil, r.rows(), ax("n", w.heads*w.vd))
	r.attr("heads", w.heads).attr("head_dim", w.kd).attr("v_dim", w.vd).attr("top", top).attr("scale", 1/math.Sqrt(float64(w.kd))).run()
	return x.cut(t, y)
}

// list makes each position see some of those up to its own: about one of every.
func (w *world) list(rng *rand.Rand, every int) {
	w.lists = make([][][]int32, len(w.q))
	for s := range w.lists {
		for p := range len(w.q[s]) / (w.heads * w.kd) {
			var l []int32
			for j := range p + 1 {
				if rng.IntN(every) == 0 || j == p {
					l = append(l, int32(j))
				}
			}
			w.lists[s] = append(w.lists[s], l)
		}
	}
}

func TestSparseAttention(t *testing.T) {
	all := latentWorlds()
	delete(all, "window")
	for _, w := range all {
		w.list(rand.New(rand.NewPCG(1, 1)), 3)
	}
	eachPath(t, func(t *testing.T, d *Device) {
		for name, w := range all {
			t.Run(name, func(t *testing.T) {
				w.check(t, d, w.sparseStep)

				// A list of all keys is no list.
				w := *w
				w.list(rand.New(rand.NewPCG(1, 1)), 1)
				s := span{0, 0, len(w.q[0]) / (w.heads * w.kd)}
				sameBits(t, "all keys", w.sparseStep(t, d, w.newPools(t, d), s)[0], w.latentStep(t, d, w.newPools(t, d), s)[0])
			})
		}
	})
}

// indexStep appends the rows' keys and chooses: ids by row.
func (w *world) indexStep(t *testing.T, d *Device, p pools, weights [][]float32, top int, spans ...span) [][]int32 {
	x := w.rows(spans)
	w.appendRows(t, d, x, p.k)
	r := x.rig(t, d, "index")
	r.floats("q", plan.In, x.q, r.rows(), ax("n", w.heads*w.kd))
	var rowWeights []float32
	for _, s := range spans {
		rowWeights = append(rowWeights, weights[s.seq][s.lo*w.heads:s.hi*w.heads]...)
	}
	r.floats("w", plan.In, rowWeights, r.rows(), ax("heads", w.heads))
	x.state(r, "pool", plan.In, p.k, w.kd)
	x.places(r)
	axes := plan.Axes{r.rows(), ax("top", top)}
	ids := view[int32](r.arg("ids", plan.Out, tensor.I32, "", 4*axes.Shape().Elems(), axes))
	r.attr("heads", w.heads).attr("head_dim", w.kd).attr("top", top).run()
	var out [][]int32
	for i := range x.pos {
		out = append(out, slices.Clone(ids[i*top:(i+1)*top]))
	}
	return out
}

// chosen is the twin: the top positions up to p, of equal scores the lower, rising, then -1.
func (w *world) chosen(seq, p, top int, weights []float32) []int32 {
	scores := make([]float64, p+1)
	order := make([]int32, p+1)
	for j := range scores {
		order[j] = int32(j)
		for h := range w.heads {
			dot := 0.0
			for i := range w.kd {
				dot += float64(w.q[seq][(p*w.heads+h)*w.kd+i]) * w.stored(w.k[seq][j*w.kd+i])
			}
			scores[j] += float64(weights[h]) * max(dot, 0)
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
	order = order[:min(top, len(order))]
	slices.Sort(order)
	for len(order) < top {
		order = append(order, -1)
	}
	return order
}

func TestIndex(t *testing.T) {
	type indexed struct {
		*world
		weights [][]float32
		top     int
		want    [][]int32 // of each position of both sequences
	}
	cases := map[string]*indexed{}
	for _, c := range []struct{ heads, dim, top int }{{16, 32, 8}, {3, 20, 1}, {9, 128, 40}, {5, 16, 300}} {
		for _, dtype := range []tensor.DType{tensor.F32, tensor.BF16} {
			rng := rand.New(rand.NewPCG(5, uint64(c.heads)))
			x := &indexed{world: newWorld(rng, c.heads, 1, c.dim, c.dim, 150, 40), top: c.top}
			x.dtype = dtype
			whole := func(v []float32) { // sums are exact, and ties common
				for i := range v {
					v[i] = float32(math.Round(float64(v[i])))
				}
			}
			for s := range x.q {
				whole(x.q[s])
				whole(x.k[s])
				x.weights = append(x.weights, normals(rng, len(x.q[s])/c.dim))
				whole(x.weights[s])
				for p := range len(x.weights[s]) / c.heads {
					x.want = append(x.want, x.chosen(s, p, c.top, x.weights[s][p*c.heads:]))
				}
			}
			cases[fmt.Sprint(c, dtype)] = x
		}
	}
	eachPath(t, func(t *testing.T, d *Device) {
		for name, x := range cases {
			t.Run(name, func(t *testing.T) {
				for i, ids := range x.indexStep(t, d, x.newPools(t, d), x.weights, x.top, span{0, 0, 150}, span{1, 0, 40}) {
					if !slices.Equal(ids, x.want[i]) {
						t.Fatalf("row %d: %v, want %v", i, ids, x.want[i])
					}
				}
				p, at := x.newPools(t, d), 0
				for _, n := range []int{1, 70, 9, 70} {
					for i, ids := range x.indexStep(t, d, p, x.weights, x.top, span{0, at, at + n}) {
						if !slices.Equal(ids, x.want[at+i]) {
							t.Fatalf("position %d in chunks: %v, want %v", at+i, ids, x.want[at+i])
						}
					}
					at += n
				}
			})
		}
	})
}
