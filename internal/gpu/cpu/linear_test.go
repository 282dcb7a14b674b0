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
	"github.com/metrale/metrale/internal/weights"
)

// weight binds a random [count,] n, k weight in a layout and gives its exact values.
func (r *rig) weight(rng *rand.Rand, param, layoutName string, d tensor.DType, count, n, k int) []float64 {
	r.t.Helper()
	axes := plan.Axes{ax("n", n), ax("k", k)}
	if count > 1 {
		axes = append(plan.Axes{ax("e", count)}, axes...)
	}
	elems := count * n * k
	var src []byte
	switch d {
	case tensor.Q8_0: // a scale of 0.0017 or more, then bytes
		for range elems / 32 {
			src = append(src, byte(rng.IntN(256)), 0x17)
			for range 32 {
				src = append(src, byte(rng.IntN(256)))
			}
		}
	case tensor.NVFP4: // a scale of 1/16 to 1/8, then codes
		for range elems / 16 {
			src = append(src, byte(0x18+rng.IntN(8)))
			for range 8 {
				src = append(src, byte(rng.IntN(256)))
			}
		}
	default:
		src = make([]byte, d.Bytes(int64(elems)))
		v := normals(rng, elems)
		for i := range v {
			v[i] /= float32(math.Sqrt(float64(k)))
		}
		if err := tensor.Encode(src, d, v); err != nil {
			r.t.Fatal(err)
		}
	}
	l, err := r.dev.Layout(layoutName)
	if err != nil {
		r.t.Fatal(err)
	}
	size, err := l.Size(d, axes.Shape())
	if err != nil {
		r.t.Fatal(err)
	}
	r.arg(param, plan.In, d, layoutName, size, axes)
	one := int64(len(src) / count)
	for m := range count { // in two chunks each
		cut := min(l.Rows(), int64(n))
		row := one / int64(n)
		for _, c := range [][2]int64{{0, cut}, {cut, int64(n)}} {
			if c[0] == c[1] {
				continue
			}
			from := int64(m) * one
			if err := l.Pack(r.b.Args[len(r.b.Args)-1].Buf, 64, d, axes.Shape(), int64(m), c[0], c[1]-c[0], src[from+c[0]*row:from+c[1]*row]); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	exact := make([]float32, elems)
	if err := weights.Dequantize(exact, d, src); err != nil {
		r.t.Fatal(err)
	}
	return wide(exact)
}

// product is row x times w [n, k] in float64, times scale, plus bias.
func product(x []float32, w []float64, scale, bias []float32) []float64 {
	k := len(x)
	y := make([]float64, len(w)/k)
	for n := range y {
		for i, v := range x {
			y[n] += float64(v) * w[n*k+i]
		}
		if scale != nil {
			y[n] *= float64(scale[n])
		}
		if bias != nil {
			y[n] += float64(bias[n])
		}
	}
	return y
}

// A product of k terms with |w| about 1/sqrt(k) sums to about 1 and errs by at most some k/8 roundings: k ≤ 192 gives 1e-5.
const tolLinear = 1e-5

// The linear kernels against a float64 product, each fused form against the chain that it stands for, bit for bit.
func TestLinears(t *testing.T) {
	const rows = 5
	eachPath(t, func(t *testing.T, d *Device) {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8_0, tensor.E4M3, tensor.NVFP4} {
			for _, s := range [][2]int{{64, 64}, {40, 192}, {1, 96}} {
				t.Run(fmt.Sprint(dt, s), func(t *testing.T) {
					n, k := s[0], s[1]
					x := normals(rand.New(rand.NewPCG(1, 2)), rows*k)
					bias := normals(rand.New(rand.NewPCG(3, 4)), n)
					var scale []float32 // of what quantised checkpoints have
					if dt == tensor.E4M3 || dt == tensor.NVFP4 {
						for i := range n {
							scale = append(scale, 0.5+0.7*float32(i)/float32(n))
						}
					}
					// single runs one linear of seed's weight on rows of x.
					single := func(kernel string, seed uint64, bias []float32, x, y []float32) ([]float32, []float64) {
						r := newRig(t, d, kernel, len(x)/k, 1, 0)
						r.floats("x", plan.In, x, r.rows(), ax("k", k))
						w := r.weight(rand.New(rand.NewPCG(seed, 0)), "w", "panel", dt, 1, n, k)
						if scale != nil {
							r.floats("scale", plan.In, scale, ax("n", n))
						}
						if bias != nil {
							r.floats("bias", plan.In, bias, ax("n", n))
						}
						access := plan.Out
						if kernel == "linear_add" {
							access = plan.InOut
						}
						out := r.floats("y", access, y, r.rows(), ax("n", n))
						r.attr("compute", "f32").run()
						allPoison(t, "y", out[len(x)/k*n:])
						return out[:len(x)/k*n], w
					}
					y, w := single("linear", 7, bias, x, nil)
					for i := range rows {
						near(t, fmt.Sprint("row ", i), y[i*n:(i+1)*n], product(x[i*k:(i+1)*k], w, scale, bias), tolLinear)
						alone, _ := single("linear", 7, bias, x[i*k:(i+1)*k], nil)
						sameBits(t, "alone", alone, y[i*n:(i+1)*n])
					}

					before := normals(rand.New(rand.NewPCG(5, 6)), rows*n)
					sum, _ := single("linear_add", 7, bias, x, before)
					chain := slices.Clone(before)
					d.level.Add(chain, y)
					sameBits(t, "linear_add", sum, chain)

					r := newRig(t, d, "linear_n", rows, 1, 0)
					r.floats("x", plan.In, x, r.rows(), ax("k", k))
					r.weight(rand.New(rand.NewPCG(7, 0)), "w0", "panel", dt, 1, n, k)
					r.floats("bias0", plan.In, bias, ax("n", n))
					if scale != nil {
						r.floats("scale0", plan.In, scale, ax("n", n))
						r.floats("scale1", plan.In, scale, ax("n", n))
					}
					r.weight(rand.New(rand.NewPCG(8, 0)), "w1", "panel", dt, 1, n, k)
					y0 := r.floats("y0", plan.Out, nil, r.rows(), ax("n", n))
					y1 := r.floats("y1", plan.Out, nil, r.rows(), ax("n", n))
					r.attr("compute", "f32").attr("n", 2).run()
					second, _ := single("linear", 8, nil, x, nil)
					sameBits(t, "linear_n 0", y0[:rows*n], y)
					sameBits(t, "linear_n 1", y1[:rows*n], second)

					r = newRig(t, d, "linear_glu", rows, 1, 0)
					r.floats("x", plan.In, x, r.rows(), ax("k", k))
					r.weight(rand.New(rand.NewPCG(9, 0)), "wg", "panel", dt, 1, n, k)
					r.weight(rand.New(rand.NewPCG(8, 0)), "wu", "panel", dt, 1, n, k)
					if scale != nil {
						r.floats("sg", plan.In, scale, ax("n", n))
						r.floats("su", plan.In, scale, ax("n", n))
					}
					fused := r.floats("y", plan.Out, nil, r.rows(), ax("n", n))
					r.attr("compute", "f32").attr("act", "silu").run()
					gate, _ := single("linear", 9, nil, x, nil)
					r = newRig(t, d, "glu", rows, 1, 0)
					r.floats("g", plan.In, gate, r.rows(), ax("n", n))
					r.floats("u", plan.In, second, r.rows(), ax("n", n))
					want := r.floats("y", plan.Out, nil, r.rows(), ax("n", n))
					r.attr("act", "silu").run()
					sameBits(t, "linear_glu", fused[:rows*n], want[:rows*n])
				})
			}
		}
	})
}

func TestEmbed(t *testing.T) {
	eachPath(t, func(t *testing.T, d *Device) {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.Q8_0} {
			r := newRig(t, d, "embed", 3, 1, 0)
			tokens := []int32{36, 0, 17}
			r.ints("tokens", plan.In, r.rows(), tokens...)
			w := r.weight(rand.New(rand.NewPCG(1, 0)), "w", "panel", dt, 1, 37, 64)
			y := r.floats("y", plan.Out, nil, r.rows(), ax("h", 64))
			r.attr("scale", 2.0).run()
			for i, tok := range tokens {
				for j, v := range w[int(tok)*64 : int(tok+1)*64] {
					if got := y[i*64+j]; got != float32(2*v) {
						t.Fatalf("%v: token %d, element %d: %v, want %v", dt, tok, j, got, 2*v)
					}
				}
			}
			allPoison(t, "y", y[3*64:])
			for _, bad := range []int32{37, -1} {
				view[int32](r.b.Args[1].Buf.(*buffer).data[64:])[1] = bad
				if err := d.Launch(r.bind()); err == nil {
					t.Errorf("%v: token %d was taken", dt, bad)
				}
			}
		}
	})
}

// Experts against a float64 twin; rows alone give the same bits.
func TestExperts(t *testing.T) {
	const rows, k, count, inter, hidden = 9, 3, 5, 32, 64
	eachPath(t, func(t *testing.T, d *Device) {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.Q8_0} {
			identity := map[tensor.DType]int{tensor.BF16: 2}[dt]
			t.Run(dt.String(), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(21, 22))
				x := normals(rng, rows*hidden)
				scale := normals(rng, rows*k)
				var ids []int32
				for range rows {
					for _, e := range rng.Perm(count + identity)[:k] {
						ids = append(ids, int32(e))
					}
				}
				run := func(lo, hi int) (y []float32, gateUp, down []float64) {
					r := newRig(t, d, "experts", hi-lo, 1, 0)
					r.floats("x", plan.In, x[lo*hidden:hi*hidden], r.rows(), ax("h", hidden))
					axes := plan.Axes{r.rows(), ax("k", k)}
					copy(view[int32](r.arg("ids", plan.In, tensor.I32, "", 4*axes.Shape().Elems(), axes)), ids[lo*k:hi*k])
					r.floats("weights", plan.In, scale[lo*k:hi*k], axes...)
					gateUp = r.weight(rand.New(rand.NewPCG(1, 0)), "gate_up", "panel", dt, count, 2*inter, hidden)
					down = r.weight(rand.New(rand.NewPCG(2, 0)), "down", "panel", dt, count, hidden, inter)
					y = r.floats("y", plan.Out, nil, r.rows(), ax("h", hidden))
					r.attr("k", k).attr("act", "silu").attr("identity", identity).attr("compute", "f32").run()
					allPoison(t, "y", y[(hi-lo)*hidden:])
					return y[:(hi-lo)*hidden], gateUp, down
				}
				y, gateUp, down := run(0, rows)
				for i := range rows {
					want := make([]float64, hidden)
					for s := range k {
						e := int(ids[i*k+s])
						if e >= count {
							for h := range want {
								want[h] += float64(scale[i*k+s]) * float64(x[i*hidden+h])
							}
							continue
						}
						gu := product(x[i*hidden:(i+1)*hidden], gateUp[e*2*inter*hidden:(e+1)*2*inter*hidden], nil, nil)
						for h := range hidden {
							for j := range inter {
								want[h] += float64(scale[i*k+s]) * silu(gu[j]) * gu[inter+j] * down[(e*hidden+h)*inter+j]
							}
						}
					}
					near(t, fmt.Sprint("row ", i), y[i*hidden:(i+1)*hidden], want, 3*tolLinear)
				}
				for _, i := range []int{0, rows - 1} {
					alone, _, _ := run(i, i+1)
					sameBits(t, "alone", alone, y[i*hidden:(i+1)*hidden])
				}
			})
		}
	})
}
