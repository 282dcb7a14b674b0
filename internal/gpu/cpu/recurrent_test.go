// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/plan"
)

// part is a sequence's rows in a step of a recurrent kernel.
type part struct {
	seq, lo, hi int
	slot        int32
	fresh       int32
}

// slots adds the step fields and the state, and gives the state's memory.
func (r *rig) slots(state []float32, size int, parts []part) []float32 {
	cu, slot, fresh := []int32{0}, []int32{}, []int32{}
	for _, p := range parts {
		cu = append(cu, cu[len(cu)-1]+int32(p.hi-p.lo))
		slot, fresh = append(slot, p.slot), append(fresh, p.fresh)
	}
	n := int(r.b.Limits.Seqs)
	r.ints("cu_rows", plan.In, ax("n", n+1), cu...)
	r.ints("state_slot", plan.In, ax("seqs", n), slot...)
	r.ints("fresh", plan.In, ax("seqs", n), fresh...)
	return r.floats("state", plan.InOut, state, ax("slots", len(state)/size), ax("n", size))
}

func count(parts []part) (rows int) {
	for _, p := range parts {
		rows += p.hi - p.lo
	}
	return rows
}

// gather puts the rows of parts from whole sequences behind each other.
func gather(seqs [][]float32, n int, parts []part) (v []float32) {
	for _, p := range parts {
		v = append(v, seqs[p.seq][p.lo*n:p.hi*n]...)
	}
	return v
}

// recurrence is a kernel with slot state over two sequences of 21 and 9 rows.
type recurrence struct {
	size, width int // of a slot's state; of y
	step        func(t *testing.T, d *Device, state []float32, parts []part) (y []float32)
	want        func(seq, rows int) (y, state []float64)
}

// check runs both sequences whole and in ragged steps from poisoned slots.
func (c *recurrence) check(t *testing.T, d *Device, tol float64) {
	newState := func() []float32 {
		s := make([]float32, 3*c.size)
		for i := range s {
			s[i] = poison
		}
		return s
	}
	state := newState()
	whole := c.step(t, d, state, []part{{0, 0, 21, 2, 1}, {1, 0, 9, 0, 1}})
	for seq, rows := range []int{21, 9} {
		y, s := c.want(seq, rows)
		at := seq * 21 * c.width
		near(t, fmt.Sprintf("sequence %d", seq), whole[at:at+rows*c.width], y, tol)
		slot := 2 - 2*seq
		near(t, fmt.Sprintf("state %d", seq), state[slot*c.size:(slot+1)*c.size], s, tol)
	}
	allPoison(t, "slot 1", state[c.size:2*c.size])

	again := newState()
	var got [2][]float32
	for _, parts := range [][]part{
		{{1, 0, 1, 0, 1}},
		{{0, 0, 2, 2, 1}, {1, 1, 6, 0, 0}},
		{{0, 2, 3, 2, 0}},
		{{1, 6, 9, 0, 0}, {0, 3, 21, 2, 0}},
	} {
		y := c.step(t, d, again, parts)
		for _, p := range parts {
			n := (p.hi - p.lo) * c.width
			got[p.seq] = append(got[p.seq], y[:n]...)
			y = y[n:]
		}
	}
	sameBits(t, "ragged", slices.Concat(got[0], got[1]), whole[:30*c.width])
	sameBits(t, "ragged state", again, state)
}

func TestConv(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, k := range []struct {
			c, taps int
			act     string
			bias    bool
		}{{48, 4, "silu", false}, {300, 4, "silu", true}, {5, 3, "none", false}, {600, 2, "silu", true}} {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(7, 9))
				x := [][]float32{normals(rng, 21*k.c), normals(rng, 9*k.c)}
				w, bias := normals(rng, k.c*k.taps), make([]float32, k.c)
				if k.bias {
					bias = normals(rng, k.c)
				}
				size := k.c * (k.taps - 1)
				(&recurrence{
					size: size, width: k.c,
					step: func(t *testing.T, d *Device, state []float32, parts []part) []float32 {
						r := newRig(t, d, "conv", count(parts), len(parts), 0)
						r.floats("x", plan.In, gather(x, k.c, parts), r.rows(), ax("n", k.c))
						r.floats("w", plan.In, w, ax("n", k.c), ax("k", k.taps))
						if k.bias {
							r.floats("bias", plan.In, bias, ax("n", k.c))
						}
						mem := r.slots(state, size, parts)
						y := r.floats("y", plan.Out, nil, r.rows(), ax("n", k.c))
						r.attr("kernel", k.taps).attr("act", k.act).run()
						copy(state, mem)
						allPoison(t, "y", y[count(parts)*k.c:])
						return y
					},
					want: func(seq, rows int) (y, state []float64) {
						in := func(t, c int) float64 {
							if t < 0 {
								return 0
							}
							return float64(x[seq][t*k.c+c])
						}
						for t := range rows {
							for c := range k.c {
								s := float64(bias[c])
								for j := range k.taps {
									s += float64(w[c*k.taps+j]) * in(t-k.taps+1+j, c)
								}
								if k.act == "silu" {
									s = silu(s)
								}
								y = append(y, s)
							}
						}
						for j := 1; j < k.taps; j++ {
							for c := range k.c {
								state = append(state, in(rows-k.taps+j, c))
							}
						}
						return y, state
					},
				}).check(t, d, tolExp)
			})
		}
	})
}

func TestDeltaRule(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, k := range []struct{ kh, vh, kd, vd, channels int }{
			{2, 4, 16, 16, 1}, {2, 2, 128, 128, 1}, {1, 3, 24, 20, 1}, {1, 1, 64, 96, 1}, {2, 2, 16, 16, 16}, {1, 2, 24, 20, 24}, {2, 2, 128, 128, 128},
		} {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(11, 13))
				var q, key, v, g, beta [][]float32
				for _, n := range []int{21, 9} {
					unit := func(m int) []float32 { // rows of about unit length, as after l2_norm
						x := normals(rng, n*m*k.kd)
						for i := range x {
							x[i] /= float32(math.Sqrt(float64(k.kd)))
						}
						return x
					}
					q, key, v = append(q, unit(k.kh)), append(key, unit(k.kh)), append(v, normals(rng, n*k.vh*k.vd))
					gg, bb := normals(rng, n*k.vh*k.channels), normals(rng, n*k.vh)
					for i := range gg {
						gg[i] = -gg[i] * gg[i]
					}
					for i := range bb {
						bb[i] = float32(sigmoid(float64(bb[i])))
					}
					g, beta = append(g, gg), append(beta, bb)
				}
				size := k.vh * k.kd * k.vd
				(&recurrence{
					size: size, width: k.vh * k.vd,
					step: func(t *testing.T, d *Device, state []float32, parts []part) []float32 {
						r := newRig(t, d, "delta_rule", count(parts), len(parts), 0)
						r.floats("q", plan.In, gather(q, k.kh*k.kd, parts), r.rows(), ax("n", k.kh*k.kd))
						r.floats("k", plan.In, gather(key, k.kh*k.kd, parts), r.rows(), ax("n", k.kh*k.kd))
						r.floats("v", plan.In, gather(v, k.vh*k.vd, parts), r.rows(), ax("n", k.vh*k.vd))
						r.floats("g", plan.In, gather(g, k.vh*k.channels, parts), r.rows(), ax("n", k.vh*k.channels))
						r.floats("beta", plan.In, gather(beta, k.vh, parts), r.rows(), ax("n", k.vh))
						mem := r.slots(state, size, parts)
						y := r.floats("y", plan.Out, nil, r.rows(), ax("n", k.vh*k.vd))
						r.attr("k_heads", k.kh).attr("v_heads", k.vh).attr("k_dim", k.kd).attr("v_dim", k.vd).attr("channels", k.channels).run()
						copy(state, mem)
						allPoison(t, "y", y[count(parts)*k.vh*k.vd:])
						return y
					},
					want: func(seq, rows int) (y, state []float64) {
						s := make([]float64, size)
						for t := range rows {
							for h := range k.vh {
								kh := h / (k.vh / k.kh)
								at := func(i, j int) *float64 { return &s[(h*k.kd+i)*k.vd+j] }
								for j := range k.vd {
									kv, o := 0.0, 0.0
									for i := range k.kd {
										*at(i, j) *= math.Exp(float64(g[seq][(t*k.vh+h)*k.channels+i%k.channels]))
										kv += *at(i, j) * float64(key[seq][(t*k.kh+kh)*k.kd+i])
									}
									delta := float64(beta[seq][t*k.vh+h]) * (float64(v[seq][(t*k.vh+h)*k.vd+j]) - kv)
									for i := range k.kd {
										*at(i, j) += float64(key[seq][(t*k.kh+kh)*k.kd+i]) * delta
										o += *at(i, j) * float64(q[seq][(t*k.kh+kh)*k.kd+i])
									}
									y = append(y, o)
								}
							}
						}
						return y, s
					},
					// Sums over k_dim ≤ 128 of terms near 1, 21 tokens deep, contracted by the decay: 1e-5.
				}).check(t, d, 1e-5)
			})
		}
	})
}

func TestSSD(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, k := range []struct{ heads, groups, dim, n int }{{8, 2, 16, 16}, {2, 1, 64, 128}, {3, 3, 20, 24}} {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(17, 19))
				inner := k.heads * k.dim
				width := inner + 2*k.groups*k.n
				xbc := [][]float32{normals(rng, 21*width), normals(rng, 9*width)}
				dt := [][]float32{normals(rng, 21*k.heads), normals(rng, 9*k.heads)}
				aLog, bias, skip := normals(rng, k.heads), normals(rng, k.heads), normals(rng, k.heads)
				size := inner * k.n
				(&recurrence{
					size: size, width: inner,
					step: func(t *testing.T, d *Device, state []float32, parts []part) []float32 {
						r := newRig(t, d, "ssd", count(parts), len(parts), 0)
						r.floats("xbc", plan.In, gather(xbc, width, parts), r.rows(), ax("n", width))
						r.floats("dt", plan.In, gather(dt, k.heads, parts), r.rows(), ax("n", k.heads))
						r.floats("a_log", plan.In, aLog, ax("n", k.heads))
						r.floats("dt_bias", plan.In, bias, ax("n", k.heads))
						r.floats("d", plan.In, skip, ax("n", k.heads))
						mem := r.slots(state, size, parts)
						y := r.floats("y", plan.Out, nil, r.rows(), ax("n", inner))
						r.attr("heads", k.heads).attr("groups", k.groups).attr("head_dim", k.dim).attr("state_dim", k.n).run()
						copy(state, mem)
						allPoison(t, "y", y[count(parts)*inner:])
						return y
					},
					want: func(seq, rows int) (y, state []float64) {
						s := make([]float64, size) // [heads, n, dim]
						for t := range rows {
							row := wide(xbc[seq][t*width : (t+1)*width])
							for h := range k.heads {
								b := row[inner+h/(k.heads/k.groups)*k.n:]
								c := b[k.groups*k.n:]
								step := softplus(float64(dt[seq][t*k.heads+h]) + float64(bias[h]))
								decay := math.Exp(-math.Exp(float64(aLog[h])) * step)
								for p := range k.dim {
									x, o := row[h*k.dim+p], 0.0
									for n := range k.n {
										at := &s[(h*k.n+n)*k.dim+p]
										*at = *at*decay + step*x*b[n]
										o += *at * c[n]
									}
									y = append(y, o+float64(skip[h])*x)
								}
							}
						}
						return y, s
					},
					// Sums over 128 terms near 10, with a state that holds some ten tokens: 1e-5.
				}).check(t, d, 1e-5)
			})
		}
	})
}

func TestGatherRows(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		x := normals(rand.New(rand.NewPCG(1, 1)), 7*33)
		from := []int32{0, 3, 6}
		r := newRig(t, d, "gather_rows", 7, 2, 3)
		r.floats("x", plan.In, x, r.rows(), ax("n", 33))
		r.ints("out_rows", plan.In, r.outs(), from...)
		y := r.floats("y", plan.Out, nil, r.outs(), ax("n", 33))
		r.run()
		for i, at := range from {
			sameBits(t, fmt.Sprint("row ", i), y[i*33:(i+1)*33], x[at*33:(at+1)*33])
		}
		allPoison(t, "y", y[3*33:])
	})
}
