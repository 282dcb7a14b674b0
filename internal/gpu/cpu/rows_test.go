// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
)

// attrs are a launch's attributes.
type attrs map[string]any

// rowCase is a kernel whose rows do not meet: a twin in float64 gives one row's outputs.
type rowCase struct {
	name   string
	kernel string
	attrs  attrs
	in     map[string]int // widths of arguments that are read
	io     map[string]int // read and written
	out    map[string]int // written
	w      map[string]int // sizes of weights and constants
	pos    bool           // takes positions
	twin   func(r *row)
	tol    float64 // on |got-want|/(1+|want|)
}

// row is one row's arguments in float64; the twin fills out, and io in place.
type row struct {
	v   map[string][]float64
	pos int
}

func silu(x float64) float64     { return x * sigmoid(x) }
func sigmoid(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func softplus(x float64) float64 { return math.Log1p(math.Exp(x)) }
func gelu(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func geluErf(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }

// layerNormTwin normalises segments in place; w and bias may be nil.
func layerNormTwin(x, w, bias []float64, group int, eps float64) {
	for at := 0; at < len(x); at += group {
		seg, mean := x[at:at+group], 0.0
		for _, v := range seg {
			mean += v / float64(group)
		}
		for i := range seg {
			seg[i] -= mean
		}
		rmsTwin(seg, nil, group, eps, 0)
		for i := range seg {
			if w != nil {
				seg[i] *= w[i]
			}
			if bias != nil {
				seg[i] += bias[i]
			}
		}
	}
}

// rms normalises segments in place; w may be nil.
func rmsTwin(x, w []float64, group int, eps, plus float64) {
	for at := 0; at < len(x); at += group {
		s := 0.0
		for _, v := range x[at : at+group] {
			s += v * v
		}
		s = 1 / math.Sqrt(s/float64(group)+eps)
		for i := range group {
			x[at+i] *= s
			if w != nil {
				x[at+i] *= w[i] + plus
			}
		}
	}
}

// Tolerances. With u = 2^-24, an elementwise result has a few roundings: 8u ≈ 5e-7. Functions through exp add its 2u,
// amplified by at most |x| < 6 of the inputs: 2e-6. A sum of n squares in 16 lanes errs by (n/16+4)u relative, which
// rsqrt halves: 4e-6 at n = 2048.
const (
	tolOnce = 5e-7
	tolExp  = 2e-6
	tolSum  = 4e-6
)

func rowCases() []rowCase {
	var cs []rowCase
	for _, n := range []int{16, 48, 100, 576, 2048} {
		cs = append(cs,
			rowCase{name: fmt.Sprint("rms_norm/", n), kernel: "rms_norm", attrs: attrs{"eps": 1e-5}, in: map[string]int{"x": n},
				out: map[string]int{"y": n}, w: map[string]int{"w": n}, tol: tolSum,
				twin: func(r *row) { copy(r.v["y"], r.v["x"]); rmsTwin(r.v["y"], r.v["w"], n, 1e-5, 0) }},
			rowCase{name: fmt.Sprint("add_rms_norm/", n), kernel: "add_rms_norm", attrs: attrs{"eps": 1e-6, "plus_one": 1},
				io: map[string]int{"x": n}, in: map[string]int{"d": n}, out: map[string]int{"y": n}, w: map[string]int{"w": n}, tol: tolSum,
				twin: func(r *row) {
					for i, d := range r.v["d"] {
						r.v["x"][i] += d
					}
					copy(r.v["y"], r.v["x"])
					rmsTwin(r.v["y"], r.v["w"], n, 1e-6, 1)
				}},
			rowCase{name: fmt.Sprint("add/", n), kernel: "add", io: map[string]int{"x": n}, in: map[string]int{"y": n}, tol: tolOnce,
				twin: func(r *row) {
					for i, y := range r.v["y"] {
						r.v["x"][i] += y
					}
				}},
		)
		for name, f := range map[string]func(float64) float64{"silu": silu, "gelu_tanh": gelu} {
			cs = append(cs, rowCase{name: fmt.Sprint("glu/", name, "/", n), kernel: "glu", attrs: attrs{"act": name},
				in: map[string]int{"g": n, "u": n}, out: map[string]int{"y": n}, tol: tolExp,
				twin: func(r *row) {
					for i, g := range r.v["g"] {
						r.v["y"][i] = f(g) * r.v["u"][i]
					}
				}})
		}
		cs = append(cs,
			rowCase{name: fmt.Sprint("scale/", n), kernel: "scale", attrs: attrs{"factor": 0.3}, io: map[string]int{"x": n}, tol: tolOnce,
				twin: func(r *row) {
					for i := range r.v["x"] {
						r.v["x"][i] *= 0.3
					}
				}},
			rowCase{name: fmt.Sprint("scale/one/", n), kernel: "scale", io: map[string]int{"x": n}, w: map[string]int{"w": 1}, tol: tolOnce,
				twin: func(r *row) {
					for i := range r.v["x"] {
						r.v["x"][i] *= r.v["w"][0]
					}
				}},
			rowCase{name: fmt.Sprint("scale/each/", n), kernel: "scale", attrs: attrs{"factor": -2.0, "group": n}, io: map[string]int{"x": n}, w: map[string]int{"w": n}, tol: tolOnce,
				twin: func(r *row) {
					for i, w := range r.v["w"] {
						r.v["x"][i] *= -2 * w
					}
				}},
			rowCase{name: fmt.Sprint("softcap/", n), kernel: "softcap", attrs: attrs{"cap": 1.5}, io: map[string]int{"x": n}, tol: tolOnce,
				twin: func(r *row) {
					for i, x := range r.v["x"] {
						r.v["x"][i] = 1.5 * math.Tanh(x/1.5)
					}
				}},
			rowCase{name: fmt.Sprint("slice/", n), kernel: "slice", attrs: attrs{"from": n / 3, "n": n - n/3 - n/4}, in: map[string]int{"x": n}, out: map[string]int{"y": n - n/3 - n/4},
				twin: func(r *row) { copy(r.v["y"], r.v["x"][n/3:]) }},
		)
		const limit = 0.75
		within := func(u float64) float64 { return min(max(u, -limit), limit) }
		for name, f := range map[string]func(g, u float64) float64{
			"silu":            func(g, u float64) float64 { return silu(min(g, limit)) * within(u) },
			"silu_then_limit": func(g, u float64) float64 { return min(silu(g), limit) * within(u) },
			"swiglu_oai":      func(g, u float64) float64 { g = min(g, limit); return g * sigmoid(1.702*g) * (within(u) + 1) },
		} {
			cs = append(cs, rowCase{name: fmt.Sprint("glu/", name, "/limit/", n), kernel: "glu", attrs: attrs{"act": name, "limit": limit},
				in: map[string]int{"g": n, "u": n}, out: map[string]int{"y": n}, tol: tolExp,
				twin: func(r *row) {
					for i, g := range r.v["g"] {
						r.v["y"][i] = f(g, r.v["u"][i])
					}
				}})
		}
		for name, f := range map[string]func(float64) float64{"silu": silu, "gelu_tanh": gelu, "gelu": geluErf} {
			cs = append(cs, rowCase{name: fmt.Sprint("act/", name, "/", n), kernel: "act", attrs: attrs{"act": name},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, tol: tolExp,
				twin: func(r *row) {
					for i, x := range r.v["x"] {
						r.v["y"][i] = f(x)
					}
				}})
		}
		for name, f := range map[string]func(float64) float64{"silu": silu, "sigmoid": sigmoid, "softplus": softplus} {
			for _, per := range []int{1, 4} {
				cs = append(cs, rowCase{name: fmt.Sprint("gate/", name, "/", n, "/", per), kernel: "gate", attrs: attrs{"act": name},
					io: map[string]int{"x": n}, in: map[string]int{"g": n / per}, tol: tolExp,
					twin: func(r *row) {
						for i := range r.v["x"] {
							r.v["x"][i] *= f(r.v["g"][i/per])
						}
					}})
			}
		}
	}
	for _, group := range []int{16, 20, 64, 128} {
		n := group * 3
		cs = append(cs,
			rowCase{name: fmt.Sprint("rms_norm/group/", group), kernel: "rms_norm", attrs: attrs{"eps": 1e-5, "group": group},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, w: map[string]int{"w": group}, tol: tolSum,
				twin: func(r *row) { copy(r.v["y"], r.v["x"]); rmsTwin(r.v["y"], r.v["w"], group, 1e-5, 0) }},
			rowCase{name: fmt.Sprint("rms_norm/span/", group), kernel: "rms_norm", attrs: attrs{"eps": 1e-5, "group": group, "span": 3},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, w: map[string]int{"w": n}, tol: tolSum,
				twin: func(r *row) {
					copy(r.v["y"], r.v["x"])
					rmsTwin(r.v["y"], nil, group, 1e-5, 0)
					for i, w := range r.v["w"] {
						r.v["y"][i] *= w
					}
				}},
			rowCase{name: fmt.Sprint("rms_norm/bare/", group), kernel: "rms_norm", attrs: attrs{"eps": 1e-5, "group": group},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, tol: tolSum,
				twin: func(r *row) { copy(r.v["y"], r.v["x"]); rmsTwin(r.v["y"], nil, group, 1e-5, 0) }},
			rowCase{name: fmt.Sprint("rms_norm/scale/", group), kernel: "rms_norm", attrs: attrs{"eps": 1e-5, "group": group, "scale": 1.75},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, w: map[string]int{"w": group}, tol: tolSum,
				twin: func(r *row) {
					copy(r.v["y"], r.v["x"])
					rmsTwin(r.v["y"], r.v["w"], group, 1e-5, 0)
					for i := range r.v["y"] {
						r.v["y"][i] *= 1.75
					}
				}},
			rowCase{name: fmt.Sprint("layer_norm/", group), kernel: "layer_norm", attrs: attrs{"eps": 1e-6, "group": group},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, w: map[string]int{"w": group, "bias": group}, tol: tolSum,
				twin: func(r *row) { copy(r.v["y"], r.v["x"]); layerNormTwin(r.v["y"], r.v["w"], r.v["bias"], group, 1e-6) }},
			rowCase{name: fmt.Sprint("layer_norm/bare/", group), kernel: "layer_norm", attrs: attrs{"eps": 1e-6, "group": group},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, tol: tolSum,
				twin: func(r *row) { copy(r.v["y"], r.v["x"]); layerNormTwin(r.v["y"], nil, nil, group, 1e-6) }},
			rowCase{name: fmt.Sprint("l2_norm/", group), kernel: "l2_norm", attrs: attrs{"eps": 1e-6, "group": group, "scale": 0.125},
				in: map[string]int{"x": n}, out: map[string]int{"y": n}, tol: tolSum,
				twin: func(r *row) { // sum, not mean: eps*group turns one into the other
					copy(r.v["y"], r.v["x"])
					rmsTwin(r.v["y"], nil, group, 1e-6/float64(group), 0)
					for i := range r.v["y"] {
						r.v["y"][i] *= 0.125 / math.Sqrt(float64(group))
					}
				}},
		)
		for name, f := range map[string]func(float64) float64{"silu": silu, "sigmoid": sigmoid} {
			cs = append(cs, rowCase{name: fmt.Sprint("gated_norm/", name, "/", group), kernel: "gated_norm",
				attrs: attrs{"eps": 1e-6, "group": group, "act": name}, in: map[string]int{"x": n, "z": n}, out: map[string]int{"y": n},
				w: map[string]int{"w": group}, tol: tolSum,
				twin: func(r *row) {
					copy(r.v["y"], r.v["x"])
					rmsTwin(r.v["y"], r.v["w"], group, 1e-6, 0)
					for i, z := range r.v["z"] {
						r.v["y"][i] *= f(z)
					}
				}})
		}
	}
	cs = append(cs, rowCase{name: "split", kernel: "split", attrs: attrs{"groups": 3, "a": 5, "b": 2}, in: map[string]int{"x": 21},
		out: map[string]int{"y0": 15, "y1": 6}, twin: func(r *row) {
			for i, v := range r.v["x"] {
				if g, at := i/7, i%7; at < 5 {
					r.v["y0"][g*5+at] = v
				} else {
					r.v["y1"][g*2+at-5] = v
				}
			}
		}})
	cs = append(cs, rowCase{name: "join", kernel: "join", attrs: attrs{"groups": 3, "a": 5, "b": 2}, in: map[string]int{"x0": 15, "x1": 6},
		out: map[string]int{"y": 21}, twin: func(r *row) {
			for i := range r.v["y"] {
				if g, at := i/7, i%7; at < 5 {
					r.v["y"][i] = r.v["x0"][g*5+at]
				} else {
					r.v["y"][i] = r.v["x1"][g*2+at-5]
				}
			}
		}})
	cs = append(cs, rowCase{name: "position_scale", kernel: "position_scale", attrs: attrs{"beta": 0.1, "period": 8}, io: map[string]int{"x": 40},
		pos: true, tol: tolOnce, twin: func(r *row) {
			for i := range r.v["x"] {
				r.v["x"][i] *= 1 + 0.1*math.Log(1+math.Floor(float64(r.pos)/8))
			}
		}})
	cs = append(cs, rowCase{name: "rope_angles", kernel: "rope_angles", attrs: attrs{"scale": 1.3466}, out: map[string]int{"y": 24},
		w: map[string]int{"inv_freq": 12}, pos: true, tol: tolOnce, twin: func(r *row) {
			for i, f := range r.v["inv_freq"] {
				a := float64(float32(r.pos) * float32(f))
				r.v["y"][i], r.v["y"][12+i] = math.Cos(a)*1.3466, math.Sin(a)*1.3466
			}
		}})
	cs = append(cs, rowCase{name: "rope_angles/back", kernel: "rope_angles", attrs: attrs{"scale": 1.0, "back": 31}, out: map[string]int{"y": 24},
		w: map[string]int{"inv_freq": 12}, pos: true, tol: tolOnce, twin: func(r *row) {
			for i, f := range r.v["inv_freq"] {
				a := float64(float32(max(r.pos-31, 0)) * float32(f))
				r.v["y"][i], r.v["y"][12+i] = math.Cos(a), math.Sin(a)
			}
		}})
	for _, c := range []struct{ heads, dim, rot, offset int }{{3, 64, 64, 0}, {2, 40, 20, 8}, {5, 128, 96, 32}, {1, 2, 2, 0}} {
		for _, style := range []string{"half", "interleaved", "half back", "interleaved back"} {
			back := 0
			if s, ok := strings.CutSuffix(style, " back"); ok {
				style, back = s, 1
			}
			cs = append(cs, rowCase{name: fmt.Sprint("rope/", style, "/", c.dim, "/", back), kernel: "rope",
				attrs: attrs{"heads": c.heads, "head_dim": c.dim, "rot": c.rot, "offset": c.offset, "style": style, "inverse": back},
				io:    map[string]int{"x": c.heads * c.dim}, in: map[string]int{"angles": c.rot}, tol: tolOnce,
				twin: func(r *row) {
					half := c.rot / 2
					for h := range c.heads {
						x := r.v["x"][h*c.dim+c.offset:]
						for i := range half {
							j, k := i, i+half
							if style == "interleaved" {
								j, k = 2*i, 2*i+1
							}
							cos, sin := r.v["angles"][i], r.v["angles"][half+i]
							if back == 1 {
								sin = -sin
							}
							x[j], x[k] = x[j]*cos-x[k]*sin, x[k]*cos+x[j]*sin
						}
					}
				}})
		}
	}
	cs = append(cs, rowCase{name: "delta_gates", kernel: "delta_gates", in: map[string]int{"a": 24, "b": 24}, out: map[string]int{"g": 24, "beta": 24},
		w: map[string]int{"a_log": 24, "dt_bias": 24}, tol: tolExp, twin: func(r *row) {
			for i, a := range r.v["a"] {
				r.v["g"][i] = -math.Exp(r.v["a_log"][i]) * softplus(a+r.v["dt_bias"][i])
				r.v["beta"][i] = sigmoid(r.v["b"][i])
			}
		}})
	for _, floor := range []float64{0, -5} {
		cs = append(cs, rowCase{name: fmt.Sprint("delta_gates/channels/", floor), kernel: "delta_gates", attrs: attrs{"channels": 8, "floor": floor},
			in: map[string]int{"a": 24, "b": 3}, out: map[string]int{"g": 24, "beta": 3}, w: map[string]int{"a_log": 3, "dt_bias": 24}, tol: tolExp,
			twin: func(r *row) {
				for i, a := range r.v["a"] {
					e, a := math.Exp(r.v["a_log"][i/8]), a+r.v["dt_bias"][i]
					if r.v["g"][i] = -e * softplus(a); floor != 0 {
						r.v["g"][i] = floor * sigmoid(e*a)
					}
				}
				for i, b := range r.v["b"] {
					r.v["beta"][i] = sigmoid(b)
				}
			}})
	}
	cs = append(cs, rowCase{name: "act/relu2", kernel: "act", attrs: attrs{"act": "relu2"}, in: map[string]int{"x": 33}, out: map[string]int{"y": 33}, tol: tolOnce,
		twin: func(r *row) {
			for i, x := range r.v["x"] {
				r.v["y"][i] = max(x, 0) * max(x, 0)
			}
		}})
	return append(cs, streamCases()...)
}

// Both vector paths give the same bits.
func TestPathsAgree(t *testing.T) {
	if vec.Best() < vec.AVX512 {
		t.Skip("one vector path")
	}
	a, b := open(t, Options{Path: "avx2"}), open(t, Options{Path: "avx512"})
	for _, c := range rowCases() {
		rng := rand.New(rand.NewPCG(7, 7))
		data, w := map[string][]float32{}, map[string][]float32{}
		for _, m := range []map[string]int{c.in, c.io} {
			for _, name := range slices.Sorted(maps.Keys(m)) {
				data[name] = normals(rng, 3*m[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(c.w)) {
			w[name] = normals(rng, c.w[name])
		}
		ra, ya := c.bindRows(t, a, data, w, []int32{1, 50, 9})
		rb, yb := c.bindRows(t, b, data, w, []int32{1, 50, 9})
		ra.run()
		rb.run()
		for name := range ya {
			sameBits(t, c.name+": "+name, ya[name], yb[name])
		}
	}
}

// bindRows makes the launch of a case for these rows of its arguments.
func (c *rowCase) bindRows(t *testing.T, d *Device, data map[string][]float32, w map[string][]float32, pos []int32) (*rig, map[string][]float32) {
	r := newRig(t, d, c.kernel, len(pos), 1, 0)
	got := map[string][]float32{}
	for name, n := range c.in {
		r.floats(name, plan.In, data[name], r.rows(), ax("n", n))
	}
	for name, n := range c.io {
		got[name] = r.floats(name, plan.InOut, data[name], r.rows(), ax("n", n))
	}
	for name, n := range c.out {
		got[name] = r.floats(name, plan.Out, nil, r.rows(), ax("n", n))
	}
	for name, n := range c.w {
		r.floats(name, plan.In, w[name], ax("n", n))
	}
	if c.pos {
		r.ints("positions", plan.In, r.rows(), pos...)
	}
	for name, v := range c.attrs {
		r.attr(name, v)
	}
	return r, got
}

// Every row kernel against its twin; rows past the step stay untouched; a row alone gives the bits it gave among others.
func TestRowKernels(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, c := range rowCases() {
			for _, rows := range []int{1, 5, 150} {
				if rows*c.width() > 40_000 { // several tasks are enough
					rows = 40_000/c.width() + 1
				}
				t.Run(fmt.Sprint(c.name, "/rows=", rows), func(t *testing.T) { c.check(t, d, rows) })
			}
		}
	})
}

// width is the number of elements that a row reads and writes.
func (c *rowCase) width() (n int) {
	for _, m := range []map[string]int{c.in, c.io, c.out} {
		for _, w := range m {
			n += w
		}
	}
	return n
}

func (c *rowCase) check(t *testing.T, d *Device, rows int) {
	rng := rand.New(rand.NewPCG(1, uint64(rows)))
	data, w := map[string][]float32{}, map[string][]float32{}
	widths := maps.Clone(c.in)
	if widths == nil {
		widths = map[string]int{}
	}
	maps.Copy(widths, c.io)
	for _, name := range slices.Sorted(maps.Keys(widths)) {
		data[name] = normals(rng, rows*widths[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.w)) {
		w[name] = normals(rng, c.w[name])
	}
	pos := make([]int32, rows)
	for i := range pos {
		pos[i] = int32(rng.IntN(100))
	}
	r, got := c.bindRows(t, d, data, w, pos)
	r.run()

	slice := func(v []float32, i, n int) []float32 { return v[i*n : (i+1)*n] }
	for i := range rows {
		want := row{v: map[string][]float64{}, pos: int(pos[i])}
		for name, n := range widths {
			want.v[name] = wide(slice(data[name], i, n))
		}
		for name := range c.w {
			want.v[name] = wide(w[name])
		}
		for name, n := range c.out {
			want.v[name] = make([]float64, n)
		}
		c.twin(&want)
		for name, v := range got {
			near(t, fmt.Sprintf("row %d: %s", i, name), slice(v, i, len(want.v[name])), want.v[name], c.tol)
		}
	}
	for name, v := range got {
		n := c.out[name] + c.io[name]
		allPoison(t, name, v[rows*n:])
	}
	if rows == 1 {
		return
	}
	for _, i := range []int{0, rows / 2, rows - 1} {
		one := map[string][]float32{}
		for name, n := range widths {
			one[name] = slice(data[name], i, n)
		}
		r, alone := c.bindRows(t, d, one, w, pos[i:i+1])
		r.run()
		for name, v := range alone {
			n := c.out[name] + c.io[name]
			sameBits(t, fmt.Sprintf("row %d alone: %s", i, name), v[:n], slice(got[name], i, n))
		}
	}
}
