// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/gpu/cpu/attn"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

func TestCompress(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, k := range []struct{ n, ratio, series int }{{40, 4, 1}, {32, 4, 2}, {300, 4, 2}, {16, 16, 1}, {24, 2, 2}} {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(23, 29))
				width, sums := k.series*k.n, 2*k.series-1
				kv := [][]float32{normals(rng, 21*width), normals(rng, 9*width)}
				gate := [][]float32{normals(rng, 21*width), normals(rng, 9*width)}
				ape := normals(rng, k.ratio*width)
				size := 3 * sums * k.n
				(&recurrence{
					size: size, width: k.n,
					step: func(t *testing.T, d *Device, state []float32, parts []part) []float32 {
						r := newRig(t, d, "compress", count(parts), len(parts), 0)
						r.floats("kv", plan.In, gather(kv, width, parts), r.rows(), ax("n", width))
						r.floats("gate", plan.In, gather(gate, width, parts), r.rows(), ax("n", width))
						r.floats("ape", plan.In, ape, ax("ratio", k.ratio), ax("n", width))
						var positions []int32
						for _, p := range parts {
							for i := p.lo; i < p.hi; i++ {
								positions = append(positions, int32(i))
							}
						}
						r.ints("positions", plan.In, r.rows(), positions...)
						mem := r.slots(state, size, parts)
						y := r.floats("y", plan.Out, nil, r.rows(), ax("n", k.n))
						r.attr("n", k.n).attr("ratio", k.ratio).attr("series", k.series).run()
						copy(state, mem)
						allPoison(t, "y", y[count(parts)*k.n:])
						return y
					},
					want: func(seq, rows int) (y, state []float64) {
						// pooled is a softmax over the tokens [lo, hi) of a window, of one series.
						pooled := func(lo, hi, series, c int) (top, sum, value float64) {
							at := func(v []float32, t int) float64 { return float64(v[t*width+series*k.n+c]) }
							score := func(t int) float64 { return at(gate[seq], t) + at(ape, t%k.ratio) }
							top = math.Inf(-1)
							for t := lo; t < hi; t++ {
								top = math.Max(top, score(t))
							}
							for t := lo; t < hi; t++ {
								sum += math.Exp(score(t) - top)
								value += math.Exp(score(t)-top) * at(kv[seq], t)
							}
							return top, sum, value
						}
						for t := range rows {
							start := t / k.ratio * k.ratio
							for c := range k.n {
								if t%k.ratio < k.ratio-1 {
									y = append(y, 0)
									continue
								}
								top, sum, value := pooled(start, t+1, k.series-1, c)
								if k.series == 2 && start > 0 {
									top0, sum0, value0 := pooled(start-k.ratio, start, 0, c)
									f := math.Exp(top0 - top)
									sum, value = sum+f*sum0, value+f*value0
								}
								y = append(y, value/sum)
							}
						}
						start := (rows - 1) / k.ratio * k.ratio
						state = make([]float64, size)
						keep := func(i, lo, hi, series int) {
							for c := range k.n {
								state[3*i*k.n+c], state[(3*i+1)*k.n+c], state[(3*i+2)*k.n+c] = pooled(lo, hi, series, c)
							}
						}
						for s := range k.series {
							keep(s, start, rows, s)
						}
						if k.series == 2 && start > 0 {
							keep(2, start-k.ratio, start, 0)
						}
						return y, state
					},
				}).check(t, d, tolExp)
			})
		}
	})
}

// Rows that end a window are kept where attention looks for them, in pages larger and smaller than a window.
func TestAppendEntry(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, every := range []int{1, 4, 16, 32} {
			const n, rows, page, pages = 24, 64, 16, 6
			x := normals(rand.New(rand.NewPCG(3, 1)), rows*n)
			table := []int32{4, 0, 5, 2}
			r := newRig(t, d, "append_entry", rows, 1, 0)
			r.b.Limits.PageSize = page
			r.floats("k", plan.In, x, r.rows(), ax("n", n))
			var slots, positions []int32
			for i := range rows {
				slots, positions = append(slots, table[i/page]*page+int32(i%page)), append(positions, int32(i))
			}
			r.ints("slots", plan.In, r.rows(), slots...)
			r.ints("positions", plan.In, r.rows(), positions...)
			e := attn.Entries{Dim: n, Every: every, PageSize: page}
			pool := r.floats("pool", plan.InOut, nil, ax("pages", pages), ax("entries", e.PerPage()), ax("n", n))
			r.attr("every", every).run()
			e.D, e.F32 = r.b.Args[len(r.b.Args)-1].DType, pool
			for i := range rows / every {
				sameBits(t, fmt.Sprintf("every %d, entry %d", every, i), e.At(d.level, table, i, nil), x[(i*every+every-1)*n:][:n])
			}
			allPoison(t, "page 1", pool[e.PerPage()*n:2*e.PerPage()*n])
		}
	})
}

// The entries of highest score among those that end at a row or before it, or their tokens and the window that has not ended.
func TestIndexEntries(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, c := range []struct{ heads, dim, every, top int }{{16, 32, 4, 2}, {3, 20, 4, 40}, {2, 16, 32, 1}, {5, 24, 1, 7}} {
			for _, tokens := range []int{0, 1} {
				t.Run(fmt.Sprint(c, tokens), func(t *testing.T) {
					const rows, page = 150, 16
					rng := rand.New(rand.NewPCG(31, uint64(c.dim)))
					pages := (rows + page - 1) / page
					table := make([]int32, pages)
					for i, p := range rng.Perm(pages) {
						table[i] = int32(p)
					}
					e := attn.Entries{D: tensor.F32, Dim: c.dim, Every: c.every, PageSize: page}
					e.F32 = make([]float32, pages*e.PerPage()*c.dim)
					keys := normals(rng, rows/c.every*c.dim)
					for i := range rows / c.every {
						last := i*c.every + c.every - 1
						e.Append(d.level, int(table[last/page])*page+last%page, keys[i*c.dim:][:c.dim])
					}
					q, w := normals(rng, rows*c.heads*c.dim), normals(rng, rows*c.heads)
					r := newRig(t, d, "index_entries", rows, 1, 0)
					r.b.Limits.PageSize, r.b.Limits.Pages = page, int64(pages)
					r.floats("q", plan.In, q, r.rows(), ax("n", c.heads*c.dim))
					r.floats("w", plan.In, w, r.rows(), ax("heads", c.heads))
					r.floats("pool", plan.In, e.F32, ax("pages", pages), ax("entries", e.PerPage()), ax("n", c.dim))
					positions := make([]int32, rows)
					for i := range positions {
						positions[i] = int32(i)
					}
					r.ints("positions", plan.In, r.rows(), positions...)
					r.ints("row_seq", plan.In, r.rows(), make([]int32, rows)...)
					axes := plan.Axes{ax("seqs", int(r.b.Limits.Seqs)), ax("pages", pages)}
					copy(view[int32](r.arg("block_table", plan.In, tensor.I32, "", 4*axes.Shape().Elems(), axes)), table)
					width := c.top + tokens*(c.top+1)*(c.every-1)
					axes = plan.Axes{r.rows(), ax("width", width)}
					ids := view[int32](r.arg("ids", plan.Out, tensor.I32, "", 4*axes.Shape().Elems(), axes))
					r.attr("heads", c.heads).attr("head_dim", c.dim).attr("every", c.every).attr("top", c.top).attr("tokens", tokens).run()
					for p := range rows {
						var order []int32
						scores := make([]float64, (p+1)/c.every)
						for i := range scores {
							order = append(order, int32(i))
							for h := range c.heads {
								dot := 0.0
								for k := range c.dim {
									dot += float64(q[(p*c.heads+h)*c.dim+k]) * float64(keys[i*c.dim+k])
								}
								scores[i] += float64(w[p*c.heads+h]) * max(dot, 0)
							}
						}
						slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
						order = order[:min(c.top, len(order))]
						slices.Sort(order)
						want := order
						if tokens == 1 {
							want = nil
							for _, i := range order {
								for j := range c.every {
									want = append(want, i*int32(c.every)+int32(j))
								}
							}
							for j := (p + 1) / c.every * c.every; j <= p; j++ {
								want = append(want, int32(j))
							}
						}
						for len(want) < width {
							want = append(want, -1)
						}
						if got := ids[p*width:][:width]; !slices.Equal(got, want) {
							t.Fatalf("position %d: %v, want %v", p, got, want)
						}
					}
				})
			}
		}
	})
}

// Entries that have ended or are listed, and the tokens of a window, in one softmax with sinks; rows alone give the same bits.
func TestEntryAttention(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, c := range []struct{ heads, dim, window, every, top int }{
			{4, 32, 16, 16, 0}, {4, 32, 16, 4, 3}, {3, 20, 5, 4, 0}, {40, 24, 128, 2, 60}, {2, 16, 8, 32, 0}, {2, 24, 16, 1, 0},
		} {
			t.Run(fmt.Sprint(c), func(t *testing.T) {
				const rows, page = 150, 16
				rng := rand.New(rand.NewPCG(37, uint64(c.dim)))
				pages := (rows + page - 1) / page
				table := make([]int32, pages)
				for i, p := range rng.Perm(pages) {
					table[i] = int32(p)
				}
				keys, q, sinks := normals(rng, rows*c.dim), normals(rng, rows*c.heads*c.dim), normals(rng, c.heads)
				pool := attn.Pool{D: tensor.F32, F32: make([]float32, pages*page*c.dim), KVHeads: 1, Dim: c.dim}
				for i := range rows {
					pool.AppendK(d.level, table[i/page]*page+int32(i%page), keys[i*c.dim:][:c.dim])
				}
				e := attn.Entries{D: tensor.F32, Dim: c.dim, Every: c.every, PageSize: page}
				e.F32 = make([]float32, pages*e.PerPage()*c.dim)
				entries := normals(rng, rows/c.every*c.dim)
				for i := range rows / c.every {
					last := i*c.every + c.every - 1
					e.Append(d.level, int(table[last/page])*page+last%page, entries[i*c.dim:][:c.dim])
				}
				var ids []int32 // of each row, some of the entries that have ended
				for p := range rows {
					list := rng.Perm((p + 1) / c.every)
					list = list[:min(c.top, len(list))]
					slices.Sort(list)
					for i := range c.top {
						if i < len(list) {
							ids = append(ids, int32(list[i]))
						} else {
							ids = append(ids, -1)
						}
					}
				}
				scale := 1 / math.Sqrt(float64(c.dim))
				run := func(lo, hi int) []float32 {
					name := "entry_attention"
					if c.top > 0 {
						name = "sparse_entry_attention"
					}
					r := newRig(t, d, name, hi-lo, 1, 0)
					r.b.Limits.PageSize, r.b.Limits.Pages = page, int64(pages)
					r.floats("q", plan.In, q[lo*c.heads*c.dim:hi*c.heads*c.dim], r.rows(), ax("n", c.heads*c.dim))
					if c.top > 0 {
						axes := plan.Axes{r.rows(), ax("top", c.top)}
						copy(view[int32](r.arg("ids", plan.In, tensor.I32, "", 4*axes.Shape().Elems(), axes)), ids[lo*c.top:hi*c.top])
						r.attr("top", c.top)
					}
					r.floats("sinks", plan.In, sinks, ax("heads", c.heads))
					r.floats("pool", plan.In, pool.F32, ax("pages", pages), ax("page", page), ax("n", c.dim))
					r.floats("entries", plan.In, e.F32, ax("pages", pages), ax("entries", e.PerPage()), ax("n", c.dim))
					var positions []int32
					for i := lo; i < hi; i++ {
						positions = append(positions, int32(i))
					}
					r.ints("positions", plan.In, r.rows(), positions...)
					r.ints("row_seq", plan.In, r.rows(), make([]int32, hi-lo)...)
					axes := plan.Axes{ax("seqs", int(r.b.Limits.Seqs)), ax("pages", pages)}
					copy(view[int32](r.arg("block_table", plan.In, tensor.I32, "", 4*axes.Shape().Elems(), axes)), table)
					y := r.floats("y", plan.Out, nil, r.rows(), ax("n", c.heads*c.dim))
					r.attr("heads", c.heads).attr("head_dim", c.dim).attr("v_dim", c.dim).attr("window", c.window).attr("every", c.every)
					r.attr("scale", scale).run()
					allPoison(t, "y", y[(hi-lo)*c.heads*c.dim:])
					return y[:(hi-lo)*c.heads*c.dim]
				}
				y := run(0, rows)
				for p := range rows {
					var seen [][]float32
					switch {
					case c.top == 0:
						for i := range (p + 1) / c.every {
							seen = append(seen, entries[i*c.dim:][:c.dim])
						}
					default:
						for _, i := range ids[p*c.top:][:c.top] {
							if i >= 0 {
								seen = append(seen, entries[int(i)*c.dim:][:c.dim])
							}
						}
					}
					for i := max(0, p+1-c.window); i <= p; i++ {
						seen = append(seen, keys[i*c.dim:][:c.dim])
					}
					want := make([]float64, c.heads*c.dim)
					for h := range c.heads {
						sum := math.Exp(float64(sinks[h]))
						for _, k := range seen {
							dot := 0.0
							for i, v := range k {
								dot += float64(v) * float64(q[(p*c.heads+h)*c.dim+i])
							}
							w := math.Exp(dot * scale)
							sum += w
							for i, v := range k {
								want[h*c.dim+i] += w * float64(v)
							}
						}
						for i := range c.dim {
							want[h*c.dim+i] /= sum
						}
					}
					near(t, fmt.Sprint("position ", p), y[p*c.heads*c.dim:][:c.heads*c.dim], want, tolSum)
				}
				for _, cut := range [][2]int{{0, 1}, {63, 64}, {70, 90}, {149, 150}} {
					sameBits(t, fmt.Sprint(cut), run(cut[0], cut[1]), y[cut[0]*c.heads*c.dim:cut[1]*c.heads*c.dim])
				}
			})
		}
	})
}
