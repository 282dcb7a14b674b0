// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"math"
	"slices"

	"github.com/metrale/metrale/internal/plan"
)

// Hyper-connections: a row carries several residual streams of width elements. Weights of the row say how they are collapsed
// into the input of a layer, and how its output is spread over the streams, which are mixed.

// streamed takes activations that hold streams of width elements.
func (a *args) streamed(param string, access plan.Access) (x matrix, streams, width int) {
	streams, width = a.size("streams"), a.size("width")
	return a.acts(param, access, streams*width), streams, width
}

// repeat copies a row to all streams.
func repeat(a *args) func() {
	y, streams, width := a.streamed("y", plan.Out)
	x := a.actsLike(y, "x", plan.In, width)
	r := a.dev.region(y.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			for s := range streams {
				copy(y.row(i)[s*width:(s+1)*width], x.row(i))
			}
		}
	})
	return func() { r.run(x.rows()) }
}

// mean is the mean of the streams.
func mean(a *args) func() {
	x, streams, width := a.streamed("x", plan.In)
	y := a.actsLike(x, "y", plan.Out, width)
	level := a.dev.level
	r := a.dev.region(x.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			out := y.row(i)
			copy(out, x.row(i))
			for s := 1; s < streams; s++ {
				level.Add(out, x.row(i)[s*width:(s+1)*width])
			}
			level.Scale(out, out, 1/float32(streams))
		}
	})
	return func() { r.run(x.rows()) }
}

// collapse computes y = Σ w_s x_s.
func (a *args) collapse(width int) func(y, x []float32, w []float64, worker int) {
	parts := scratch[float32](a, width)
	level := a.dev.level
	return func(y, x []float32, w []float64, worker int) {
		for s, v := range w {
			if s == 0 {
				level.Scale(y, x[:width], float32(v))
				continue
			}
			part := parts[worker]
			level.Scale(part, x[s*width:(s+1)*width], float32(v))
			level.Add(y, part)
		}
	}
}

// scratch is n elements for each worker.
func scratch[T any](a *args, n int) [][]T {
	if a.err != nil {
		return nil
	}
	s := make([][]T, a.dev.pool.Workers())
	for i := range s {
		s[i] = make([]T, n)
	}
	return s
}

func sigmoid64(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// mhcMix turns the row's coefficients m into weights and collapses the streams:
//
//	pre  = sigmoid(m[:s]*scale0 + base) + eps      y = Σ pre_i x_i
//	post = 2*sigmoid(m[s:2s]*scale1 + base)
//	comb = softmax over rows of m[2s:]*scale2 + base, plus eps, then divided by the sums of columns, rows, columns, … iters times
func mhcMix(a *args) func() {
	x, streams, width := a.streamed("x", plan.In)
	n := (2 + streams) * streams
	m := a.actsLike(x, "m", plan.In, n)
	base, scale := a.floats("base", n), a.floats("scale", 3)
	y := a.actsLike(x, "y", plan.Out, width)
	post := a.actsLike(x, "post", plan.Out, streams)
	comb := a.actsLike(x, "comb", plan.Out, streams*streams)
	iters, eps := a.size("iters"), a.float("eps")
	collapse, weights := a.collapse(width), scratch[float64](a, n)
	r := a.dev.region(2*x.n, func(lo, hi, worker int) {
		w := weights[worker]
		for i := lo; i < hi; i++ {
			for j, v := range m.row(i) {
				w[j] = float64(v)*float64(scale[min(j/streams, 2)]) + float64(base[j])
			}
			pre, out, mix := w[:streams], w[streams:2*streams], w[2*streams:]
			for s := range streams {
				pre[s] = sigmoid64(pre[s]) + eps
				post.row(i)[s] = float32(2 * sigmoid64(out[s]))
			}
			sinkhorn(mix, streams, iters, eps)
			for j, v := range mix {
				comb.row(i)[j] = float32(v)
			}
			collapse(y.row(i), x.row(i), pre, worker)
		}
	})
	return func() { r.run(x.rows()) }
}

// sinkhorn makes c [n, n] nearly doubly stochastic.
func sinkhorn(c []float64, n, iters int, eps float64) {
	for at := 0; at < len(c); at += n {
		row := c[at : at+n]
		top, sum := slices.Max(row), 0.0
		for j, v := range row {
			row[j] = math.Exp(v - top)
			sum += row[j]
		}
		for j := range row {
			row[j] = row[j]/sum + eps
		}
	}
	normalize := func(first, step int) { // the n elements from first on, step apart
		sum := eps
		for k := range n {
			sum += c[first+k*step]
		}
		for k := range n {
			c[first+k*step] /= sum
		}
	}
	for it := range iters {
		for k := range n {
			if it > 0 {
				normalize(k*n, 1)
			}
		}
		for k := range n {
			normalize(k, n)
		}
	}
}

// mhcAdd spreads a layer's output over the mixed streams: x_j = post_j*d + Σ_i comb[i,j] x_i.
func mhcAdd(a *args) func() {
	x, streams, width := a.streamed("x", plan.InOut)
	d := a.actsLike(x, "d", plan.In, width)
	post := a.actsLike(x, "post", plan.In, streams)
	comb := a.actsLike(x, "comb", plan.In, streams*streams)
	mixed, parts := scratch[float32](a, x.n), scratch[float32](a, width)
	level := a.dev.level
	r := a.dev.region(streams*x.n, func(lo, hi, worker int) {
		out, tmp := mixed[worker], parts[worker]
		for i := lo; i < hi; i++ {
			row, c := x.row(i), comb.row(i)
			for j := range streams {
				y := out[j*width : (j+1)*width]
				level.Scale(y, row[:width], c[j])
				for s := 1; s < streams; s++ {
					level.Scale(tmp, row[s*width:(s+1)*width], c[s*streams+j])
					level.Add(y, tmp)
				}
				level.Scale(tmp, d.row(i), post.row(i)[j])
				level.Add(y, tmp)
			}
			copy(row, out)
		}
	})
	return func() { r.run(x.rows()) }
}

// mhcHead collapses the streams by weights sigmoid(m*scale + base) + eps.
func mhcHead(a *args) func() {
	x, streams, width := a.streamed("x", plan.In)
	m := a.actsLike(x, "m", plan.In, streams)
	base, scale := a.floats("base", streams), a.floats("scale", 1)
	y := a.actsLike(x, "y", plan.Out, width)
	eps := a.float("eps")
	collapse, weights := a.collapse(width), scratch[float64](a, streams)
	r := a.dev.region(2*x.n, func(lo, hi, worker int) {
		w := weights[worker]
		for i := lo; i < hi; i++ {
			for s, v := range m.row(i) {
				w[s] = sigmoid64(float64(v)*float64(scale[0])+float64(base[s])) + eps
			}
			collapse(y.row(i), x.row(i), w, worker)
		}
	})
	return func() { r.run(x.rows()) }
}
