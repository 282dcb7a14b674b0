// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"
	"testing"
)

// streamCases are the kernels of hyper-connections, each row against a float64 twin.
func streamCases() (cs []rowCase) {
	for _, k := range []struct{ streams, width, iters int }{{4, 64, 20}, {2, 33, 1}, {3, 16, 3}} {
		s, n := k.streams, k.streams*k.width
		with := func(more attrs) attrs {
			all := attrs{"streams": s, "width": k.width}
			for name, v := range more {
				all[name] = v
			}
			return all
		}
		cs = append(cs,
			rowCase{name: fmt.Sprint("repeat/", s), kernel: "repeat", attrs: with(nil), in: map[string]int{"x": k.width}, out: map[string]int{"y": n},
				twin: func(r *row) {
					for i := range r.v["y"] {
						r.v["y"][i] = r.v["x"][i%k.width]
					}
				}},
			rowCase{name: fmt.Sprint("mean/", s), kernel: "mean", attrs: with(nil), in: map[string]int{"x": n}, out: map[string]int{"y": k.width}, tol: tolSum,
				twin: func(r *row) {
					for i, v := range r.v["x"] {
						r.v["y"][i%k.width] += v / float64(s)
					}
				}},
			rowCase{name: fmt.Sprint("mhc_head/", s), kernel: "mhc_head", attrs: with(attrs{"eps": 1e-3}), in: map[string]int{"x": n, "m": s},
				w: map[string]int{"base": s, "scale": 1}, out: map[string]int{"y": k.width}, tol: tolSum,
				twin: func(r *row) {
					for i, v := range r.v["x"] {
						j := i / k.width
						r.v["y"][i%k.width] += v * (sigmoid(r.v["m"][j]*r.v["scale"][0]+r.v["base"][j]) + 1e-3)
					}
				}},
			rowCase{name: fmt.Sprint("mhc_mix/", s), kernel: "mhc_mix", attrs: with(attrs{"eps": 1e-6, "iters": k.iters}), in: map[string]int{"x": n, "m": (2 + s) * s},
				w:   map[string]int{"base": (2 + s) * s, "scale": 3},
				out: map[string]int{"y": k.width, "post": s, "comb": s * s}, tol: tolSum,
				twin: func(r *row) { mixTwin(r, s, k.width, k.iters, 1e-6) }},
			rowCase{name: fmt.Sprint("mhc_add/", s), kernel: "mhc_add", attrs: with(nil), io: map[string]int{"x": n},
				in: map[string]int{"d": k.width, "post": s, "comb": s * s}, tol: tolSum,
				twin: func(r *row) {
					old := append([]float64(nil), r.v["x"]...)
					for i := range old {
						j, at := i/k.width, i%k.width
						r.v["x"][i] = r.v["post"][j] * r.v["d"][at]
						for from := range s {
							r.v["x"][i] += r.v["comb"][from*s+j] * old[from*k.width+at]
						}
					}
				}},
		)
	}
	return cs
}

// mixTwin is mhc_mix as its paper has it.
func mixTwin(r *row, s, width, iters int, eps float64) {
	a := make([]float64, (2+s)*s)
	for i := range a {
		a[i] = r.v["m"][i]*r.v["scale"][min(i/s, 2)] + r.v["base"][i]
	}
	for i, v := range r.v["x"] {
		r.v["y"][i%width] += v * (sigmoid(a[i/width]) + eps)
	}
	for i := range s {
		r.v["post"][i] = 2 * sigmoid(a[s+i])
	}
	c := r.v["comb"]
	for i := range s {
		sum := 0.0
		for j := range s {
			c[i*s+j] = math.Exp(a[2*s+i*s+j])
			sum += c[i*s+j]
		}
		for j := range s {
			c[i*s+j] = c[i*s+j]/sum + eps
		}
	}
	divide := func(at func(i, j int) int) {
		for i := range s {
			sum := eps
			for j := range s {
				sum += c[at(i, j)]
			}
			for j := range s {
				c[at(i, j)] /= sum
			}
		}
	}
	columns, rows := func(i, j int) int { return j*s + i }, func(i, j int) int { return i*s + j }
	divide(columns)
	for range iters - 1 {
		divide(rows)
		divide(columns)
	}
}

// After enough steps the rows and columns of comb sum to one.
func TestSinkhornIsDoublyStochastic(t *testing.T) {
	c := []float64{3, -1, 0.5, 2, 1, 1, -2, 0, 0.25}
	sinkhorn(c, 3, 40, 1e-9)
	for i := range 3 {
		row, column := 0.0, 0.0
		for j := range 3 {
			row, column = row+c[i*3+j], column+c[j*3+i]
		}
		if math.Abs(row-1) > 1e-6 || math.Abs(column-1) > 1e-6 {
			t.Errorf("row %d sums to %v, column %d to %v", i, row, i, column)
		}
	}
}
